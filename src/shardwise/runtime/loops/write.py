"""`Writer`: vectors in memory, beside the instructions of `Lanes` and the loops of `Flow`.

Fused loops, small programs, products and the ops' own kernels read and write vectors with it, row by row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shardwise.base.dtypes import physical
from shardwise.base.shapes import Shape
from shardwise.ir import Emit, Op, ShapedArray
from shardwise.runtime import costs
from shardwise.runtime.machine import STORED, Lane, Lanes, gathers_pay, is_known, itemsize

Steps = Sequence[int | str]  # bytes between neighbours along each dim: a number, or a register

SQUARED = {4: "float32", 8: "float64"}  # by their bytes, as what elements of a square are transposed
STREAMED = "nontemporal"  # stores that bypass the cache; the address is a multiple of the vector's bytes


def dtype_name(aval: ShapedArray) -> str:
    """The name of the dtype whose elements are in memory: PRNG keys are uint64."""
    return _dtype_name(aval.dtype)


@functools.cache
def _dtype_name(dtype: Any) -> str:
    return physical(dtype).name  # NumPy puts it together each time


class Writer(Lanes):
    """Writes one function, `width` lanes per vector at present."""

    # -- ops -------------------------------------------------------------------------------------------------------------

    def emit(self, op: Op, operands: Sequence[Lane], params: Mapping[str, Any], dtype: str) -> Lane:
        """An elementwise op. Narrow floats are computed as float32 and rounded after each op, as NumPy does."""
        emit = op.emit
        assert emit is not None
        if emit.moves:  # the operand lies along the same loops: the element stays
            return Lane(operands[0].ref, dtype)
        return self.round_result(emit, emit.write(self, *operands, **params), dtype)

    def round_result(self, emit: Emit, x: Lane, dtype: str) -> Lane:
        """The value that an op has computed, as one of its result's dtype."""
        out = Lane(x.ref, dtype)
        return out if emit.exact else self.round_narrow(out)

    # -- addresses -------------------------------------------------------------------------------------------------------

    def element(self, place: str, index: int | str, dtype: str) -> str:
        """The address of element `index` of a dense row."""
        return self.value(f"getelementptr {STORED[dtype]}, ptr {place}, i64 {index}", "p")

    def prefetch(self, place: str, writes: bool, locality: int = 3) -> None:
        """Ask for the cache line at an address."""
        self.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 {int(writes)}, i32 {locality}, i32 1)")

    # -- loops ----------------------------------------------------------------------------------------------------------

    def accumulate(
        self,
        begin: int | str,
        end: int | str,
        body: Callable[[str, list[Lane]], Sequence[Lane]],
        start: Sequence[Lane],
        step: int | str = 1,
        *,
        occurs: bool = True,
    ) -> list[Lane]:
        """`loop` with vectors of the present width for values."""

        def lanes(refs: Sequence[str]) -> list[Lane]:
            return [Lane(ref, x.dtype) for ref, x in zip(refs, start, strict=True)]

        def round_(i: str, refs: list[str]) -> list[str]:
            return [x.ref for x in body(i, lanes(refs))]

        carried = [(self.vector(x.type), x.ref) for x in start]
        return lanes(self.loop(begin, end, round_, carried, step, occurs=occurs))

    # -- rows of elements ------------------------------------------------------------------------------------------------

    def nest(
        self,
        extents: Sequence[int | str],
        places: Sequence[str],
        steps: Sequence[Steps],
        inner: Callable[[list[str]], object],
    ) -> None:
        """Loops of these extents around `inner(addresses)`; each place moves by its own steps, in bytes, per round of each loop."""
        if not extents:
            inner(list(places))
            return

        def body(i: str, _: list[str]) -> None:
            here = [self.advance_address(p, i, own[0]) for p, own in zip(places, steps, strict=True)]
            self.nest(extents[1:], here, [own[1:] for own in steps], inner)

        self.loop(0, extents[0], body)

    def row(self, count: int | str, body: Callable[[str], object], step: int = 0) -> None:
        """`body(first element)` for the vectors of a row of at least `step` elements, else `width`; the last one ends with the row.

        Some elements are computed twice where the width does not divide the row.
        """

        def vector(i: str, _: list[str]) -> None:
            body(self.last_fits(i, count, step))

        step = step or self.width
        self.loop(0, count, vector, step=step)

    def last_fits(self, first: str, count: int | str, width: int = 0) -> str:
        """Where a vector at element `first` begins so that it ends with the row of `count` elements at the latest."""
        width = width or self.width
        if is_known(str(count)):
            assert int(count) >= width, f"a vector of {width} elements would begin before its row of {count}"
            if int(count) % width == 0:
                return first
        return self.least(first, self.integer("sub", count, width))

    def parts(self, count: int | str, body: Callable[[str, str | None], object]) -> None:
        """`body(first element, mask)` for the vectors of a row of any length; the last, incomplete one has a mask."""

        def vector(i: str, _: list[str]) -> None:
            body(i, None)

        if self.width == 1:
            self.loop(0, count, vector, occurs=False)
            return
        rest = self.integer("urem", count, self.width)
        whole = self.integer("sub", count, rest)
        self.loop(0, whole, vector, step=self.width, occurs=False)

        def last() -> None:
            body(whole, self.below(rest))

        self.branch(self.test("ne", rest, 0), last)

    def below(self, count: str) -> str:
        """The mask of the first `count` lanes."""
        few = self.splat(self.value(f"trunc i64 {count} to i32"), "int32")
        return self.compare("lt", self.sequence("int32"), few).ref

    # -- memory ----------------------------------------------------------------------------------------------------------

    def read(
        self, place: str, shape: Shape, steps: Steps, dtype: str, mask: str | None = None, other: Lane | None = None
    ) -> Lane:
        """The elements at `place` in one register of the present width, ``prod(shape)`` lanes.

        With a `mask`, which dense elements may have, `other` (or 0) is in the lanes that it leaves out.
        """
        stored, n = STORED[dtype], math.prod(shape)
        if _is_packed(shape, steps, itemsize(dtype)):
            text = f"load {self.vector(stored)}, ptr {place}, align 1"
            return self.load_lanes(
                self.value(text if mask is None else self._masked_load(place, dtype, mask, other), "raw"), dtype
            )
        if all(m == 1 or s == 0 for m, s in zip(shape, steps, strict=True)):
            return self.scalar(place, dtype)
        assert mask is None
        if len(shape) == 1:
            apart = spacing(steps[0], itemsize(dtype), n)
            raw = self._load_spaced(place, apart, dtype) if apart else self.gather_strided(place, str(steps[0]), stored)
            return self.load_lanes(raw, dtype)
        if len(shape) == 2 and 0 in steps and 1 not in shape:  # rows that are equal, or rows of equal elements
            d = list(steps).index(0)
            part = self.at(shape[1 - d]).read(place, (shape[1 - d],), (steps[1 - d],), dtype)
            return self.shuffle_lanes(part, shape[1 - d], [i // shape[1] if d else i % shape[1] for i in range(n)])
        # Dense rows, a power of two of them.
        if len(shape) == 2 and steps[1] == itemsize(dtype) and shape[0].bit_count() == 1:
            rows = [self.advance_address(place, i, steps[0]) for i in range(shape[0])]
            self.at(shape[1])
            both = self.side_by_side([self.read(row, shape[1:], steps[1:], dtype) for row in rows])
            self.at(n)
            return both
        raw, read = "poison", dict[int, str]()
        for lane, offset in enumerate(_offsets(shape, steps)):
            if offset not in read:
                at = self.advance_address(place, 1, offset)
                read[offset] = self.value(f"load {stored}, ptr {at}, align 1", "one")
            raw = self.value(f"insertelement <{n} x {stored}> {raw}, {stored} {read[offset]}, i64 {lane}", "raw")
        return self.load_lanes(raw, dtype)

    def write(self, x: Lane, place: str, shape: Shape, steps: Steps, mask: str | None = None, hint: str = "") -> None:
        """Store a register of the present width; with a `mask`, only its lanes; `hint` may be STREAMED."""
        stored, raw = STORED[x.dtype], self.storable(x)
        if _is_packed(shape, steps, itemsize(x.dtype)):
            if mask is not None:
                v, name = self.vector(stored), f"llvm.masked.store.{self._suffix(stored)}"
                self.declare(name, f"declare void @{name}({v}, ptr, i32, {self.vector('i1')})")
                self.line(f"call void @{name}({v} {raw}, ptr {place}, i32 1, {self.vector('i1')} {mask})")
                return
            how = f"align {self.bytes_of(stored)}, !nontemporal !1" if hint == STREAMED else "align 1"
            self.line(f"store {self.vector(stored)} {raw}, ptr {place}, {how}")
            return
        assert mask is None
        if all(m == 1 or s == 0 for m, s in zip(shape, steps, strict=True)):
            one = self.value(f"extractelement {self.vector(stored)} {raw}, i64 0", "one")
            self.line(f"store {stored} {one}, ptr {place}, align 1")
        elif len(shape) == 1:
            self.scatter_strided(raw, place, str(steps[0]), stored)
        else:
            for lane, offset in enumerate(_offsets(shape, steps)):
                one = self.value(f"extractelement {self.vector(stored)} {raw}, i64 {lane}", "one")
                self.line(f"store {stored} {one}, ptr {self.advance_address(place, 1, offset)}, align 1")

    def load(self, place: str, dtype: str, mask: str | None = None, other: Lane | None = None) -> Lane:
        """The vector at `place`; `mask` and `other` as in `read`."""
        return self.read(place, (self.width,), (itemsize(dtype),), dtype, mask, other)

    def store(self, x: Lane, place: str, mask: str | None = None) -> None:
        """Write a vector; with a `mask`, only its lanes."""
        self.write(x, place, (self.width,), (itemsize(x.dtype),), mask)

    def turn(self, source: str, step: int | str, into: str, between: int | str, dtype: str) -> None:
        """Copy a square of as many elements as vectors have lanes: its rows, dense and `step` bytes apart, become columns of dense rows
        that are `between` bytes apart. The square is transposed in registers, for elements of `SQUARED` sizes.
        """
        rows = [self.load(self.advance_address(source, k, step), dtype) for k in range(self.width)]
        columns = self.transpose_rows([self.bitcast(row, SQUARED[itemsize(dtype)]) for row in rows])
        for k, column in enumerate(columns):
            self.store(self.bitcast(column, dtype), self.advance_address(into, k, between))

    def gather(self, base: str, indices: Lane, dtype: str, mask: Lane | None = None, other: Lane | None = None) -> Lane:
        """The elements of a dense row that a vector of signed integers names; `other` in the lanes that a `mask` leaves out."""
        stored = STORED[dtype]
        if not gathers_pay():
            return self._read_apart(base, indices, dtype, mask, other)
        v, pointers, ones = self.vector(stored), self.vector("ptr"), self.vector("i1")
        name = f"llvm.masked.gather.{self._suffix(stored)[:-3]}.v{self.width}p0"
        self.declare(name, f"declare {v} @{name}({pointers}, i32, {ones}, {v})")
        places = self.value(f"getelementptr {stored}, ptr {base}, {self.vector(indices.type)} {indices.ref}")
        chosen = "<" + ", ".join(["i1 true"] * self.width) + ">" if mask is None else mask.ref
        kept = "poison" if other is None else self.storable(other)
        return self.load_lanes(
            self.value(f"call {v} @{name}({pointers} {places}, i32 1, {ones} {chosen}, {v} {kept})"), dtype
        )

    def gather_rows(self, base: str, indices: Lane, row: int, step: int, dtype: str) -> Lane:
        """Rows of `row` elements that are `step` bytes apart: 0, or their size. Each begins where the index in its lanes says."""
        n, stored = self.width, STORED[dtype]
        first = self.shuffle_lanes(indices, n, range(0, n, row))
        if step == 0:
            return self.shuffle_lanes(self.gather(base, first, dtype), n // row, [lane // row for lane in range(n)])
        full = 1 << (row - 1).bit_length()
        mask = None if full == row else "<" + ", ".join(f"i1 {str(lane < row).lower()}" for lane in range(full)) + ">"
        rows, raw = list[Lane](), "poison"
        for k, at in enumerate(self._apart(first)):
            place = self.element(base, at, dtype)
            if mask is None or itemsize(dtype) in SQUARED:
                rows.append(self.at(full).load(place, dtype, mask))
                self.at(n // row)
                continue
            for lane in range(row):  # narrow elements are not masked everywhere
                one = self.value(f"load {stored}, ptr {self.element(place, lane, dtype)}, align 1", "one")
                raw = self.value(f"insertelement <{n} x {stored}> {raw}, {stored} {one}, i64 {k * row + lane}", "raw")
        if not rows:
            return self.at(n).load_lanes(raw, dtype)
        side = self.at(full).side_by_side(rows)
        return self.shuffle_lanes(side, n // row * full, [lane // row * full + lane % row for lane in range(n)])

    def _read_apart(self, base: str, indices: Lane, dtype: str, mask: Lane | None, other: Lane | None) -> Lane:
        """The elements that `gather` reads, lane by lane. Lanes that are left out read the first element."""
        if mask is not None:
            indices = self.select(mask, indices, self.like(0, indices))
        stored, raw = STORED[dtype], "poison"
        for lane, at in enumerate(self._apart(indices)):
            one = self.value(f"load {stored}, ptr {self.element(base, at, dtype)}, align 1", "one")
            raw = self.value(f"insertelement {self.vector(stored)} {raw}, {stored} {one}, i64 {lane}", "raw")
        found = self.load_lanes(raw, dtype)
        return found if mask is None or other is None else self.select(mask, found, other)

    def _apart(self, x: Lane) -> Iterator[str]:
        """Each lane of integers as a scalar register of 64 bits, written when it is asked for: all at once take more registers than there
        are. Of narrow lanes as many leave the vector at a time as such a register holds.
        """
        per = 64 // x.bits
        if self.width % per:
            for k in range(self.width):
                one = self.value(f"extractelement {self.vector(x.type)} {x.ref}, i64 {k}")
                yield self.value(f"{'sext' if x.signed else 'zext'} {x.type} {one} to i64")
            return
        words = self.value(f"bitcast {self.vector(x.type)} {x.ref} to <{self.width // per} x i64>")
        for k in range(self.width // per):
            word = self.value(f"extractelement <{self.width // per} x i64> {words}, i64 {k}")
            for i in range(per - 1):
                low = self.value(f"lshr i64 {word}, {i * x.bits}") if i else word
                yield self.value(
                    f"{'sext' if x.signed else 'zext'} {x.type} {self.value(f'trunc i64 {low} to {x.type}')} to i64"
                )
            yield self.value(f"{'ashr' if x.signed else 'lshr'} i64 {word}, {64 - x.bits}") if per > 1 else word

    def scalar(self, place: str, dtype: str) -> Lane:
        """One element in all lanes."""
        return self.load_lanes(self.value(f"load {STORED[dtype]}, ptr {place}, align 1", "one"), dtype, scalar=True)

    def _load_spaced(self, place: str, apart: int, dtype: str) -> str:
        """Every so many elements from `place` on, out of dense vectors of which the last one ends with the last element that is wanted; of
        -1 all elements, backwards.
        """
        stored, n = STORED[dtype], self.width
        kind, wanted = self.vector(stored), [i * apart for i in range(n)]
        begins = [*range(0, n * (apart - 1), n), max(wanted) + 1 - n]
        raw = "poison"
        for k, begin in enumerate(begins):
            at = self.advance_address(place, 1, begin * itemsize(dtype))
            part = self.value(f"load {kind}, ptr {at}, align 1", "raw")
            part = self.value(f"freeze {kind} {part}", "raw")  # for the reason that `shuffle_lanes` gives
            last = k + 1 == len(begins)
            mine = [e - begin if (e >= n * k or apart < 0) and (last or e < n * (k + 1)) else -1 for e in wanted]
            mask = ", ".join(f"i32 {i if e < 0 else n + e}" for i, e in enumerate(mine))
            raw = self.value(f"shufflevector {kind} {raw}, {kind} {part}, <{n} x i32> <{mask}>", "raw")
        return raw

    def _masked_load(self, place: str, dtype: str, mask: str, other: Lane | None) -> str:
        stored = STORED[dtype]
        v, name = self.vector(stored), f"llvm.masked.load.{self._suffix(stored)}"
        kept = "zeroinitializer" if other is None else self.storable(other)
        self.declare(name, f"declare {v} @{name}(ptr, i32, {self.vector('i1')}, {v})")
        return f"call {v} @{name}(ptr {place}, i32 1, {self.vector('i1')} {mask}, {v} {kept})"

    def _suffix(self, stored: str) -> str:
        """How the names of intrinsics on vectors in memory end."""
        kind = {"half": "f16", "float": "f32", "double": "f64"}.get(stored, stored)
        return f"v{self.width}{kind}.p0"

    def shuffle_lanes(self, lane: Lane, width: int, places: Sequence[int]) -> Lane:
        """Lanes `places` of a register of `width` lanes, in one of ``len(places)``."""
        if width == len(places) and all(i == p for i, p in enumerate(places)):
            return lane
        self.at(len(places))
        kind, ref = f"<{width} x {lane.type}>", lane.ref
        # LLVM ends the process where it joins some shuffles, or the load of the register, with this one: 1 and 3 lanes, repeated 4
        # times; in drafts each of 8 loaded lanes, used one by one.
        if width > 1:
            ref = self.value(f"freeze {kind} {ref}", "v")
        mask = ", ".join(f"i32 {p}" for p in places)
        return self.let(f"shufflevector {kind} {ref}, {kind} poison, <{len(places)} x i32> <{mask}>", lane.dtype)


def spacing(step: int | str, size: int, width: int) -> int:
    """Every how many elements of `size` bytes a vector meets one, or -1 where it meets all of them backwards; 0 where that are too many, or
    unknown: they are read one by one.
    """
    if not isinstance(step, int) or step % size:
        return 0
    apart = step // size
    return apart if apart == -1 or 2 <= apart <= min(costs.SPACED_MOST, width // 2) else 0


def _is_packed(shape: Shape, steps: Steps, size: int) -> bool:
    """Whether elements follow each other in memory."""
    for n, step in zip(reversed(shape), reversed(steps), strict=True):
        if n != 1 and step != size:
            return False
        size *= n
    return True


def _offsets(shape: Shape, steps: Steps) -> list[int]:
    out = [0]
    for n, step in zip(shape, steps, strict=True):
        if n != 1 and not isinstance(step, int):
            raise TypeError(f"elements of {len(shape)} dims {shape} lie at known distances only, not {step}")
        out = [o + i * int(step) for o in out for i in range(n)]
    return out
