"""Elementwise ops and reductions over values in memory: their loops, whose extents and steps are numbers, around a nest of one pass.

Comes in: operands as `Value`s of one shape, up to broadcasting, and the memory of results. Goes out: loops in a `Code`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.runtime import costs
from shardwise.runtime.loops import (
    SQUARED,
    Key,
    Leaf,
    MemoryLoops,
    Met,
    Pass,
    Reduction,
    Roles,
    Stored,
    Unit,
    Values,
    build_nest,
    finish_reduction,
    lanes_of,
    write_nest,
)
from shardwise.runtime.machine import Lane, llvm
from shardwise.runtime.small.code import Code, Value

Write = Callable[[list[Lane]], Sequence[Lane]]

_LINE = 64  # bytes of a line of the cache
_NEAR = 1 << 14  # bytes of a value that stays in the first-level cache beside others


@dataclass(frozen=True, slots=True)
class GroupReduction:
    """A reduction of a value of a group, and the memory of its result, as `along_all` has it."""

    reduction: Reduction
    into: Value


@dataclass(frozen=True, slots=True)
class Group:
    """Equations over values in memory.

    Attributes:
        shape: the extents of the loops, to which operands broadcast.
        operands: by key.
        leaf: adds to the operands' values those that are computed of them.
        results: by the keys of computed values the memory where they go; it is no operand's.
        axes: the loops that are reduced.
        gathered: the reductions.
        registers: of a vector, where rows have as many elements; of values that wait for each other more than one are computed at a time.
    """

    shape: Shape
    operands: Mapping[Key, Value]
    leaf: Leaf
    results: Mapping[Key, Value]
    axes: Sequence[int] = ()
    gathered: Sequence[GroupReduction] = ()
    registers: int = 1


def each(code: Code, shape: Shape, operands: Sequence[Value], write: Write, into: Sequence[Value]) -> None:
    """`write` of the operands, broadcast to `shape`, element by element into `into`, which shares no memory with them."""
    first = len(operands)

    def leaf(values: Values) -> None:
        values.update(enumerate(write([values[i] for i in range(first)]), first))

    write_group(code, Group(shape, dict(enumerate(operands)), leaf, dict(enumerate(into, first))))


def copy(code: Code, value: Value, into: Value) -> None:
    """Copy a value, broadcast to the shape of `into`, there; they share no memory."""
    value = _readable(code, value, len(into.shape))
    if not (value.place and into.size >= costs.SMALL_TURNED and _copy_turned(code, value, into)):
        each(code, into.shape, [value], lambda lanes: lanes, [into])


def _copy_turned(code: Code, value: Value, into: Value) -> bool:
    """Copy a value whose elements lie side by side along another loop than those of `into`, by squares of vectors that are transposed in
    registers. False, and nothing done, where they do not, or no square fits.
    """
    loops = _loops(Group(into.shape, {}, lambda _: None, {}), [value, into])
    (here, there), extents, size = loops.strides, loops.extents, llvm.target().bytes // into.itemsize
    if into.itemsize not in SQUARED or into.itemsize not in here or into.itemsize not in there:
        return False
    down, along = here.index(into.itemsize), there.index(into.itemsize)
    if down == along or min(extents[down], extents[along]) < size:
        return False

    def advance_all(places: Sequence[str], at: str, d: int) -> list[str]:
        return [code.advance_address(place, at, own[d]) for place, own in zip(places, loops.strides, strict=True)]

    def square(places: Sequence[str]) -> None:
        code.at(size).turn(places[0], here[along], places[1], there[down], into.dtype)

    def column(places: Sequence[str]) -> None:
        code.row(extents[along], lambda i: square(advance_all(places, i, along)), size)

    def rows(places: Sequence[str]) -> None:
        code.row(extents[down], lambda i: column(advance_all(places, i, down)), size)

    others = [d for d in range(len(extents)) if d not in (down, along)]
    steps = [[own[d] for d in others] for own in loops.strides]
    code.nest([extents[d] for d in others], [value.place, into.place], steps, rows)
    return True


def write_group(code: Code, group: Group) -> None:
    """The loops of a group."""
    operands = {key: _readable(code, value, len(group.shape)) for key, value in group.operands.items()}
    reads = {key: value for key, value in operands.items() if value.place}
    streamed = [*reads.values(), *group.results.values()]
    memory = [*streamed, *(g.into for g in group.gathered)]
    dtypes = [value.dtype for value in (*operands.values(), *group.results.values())]
    lanes = lanes_of(*dtypes, *(g.reduction.dtype for g in group.gathered))
    loops = _loops(group, memory)
    unit = _unit(loops, lanes, [value.itemsize for value in streamed], bool(group.gathered))
    roles, row = unit.roles, loops.extents[unit.roles.lane]
    line = max(lanes, _LINE // min(value.itemsize for value in streamed)) if streamed else 0  # a vector at least
    in_lines = not group.gathered and len(unit.tile) == 1 and row >= 2 * line and _is_crossed(loops, roles, streamed)
    if unit.tile == (lanes,) and not (group.gathered or in_lines):
        unit = replace(unit, tile=(lanes << min(row // lanes, group.registers).bit_length() - 1,))
    width = math.prod(unit.tile)
    known = {
        key: code.lane_of(replace(value, shape=(1,)), (width,)) for key, value in operands.items() if key not in reads
    }
    stored = [Stored(value.place, value.dtype, own) for value, own in zip(memory, loops.strides, strict=True)]

    def write_unit(places: list[str], count: int) -> None:
        here = [replace(one, place=place) for one, place in zip(stored, places, strict=True)]
        computed = Pass(
            reads=dict(zip(reads, here, strict=False)),
            writes={key: (key, one) for key, one in zip(group.results, here[len(reads) :], strict=False)},
            leaf=group.leaf,
            known=known,
            reductions=[g.reduction for g in group.gathered],
        )
        found = write_nest(code, build_nest(unit, computed), ("0", str(count)))
        for g, held, into in zip(group.gathered, found, here[len(streamed) :], strict=True):
            result = finish_reduction(code.at(width), g.reduction.fold, held, into.dtype, across=roles.along)
            code.write(result, into.place, (1 if roles.along else width,), (into.steps[roles.lane],))

    def advance(places: list[str], at: str) -> list[str]:
        return [
            code.advance_address(place, at, one.steps[roles.lane]) for place, one in zip(places, stored, strict=True)
        ]

    def write_strips(places: list[str], count: int) -> None:
        if roles.along:
            write_unit(places, count)
        else:
            code.row(count, lambda at: write_unit(advance(places, at), loops.extents[roles.inner]), width)

    begin = [one.place for one in stored]
    outer = [[own[d] for d in roles.kept] for own in (loops.extents, *loops.strides)]
    if not in_lines:
        code.nest(outer[0], begin, outer[1:], lambda places: write_strips(places, row))
    else:  # as many columns as a line of the cache holds, all the way down
        code.row(
            row,
            lambda at: code.nest(outer[0], advance(begin, at), outer[1:], lambda places: write_strips(places, line)),
            line,
        )


def _is_crossed(loops: MemoryLoops, roles: Roles, values: Sequence[Value]) -> bool:
    """Whether a value that the first-level cache does not hold lies across the others: side by side along a loop outside of that of the
    vectors, which would read a line of the cache per element, and find it gone when the loop outside comes to the next one.
    """
    return any(
        own[roles.lane] > _LINE
        and value.size * value.itemsize > _NEAR
        and value.itemsize in [own[d] for d in roles.kept]
        for value, own in zip(values, loops.strides, strict=False)
    )


def _readable(code: Code, value: Value, rank: int) -> Value:
    """An operand with `rank` dims in memory, or the same everywhere."""
    value = code.align_rank(value, rank)
    return value if value.place or value.even else code.in_memory(value)


def _loops(group: Group, memory: Sequence[Value]) -> MemoryLoops:
    """The loops of a group over these values, in the order of dims."""
    order = tuple(range(len(group.shape)))
    reduced = tuple(d in group.axes for d in order)
    steps = tuple(tuple(0 if n == 1 else s for n, s in zip(v.shape, v.steps, strict=True)) for v in memory)
    return MemoryLoops.of(Met(group.shape, reduced, order, (), (), steps, ()))


def _unit(loops: MemoryLoops, lanes: int, sizes: Sequence[int], gathers: bool) -> Unit:
    """The roles of the loops: with reductions, vectors run along the loop along which most values lie side by side."""
    extents = loops.extents
    if gathers:
        lane = _lane_loop(loops, sizes)
        return Unit(loops.roles(lane), extents, (min(extents[lane], lanes),))
    tile = _tile(extents, lanes)
    inner = len(extents) - len(tile)
    return Unit(Roles(range(inner), (), inner, inner), extents, tile)


def _tile(extents: Sequence[int], lanes: int) -> Shape:
    """The tile of the innermost loops that a register holds: a part of a row, or several short rows."""
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
