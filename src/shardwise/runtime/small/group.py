"""Elementwise ops and reductions over values in memory as one `Nest`: a fused group whose extents and steps are numbers.

Comes in: operands as `Value`s of one shape, up to broadcasting, and the places of results. Goes out: loops in a `Code`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardwise.ir import Fold
from shardwise.runtime.loops import (
    Access,
    Held,
    MemoryLoops,
    Met,
    Nest,
    Reduction,
    Values,
    finish_reduction,
    lanes_of,
    merge_lanes,
    merge_loops,
    write_nest,
)
from shardwise.runtime.machine import Lane
from shardwise.runtime.small.code import Code, Shape, Value

Write = Callable[[list[Lane]], Sequence[Lane]]


@dataclass(frozen=True, slots=True)
class Gathered:
    """A reduction of a value that a group computes, of dtype `source`, into memory whose steps along reduced dims are 0."""

    fold: Fold
    source: str
    into: Value


@dataclass(frozen=True, slots=True)
class _Stored:
    """A value in memory: where it begins, and the bytes between neighbours along each loop."""

    place: str
    steps: Shape
    dtype: str


def each(code: Code, shape: Shape, operands: Sequence[Value], write: Write, into: Sequence[Value]) -> None:
    """`write` of the operands, broadcast to `shape`, element by element into `into`, which shares no memory with them."""
    _Group(code, shape, operands, write, into).write_all()


def gather_each(
    code: Code,
    shape: Shape,
    axes: Sequence[int],
    operands: Sequence[Value],
    write: Write,
    into: Sequence[Value],
    gathered: Sequence[Gathered],
) -> None:
    """As `each`, and over `axes` the reductions of the values that `write` gives after the results."""
    _Group(code, shape, operands, write, into, gathered).write_reduced(axes)


class _Group:
    """Writes one group."""

    def __init__(
        self,
        code: Code,
        shape: Shape,
        operands: Sequence[Value],
        write: Write,
        into: Sequence[Value],
        gathered: Sequence[Gathered] = (),
    ) -> None:
        self.code, self.shape, self.write, self.gathered = code, shape, write, gathered
        aligned = [code.aligned(v, len(shape)) for v in operands]
        self.operands = [v if v.place or v.even else code.in_memory(v) for v in aligned]
        self.into = into
        self.values = [v for v in (*self.operands, *into) if v.place]
        self.dtypes = [*(v.dtype for v in (*self.operands, *into)), *(g.source for g in gathered)]

    def write_all(self) -> None:
        """The loops of a group without reductions."""
        code = self.code
        steps = [_own_steps(v) for v in self.values]
        extents, found = merge_loops(self.shape, steps)
        stored = [_Stored(v.place, tuple(own), v.dtype) for v, own in zip(self.values, found, strict=True)]
        tile = _tile(extents, lanes_of(*self.dtypes))
        over = len(extents) - len(tile)
        known = self._known(math.prod(tile))

        def innermost(places: list[str]) -> None:
            accesses = [
                Access(place, s.dtype, (), s.steps[over], s.steps[over:])
                for place, s in zip(places, stored, strict=True)
            ]
            write_nest(code, self._nest((), tile, True, accesses, known), ("0", str(extents[over])))

        code.nest(extents[:over], [s.place for s in stored], [s.steps[:over] for s in stored], innermost)

    def write_reduced(self, axes: Sequence[int]) -> None:
        """The loops of a group with reductions: vectors run along the loop along which most values lie side by side."""
        code, rank = self.code, len(self.shape)
        values = [*self.values, *(g.into for g in self.gathered)]
        reduced = tuple(d in axes for d in range(rank))
        met = Met(self.shape, reduced, tuple(range(rank)), (), (), tuple(_own_steps(v) for v in values), ())
        loops = MemoryLoops.of(met)
        stored = [_Stored(v.place, tuple(own), v.dtype) for v, own in zip(values, loops.strides, strict=True)]
        lane = _lane_loop(loops, [v.itemsize for v in self.values])
        extent = loops.extents[lane]
        width, along = min(extent, lanes_of(*self.dtypes)), loops.reduced[lane]
        inner, around, kept = loops.roles(lane)
        count = len(self.values)

        def unit(places: list[str]) -> None:
            known = self._known(width)
            accesses = [
                Access(place, s.dtype, [s.steps[d] for d in around], s.steps[inner], (s.steps[lane],))
                for place, s in zip(places[:count], stored, strict=False)
            ]
            nest = self._nest([loops.extents[d] for d in around], (width,), along, accesses, known)
            for g, held, place, s in zip(
                self.gathered,
                write_nest(code, nest, ("0", str(loops.extents[inner]))),
                places[count:],
                stored[count:],
                strict=True,
            ):
                self._close(g, held, width, along, place, s.steps[lane])

        def strips(places: list[str]) -> None:
            if along:
                unit(places)
                return

            def strip(at: str) -> None:
                unit([code.moved(place, at, s.steps[lane]) for place, s in zip(places, stored, strict=True)])

            code.row(extent, strip, width)

        code.nest(
            [loops.extents[d] for d in kept],
            [s.place for s in stored],
            [[s.steps[d] for d in kept] for s in stored],
            strips,
        )

    def _close(self, g: Gathered, held: Held, width: int, along: bool, place: str, step: int) -> None:
        """Write the result of a reduction."""
        code = self.code.at(width)
        if along:
            held, width = merge_lanes(code, g.fold, held), 1
        code.write(finish_reduction(code.at(width), g.fold, held, g.into.dtype), place, (width,), (step,))

    def _known(self, width: int) -> Values:
        """The operands that are one element."""
        code = self.code
        return {i: code.lane_of(replace(v, shape=(1,)), (width,)) for i, v in enumerate(self.operands) if not v.place}

    def _nest(self, around: Sequence[int], tile: Shape, along: bool, accesses: Sequence[Access], known: Values) -> Nest:
        code, count = self.code, len(self.operands)
        keys = [*(i for i, v in enumerate(self.operands) if v.place), *range(count, count + len(self.into))]
        by_key = dict(zip(keys, accesses, strict=True))
        sources = range(count + len(self.into), count + len(self.into) + len(self.gathered))

        def leaf(values: Values, element: str, number: str) -> None:
            code.at(math.prod(tile))
            for key, lane in enumerate(self.write([values[i] for i in range(count)]), count):
                values[key] = lane

        return Nest(
            around=around,
            tile=tile,
            along=along,
            reads={k: access for k, access in by_key.items() if k < count},
            writes={k: access for k, access in by_key.items() if k >= count},
            leaf=leaf,
            known=known,
            reductions=[Reduction(g.fold, k, g.source) for k, g in zip(sources, self.gathered, strict=True)],
        )


def _own_steps(value: Value) -> Shape:
    return tuple(0 if n == 1 else s for n, s in zip(value.shape, value.steps, strict=True))


def _tile(extents: Sequence[int], lanes: int) -> Shape:
    """What a register takes of the innermost loops: a part of a row, or several short rows."""
    n = extents[-1]
    if len(extents) > 1 and 2 * n <= lanes:
        return min(extents[-2], lanes // n), n
    return (min(n, lanes),)


def _lane_loop(loops: MemoryLoops, sizes: Sequence[int]) -> int:
    """The loop along which vectors run: the longest of those along which the fewest values lie apart."""

    def apart(d: int) -> int:
        return sum(own[d] not in (0, size) for own, size in zip(loops.strides, sizes, strict=False))

    return min(range(len(loops.extents)), key=lambda d: (apart(d), -loops.extents[d]))


def along_all(value: Value, shape: Shape, axes: Shape) -> Value:
    """The memory of a reduction's result, along which the loops over its operand do not move in reduced dims."""
    steps = iter(value.steps)
    return replace(value, shape=shape, steps=tuple(0 if d in axes else next(steps) for d in range(len(shape))))
