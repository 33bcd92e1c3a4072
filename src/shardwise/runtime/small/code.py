"""`Code`: writes one LLVM function for a small program. Values are in registers, constant, or in memory.

Beside what `Lanes` writes (vectors of one width), `Code` changes its width from value to value, writes loops, and gives out
scratch memory. A value of at most `costs.REGISTER_ELEMENTS` is one vector register that holds all of them, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.ir import Op, exact_items
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.loops import Writer, dense_steps
from shardwise.runtime.machine import RARE, TYPES, Lane, Lanes, itemsize, scalar_text


class Unwritable(Exception):
    """A program has no form for the blocks at hand; it runs op by op."""


class Buffer:
    """A piece of scratch memory; free again when no value needs it."""

    __slots__ = ("offset", "size", "uses")

    def __init__(self, offset: int, size: int) -> None:
        self.offset, self.size, self.uses = offset, size, 0


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value: one of `lane`, `constant`, `place` and `boxes` is set.

    `lane` holds all elements, or one (`width` 1) that all are equal to; a `constant` has the value's shape, or one element.
    `place` is the address of the first element, `steps` the bytes between neighbours along each dim. Of memory that is `updated`,
    equations to come write over windows. What is put together of `boxes`, later ones over earlier ones, is nowhere yet. Where branches
    hand on memory as it is, `place` is one of the addresses `among`, as turns out in each run; what is wanted may lie at any of `among`,
    and `spare` is the one at which no branch computes it.
    """

    shape: Shape
    dtype: str
    lane: Lane | None = None
    width: int = 0
    constant: np.ndarray[Any, Any] | None = None
    place: str = ""
    steps: Shape = ()
    owners: tuple[Buffer, ...] = ()
    updated: bool = False
    boxes: tuple[ValueBox, ...] = ()
    among: tuple[str, ...] = ()
    spare: str = ""

    def lies_in(self, wanted: Value) -> bool:
        """Whether the value is where it is wanted, in every run."""
        places = wanted.among or (wanted.place,)
        return self.steps == wanted.steps and all(p in places for p in self.among or (self.place,))

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def even(self) -> bool:
        """Whether all elements are known to be equal."""
        return self.width == 1 or (self.constant is not None and self.constant.size == 1)

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return itemsize(self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class ValueBox:
    """A part of a value, from `start` on: what `value`, broadcast to that shape, is."""

    start: Shape
    shape: Shape
    value: Value


class Code(Writer):
    """Writes one function for values on the device grid of `env`, with its leading dims."""

    def __init__(self, env: Env, wide: bool) -> None:
        super().__init__(1, wide)
        self.env, self.lead = env, env.lead
        self.arena = 0  # bytes of scratch memory
        self.polls = False
        self.puts_off = False  # whether the value that is put together now may stay in its boxes
        self.met: dict[Any, int] = {}  # how often the program has an op
        self._functions: dict[Any, str] = {}
        self._free: dict[int, list[int]] = {}
        self._recent: list[Buffer] = []
        self.start("entry")

    # -- control -----------------------------------------------------------------------------------------------------------

    def outside(self, write: Callable[[], Value]) -> Value:
        """The value that `write` makes of values known before the loop around, written before that loop, in scratch memory of its own."""
        if not self._around:
            return write()
        slot, label = self._around[-1]
        kept = self.lines, self.label, self._free, self._around
        self.lines, self.label, self._free, self._around = slot, label[0], {}, self._around[:-1]
        made = write()
        label[0] = self.label
        self.lines, self.label, self._free, self._around = kept
        for buffer in made.owners:
            buffer.uses += 1  # for ever
        return made

    def poll_signals(self, counter: str, every: int) -> None:
        """Look, in every `every`-th round (a power of two), whether Python has a signal to handle; if that raised, return."""
        self.polls = True
        low = self.value(f"and i64 {counter}, {every - 1}")
        due = self.test("eq", low, every - 1)

        def look() -> list[str]:
            return [self.value("call i1 @interrupted(ptr %tools, ptr %held)")]

        (raised,) = self.branch(due, look, ["false"], ["i1"], RARE)
        self.returns(raised, "i32 2")

    # -- scratch memory ----------------------------------------------------------------------------------------------------

    def buffer(self, shape: Shape, dtype: str) -> Value:
        """Memory for a value, with arbitrary contents."""
        size = -(-math.prod(shape) * itemsize(dtype) // 64) * 64
        waiting = self._free.get(size)
        if waiting:
            offset = waiting.pop()
        else:
            offset, self.arena = self.arena, self.arena + size
        owner = Buffer(offset, size)
        self._recent.append(owner)
        place = self.value(f"getelementptr i8, ptr %arena, i64 {offset}", "a")
        return Value(shape, dtype, place=place, steps=dense_steps(shape, itemsize(dtype)), owners=(owner,))

    def hold(self, value: Value) -> None:
        """Keep its memory until `release`."""
        for owner in value.owners:
            owner.uses += 1

    def release(self, value: Value) -> None:
        """The opposite of `hold`; the memory is free at the next `tidy`."""
        for owner in value.owners:
            owner.uses -= 1
        self._recent.extend(value.owners)

    def tidy(self) -> None:
        """Give back the memory that nobody holds."""
        for owner in dict.fromkeys(self._recent):
            if not owner.uses:
                self._free.setdefault(owner.size, []).append(owner.offset)
        self._recent.clear()

    @property
    def scratch(self) -> int:
        """Bytes that the caller must bring: 0 where the stack will do."""
        return self.arena if self.arena > costs.SMALL_STACK else 0

    # -- forms of values -----------------------------------------------------------------------------------------------------

    def constant_value(self, array: np.ndarray[Any, Any], dtype: str, shape: Shape | None = None) -> Value:
        """A constant."""
        return Value(array.shape if shape is None else shape, dtype, constant=array)

    def of_lane(self, lane: Lane, shape: Shape, dtype: str, width: int | None = None) -> Value:
        """A value that is in a register."""
        return Value(shape, dtype, lane=lane, width=self.width if width is None else width)

    def align_rank(self, value: Value, rank: int) -> Value:
        """`value` with dims of size 1 behind the leading ones, so that it has `rank` dims."""
        missing = rank - len(value.shape)
        if not missing:
            return value
        lead = self.lead
        shape = value.shape[:lead] + (1,) * missing + value.shape[lead:]
        steps = value.steps[:lead] + (0,) * missing + value.steps[lead:] if value.place else ()
        constant = value.constant
        if constant is not None and constant.size != 1:
            constant = constant.reshape(shape)
        return replace(value, shape=shape, steps=steps, constant=constant)

    def lane_of(self, value: Value, shape: Shape | None = None) -> Lane:
        """All elements of `value`, broadcast to `shape` (of its rank), in one register of the present width."""
        shape = value.shape if shape is None else shape
        n = math.prod(shape)
        self.at(n)
        if value.constant is not None:
            if value.constant.size == 1:
                return self.constant(value.constant, value.dtype)
            return self._constant_lane(np.broadcast_to(value.constant, shape), value.dtype)
        if value.lane is not None:
            if value.width == n and (n == 1 or value.shape == shape):
                return value.lane
            if value.width == 1:
                return self.shuffle_lanes(value.lane, 1, [0] * n)
            places = np.broadcast_to(np.arange(value.width).reshape(value.shape), shape)
            return self.shuffle_lanes(value.lane, value.width, places.ravel().tolist())
        steps = tuple(0 if m == 1 else s for m, s in zip(value.shape, value.steps, strict=True))
        return self.read(value.place, shape, steps, value.dtype)

    def _constant_lane(self, array: np.ndarray[Any, Any], dtype: str) -> Lane:
        kind = TYPES[dtype]
        return Lane("<" + ", ".join(f"{kind} {scalar_text(x.item(), kind)}" for x in array.ravel()) + ">", dtype)

    def settle_value(self, value: Value) -> Value:
        """`value` in a register if it is small and in memory."""
        if value.place and value.size <= costs.REGISTER_ELEMENTS:
            return self.of_lane(self.lane_of(value), value.shape, value.dtype, value.size)
        return value

    def memory(self, shape: Shape, dtype: str, wanted: Value | None) -> Value:
        """Where a value that is written there goes: memory that is wanted, of that shape, or a buffer. Small ones go on to a register."""
        if wanted is None or wanted.shape != shape or math.prod(shape) <= costs.REGISTER_ELEMENTS:
            return self.buffer(shape, dtype)
        return wanted

    def in_memory(self, value: Value) -> Value:
        """`value` in memory."""
        if value.place:
            return value
        if value.constant is not None and value.constant.size != 1:
            data = np.ascontiguousarray(value.constant)
            name = f"@known{len(self.declared)}"
            text = "".join(f"\\{b:02X}" for b in data.tobytes())
            self.declare(name, f'{name} = private unnamed_addr constant [{data.nbytes} x i8] c"{text}", align 64')
            return Value(value.shape, value.dtype, place=name, steps=dense_steps(value.shape, value.itemsize))
        one = value if value.size <= costs.REGISTER_ELEMENTS else replace(value, shape=(1,) * len(value.shape))
        into = self.buffer(one.shape, value.dtype)
        self.write(self.lane_of(one), into.place, into.shape, into.steps)
        return into if one is value else replace(into, shape=value.shape, steps=(0,) * len(value.shape))

    # -- ops -----------------------------------------------------------------------------------------------------------------

    def emit(self, op: Op, operands: Sequence[Lane], params: Mapping[str, Any], dtype: str) -> Lane:
        """An elementwise op of registers of the present width. A costly one that is met often becomes a function, unless LLVM makes it
        cheap because it sees an operand: to divide by a known integer is to multiply.
        """
        emit = op.emit
        assert emit is not None
        if emit.cost < costs.SMALL_OUTLINED or self.met.get(op, 0) < 3 or any(map(self.is_whole_number, operands)):
            return super().emit(op, operands, params, dtype)
        name = self._function(op, operands, params, dtype)
        given = ", ".join(f"{self.vector(x.type)} {x.ref}" for x in operands)
        return self.round_result(emit, self.let(f"call {self.vector(TYPES[dtype])} @{name}({given})", dtype), dtype)

    def _function(self, op: Any, lanes: Sequence[Lane], params: Any, dtype: str) -> str:
        key = op, self.width, dtype, *(x.dtype for x in lanes), *exact_items(params)
        name = self._functions.get(key)
        if name is None:
            name = self._functions[key] = f"op{len(self._functions)}.{op.name}"
            w = Lanes(self.width, self.wide)
            w.declared = self.declared
            w.start("entry")
            out = op.emit.write(w, *[Lane(f"%x{i}", x.dtype) for i, x in enumerate(lanes)], **params)
            takes = ", ".join(f"{self.vector(x.type)} %x{i}" for i, x in enumerate(lanes))
            result = self.vector(TYPES[dtype])
            w.line(f"ret {result} {out.ref}")
            self.declare(name, f"define internal {result} @{name}({takes}) noinline #0 {{\n{w.body()}\n}}")
        return name
