"""`Flow`: the text of one LLVM function: its lines, i64 arithmetic, loops and branches.

Nothing else writes labels, branches and phis: vector code, fused loops, small programs, products and the ops' own kernels say `loop`,
`branch` and `units`. An i64 is a register (``%name``) or a number in decimal text; what is known while the text is written is
computed then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Carried = Sequence[tuple[str, str]]  # LLVM types and registers of values that go from round to round

RARE = ", !prof !0"  # marks a branch whose first way is rare


class Flow:
    """Writes one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.label = "entry"
        self._count = 0
        self._around: list[
            tuple[list[Any], list[str]]
        ] = []  # per loop around: where code before it goes, and its label

    # -- text ------------------------------------------------------------------------------------------------------------

    def name(self, hint: str = "v") -> str:
        """A name that nothing else has."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction."""
        self.lines.append("  " + text)

    def value(self, text: str, hint: str = "t") -> str:
        """Append an instruction with a scalar result: its register."""
        name = f"%{self.name(hint)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.label = label

    def declare(self, name: str, text: str) -> str:
        """Name an outside function (or one whose definition is `text`), once."""
        self.declared.setdefault(name, text)
        return name

    def slot(self) -> list[Any]:
        """A place among the lines that is filled later."""
        made: list[Any] = []
        self.lines.append(made)  # type: ignore[arg-type]
        return made

    def body(self) -> str:
        """The lines that were written."""
        return "\n".join(flat(self.lines))

    # -- integers --------------------------------------------------------------------------------------------------------

    def integer(self, op: str, x: int | str, y: int | str) -> str:
        """An i64 by `op`: add, sub, mul, sdiv, udiv or urem; of two numbers, a number."""
        x, y = str(x), str(y)
        if is_known(x) and is_known(y):
            return str(_ARITHMETIC[op](int(x), int(y)))
        if (y == "0" and op in ("add", "sub")) or (y == "1" and op in ("mul", "udiv", "sdiv")):
            return x
        if (x == "0" and op == "add") or (x == "1" and op == "mul"):
            return y
        if op == "mul" and "0" in (x, y):
            return "0"
        return self.value(f"{op} i64 {x}, {y}", "n")

    def test(self, condition: str, x: int | str, y: int | str) -> str:
        """An i1: `condition` (eq, ne, slt, sle, ult, ule, ugt, ...) of two i64."""
        return self.value(f"icmp {condition} i64 {x}, {y}", "is")

    def pick(self, condition: str, yes: int | str, no: int | str) -> str:
        """The i64 `yes` where an i1 is set."""
        return self.value(f"select i1 {condition}, i64 {yes}, i64 {no}", "n")

    def pick_address(self, condition: str, yes: str, no: str) -> str:
        """The address `yes` where an i1 is set."""
        return self.value(f"select i1 {condition}, ptr {yes}, ptr {no}", "p")

    def same_address(self, x: str, y: str) -> str:
        """An i1: whether two addresses are one."""
        return self.value(f"icmp eq ptr {x}, {y}", "is")

    def least(self, x: int | str, y: int | str, signed: bool = True) -> str:
        """The smaller of two i64."""
        if is_known(str(x)) and is_known(str(y)):
            return str(min(int(x), int(y)))
        return self.pick(self.test("slt" if signed else "ult", x, y), x, y)

    def greatest(self, x: int | str, y: int | str) -> str:
        """The greater of two i64."""
        if is_known(str(x)) and is_known(str(y)):
            return str(max(int(x), int(y)))
        return self.pick(self.test("sgt", x, y), x, y)

    def clamp(self, x: str, low: int, high: int | str) -> str:
        """An i64 moved to the nearest one within bounds."""
        x = self.pick(self.test("slt", x, low), low, x)
        return self.pick(self.test("sgt", x, high), high, x)

    def from_end(self, x: str, n: int | str) -> str:
        """A position of which a negative one counts from the end of `n` elements."""
        return self.pick(self.test("slt", x, 0), self.integer("add", x, n), x)

    def split(self, number: str, extents: Sequence[int | str]) -> list[str]:
        """The index per loop of the element `number` of nested loops with these extents; the first counts on without end."""
        found: list[str] = []
        for n in reversed(extents[1:]):
            found.append(self.integer("urem", number, n))
            number = self.integer("udiv", number, n)
        return [number, *reversed(found)] if extents else []

    # -- addresses -------------------------------------------------------------------------------------------------------

    def advance_address(self, place: str, index: int | str, step: int | str) -> str:
        """The address `index` times `step` bytes on."""
        if str(step) in _SCALES and not is_known(str(index)):
            return self.value(f"getelementptr i{8 * int(step)}, ptr {place}, i64 {index}", "p")
        offset = self.integer("mul", index, step)
        return place if offset == "0" else self.value(f"getelementptr i8, ptr {place}, i64 {offset}", "p")

    # -- control ---------------------------------------------------------------------------------------------------------

    def jump(self, label: str) -> None:
        """Go on in a new block."""
        self.line(f"br label %{label}")
        self.start(label)

    def loop(
        self,
        begin: int | str,
        end: int | str,
        body: Callable[[str, list[str]], Sequence[str] | None],
        carried: Carried = (),
        step: int | str = 1,
        *,
        occurs: bool = True,
    ) -> list[str]:
        """``for i in range(begin, end, step)``: `body(i, values) -> next values`. Goes out: the last values.

        `occurs`: at least one round is sure to run, so the test stands behind the body.
        """
        begin, end = str(begin), str(end)
        if is_known(begin) and is_known(end) and is_known(str(step)):
            rounds = len(range(int(begin), int(end), int(step)))
            if rounds == 0:
                return [first for _, first in carried]
            if rounds == 1:
                return list(body(begin, [first for _, first in carried]) or ())
        if not occurs:
            return self._test_first(begin, end, body, carried, step)
        tag, enter, slots = self._enter("loop")
        phis = self.slot()
        names = [f"%{tag}.c{k}" for k in range(len(carried))]
        self._around.append(slots)
        nexts = list(body(f"%{tag}.i", names) or ())
        self._around.pop()
        following = self.integer("add", f"%{tag}.i", step)
        again = self.test("slt", following, end)
        self.line(f"br i1 {again}, label %{tag}, label %{tag}.exit")
        phis.append(f"  %{tag}.i = phi i64 [ {begin}, %{enter} ], [ {following}, %{self.label} ]")
        phis += self._phis(carried, names, nexts, enter)
        self.start(f"{tag}.exit")
        return nexts

    def _test_first(self, begin: str, end: str, body: Any, carried: Carried, step: int | str) -> list[str]:
        def more(held: list[str]) -> str:
            return self.test("slt", held[0], end)

        def round_(held: list[str]) -> list[str]:
            nexts = list(body(held[0], held[1:]) or ())
            return [self.integer("add", held[0], step), *nexts]

        return self.repeat([("i64", begin), *carried], more, round_)[1:]

    def repeat(
        self, carried: Carried, test: Callable[[list[str]], str], body: Callable[[list[str]], Sequence[str] | None]
    ) -> list[str]:
        """Rounds of `body(values) -> next values` while the i1 `test(values)` holds. Goes out: the last values."""
        tag, enter, slots = self._enter("while")
        phis = self.slot()
        names = [f"%{tag}.c{k}" for k in range(len(carried))]
        self._around.append(slots)
        going = test(names)
        self.line(f"br i1 {going}, label %{tag}.body, label %{tag}.exit")
        self.start(f"{tag}.body")
        nexts = list(body(names) or ())
        self._around.pop()
        phis += self._phis(carried, names, nexts, enter)
        self.line(f"br label %{tag}")
        self.start(f"{tag}.exit")
        return names

    def _enter(self, hint: str) -> tuple[str, str, tuple[list[Any], list[str]]]:
        """Begin a loop: its label, the label of the block before it, and the slot for code before it."""
        tag = self.name(hint)
        self.jump(f"{tag}.before")
        slots = self.slot(), [self.label]
        self.jump(f"{tag}.enter")
        self.jump(tag)
        return tag, f"{tag}.enter", slots

    def _phis(self, carried: Carried, names: Sequence[str], nexts: Sequence[str], enter: str) -> list[str]:
        return [
            f"  {name} = phi {kind} [ {first}, %{enter} ], [ {after}, %{self.label} ]"
            for (kind, first), name, after in zip(carried, names, nexts, strict=True)
        ]

    def branch(
        self,
        condition: str,
        then: Callable[[], Sequence[str] | None],
        otherwise: Callable[[], Sequence[str] | None] | Sequence[str] = (),
        kinds: Sequence[str] = (),
        mark: str = "",
    ) -> list[str]:
        """`then()` where an i1 is set; else `otherwise()`, or the values `otherwise` that are there already.

        Goes out: the values of the way that is taken, of these LLVM types.
        """
        tag, before = self.name("if"), self.label
        other = f"{tag}.else" if callable(otherwise) else f"{tag}.end"
        self.line(f"br i1 {condition}, label %{tag}.then, label %{other}{mark}")
        self.start(f"{tag}.then")
        ways = [(then() or (), self.label)]
        if callable(otherwise):
            self.line(f"br label %{tag}.end")
            self.start(other)
            ways.append((otherwise() or (), self.label))
        else:
            ways.append((otherwise, before))
        self.jump(f"{tag}.end")
        return [
            self.value(f"phi {kind} " + ", ".join(f"[ {values[k]}, %{label} ]" for values, label in ways), "if")
            for k, kind in enumerate(kinds)
        ]

    def choose(
        self, number: str, ways: Sequence[Callable[[], Sequence[str]]], kinds: Sequence[str] = (), first: int = 0
    ) -> list[str]:
        """The values, of these LLVM types, of the way whose place among `ways`, counted from `first`, is nearest to an i64."""
        if len(ways) == 1:
            return list(ways[0]())
        half = len(ways) // 2
        low, high = ways[:half], ways[half:]
        return self.branch(
            self.test("slt", number, first + half),
            lambda: self.choose(number, low, kinds, first),
            lambda: self.choose(number, high, kinds, first + half),
            kinds,
        )

    def returns(self, condition: str, value: str = "void", mark: str = RARE) -> None:
        """Leave the function with a value where an i1 is set."""
        tag = self.name("leave")
        self.line(f"br i1 {condition}, label %{tag}, label %{tag}.not{mark}")
        self.start(tag)
        self.line(f"ret {value}")
        self.start(f"{tag}.not")

    def ticket(self, counter: str) -> str:
        """The number of this call among all that any threads make with this counter, an address."""
        return self.atomic_add(counter, 1, "monotonic")

    def atomic_add(self, place: str, by: int, order: str) -> str:
        """Add `by` to the i64 at an address, in one step for all threads: the number before."""
        return self.value(f"atomicrmw add ptr {place}, i64 {by} {order}", "number")

    def units(
        self, total: int | str, body: Callable[[str], object], grain: int | str = 1, counter: str = "%counter"
    ) -> None:
        """`body(unit)` for the units below `total`: any number of threads take `grain` at a time from a counter they share."""
        tag = self.name("units")
        self.jump(tag)
        first = self.integer("mul", self.ticket(counter), grain)
        more = self.test("ult", first, total)
        self.line(f"br i1 {more}, label %{tag}.take, label %{tag}.done")
        self.start(f"{tag}.take")
        if str(grain) == "1":
            body(first)
        else:
            last = self.least(self.integer("add", first, grain), total, signed=False)

            def unit(i: str, _: list[str]) -> None:
                body(i)

            self.loop(first, last, unit)
        self.line(f"br label %{tag}")
        self.start(f"{tag}.done")


_SCALES = ("2", "4", "8")  # steps that addresses multiply an index with at no cost

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "udiv": lambda x, y: x // y,
    "sdiv": lambda x, y: x // y,
    "urem": lambda x, y: x % y,
}


def is_known(x: str) -> bool:
    """Whether an i64 is a number that is known while the text is written."""
    return not x.startswith("%")


def flat(lines: Iterable[Any]) -> Iterable[str]:
    """The lines, those of slots among them."""
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from flat(line)
