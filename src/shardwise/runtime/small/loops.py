"""Loops over values in memory: elementwise groups, copies, and reductions.

Comes in: operands as `Value`s, results' places. Goes out: instructions in a `Code`. The innermost loop takes a vector at a time; where
the extent is no multiple of that, its last vector ends with the row and computes some elements twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shardwise.ir import Equation, Fold, Op
from shardwise.runtime import costs
from shardwise.runtime.fused.space import fits
from shardwise.runtime.machine.lanes import Lane
from shardwise.runtime.small.code import Code, Shape, Value, dense_steps, name_of

if TYPE_CHECKING:
    from shardwise.runtime.small.body import Body

Write = Callable[[list[Lane]], Sequence[Lane]]
Held = tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class _Walk:
    """One operand or result in a nest of loops: where it begins, its bytes per step of each loop."""

    place: str
    steps: Shape
    dtype: str


def each(code: Code, shape: Shape, operands: Sequence[Value], write: Write, into: Sequence[Value]) -> None:
    """`write` of the operands, broadcast to `shape`, element by element into `into`, which shares no memory with them."""
    operands = [code.aligned(v, len(shape)) for v in operands]
    operands = [v if v.place or v.even else code.in_memory(v) for v in operands]
    steps = [
        tuple(0 if n == 1 else s for n, s in zip(v.shape, v.steps, strict=True)) for v in (*operands, *into) if v.place
    ]
    extents, merged = _merged(shape, steps)
    tile = _tile(extents, code.lanes_per_vector(v.dtype for v in (*operands, *into)))
    width, over = math.prod(tile), -len(tile)
    walks = [
        _Walk(v.place, s, v.dtype) for v, s in zip([v for v in (*operands, *into) if v.place], merged, strict=True)
    ]
    ready = {i: code.lane_of(replace(v, shape=(1,)), (width,)) for i, v in enumerate(operands) if not v.place}
    results = len(into)

    def innermost(places: list[str]) -> None:
        def step(at: str) -> None:
            here = [code.moved(p, at, w.steps[over]) for p, w in zip(places, walks, strict=True)]
            code.at(width)
            read = iter(
                [code.read(p, tile, w.steps[over:], w.dtype) for p, w in zip(here[:-results], walks, strict=False)]
            )
            lanes = [ready[i] if i in ready else next(read) for i in range(len(operands))]
            made = write(lanes)
            code.at(width)
            for lane, p, w in zip(made, here[-results:], walks[-results:], strict=True):
                code.write(Lane(lane.ref, w.dtype), p, tile, w.steps[over:])

        code.row(extents[over], step, tile[0])

    code.nest(extents[:over], [w.place for w in walks], [w.steps[:over] for w in walks], innermost)


def _tile(extents: Shape, lanes: int) -> Shape:
    """What a register takes of the innermost loops: a part of a row, or several short rows."""
    n = extents[-1]
    if len(extents) > 1 and 2 * n <= lanes:
        return min(extents[-2], lanes // n), n
    return (min(n, lanes),)


def pointwise(
    code: Code, operands: Sequence[Value], write: Callable[[list[Lane]], Lane], dtype: str, into: Value | None = None
) -> Value:
    """`write` of operands of one rank, which broadcast; in `into`, if that is given, which shares no memory with them."""
    shape: Shape = np.broadcast_shapes(*[v.shape for v in operands])
    n = math.prod(shape)
    if n > costs.REGISTER_ELEMENTS:
        into = code.buffer(shape, dtype) if into is None else into
        each(code, shape, operands, lambda lanes: [write(lanes)], [into])
        return into
    lanes = [code.lane_of(v, shape) for v in operands]
    code.at(n)
    value = code.of_lane(Lane(write(lanes).ref, dtype), shape, dtype, n)
    if into is not None:
        store(code, value, into)
    return value


def running_fits(eqn: Equation, devices: int) -> bool:
    """Whether the dtype is known, and no dim is split that the reduction runs along."""
    return fits(eqn.inputs[0].aval, "iuw") and not any(eqn.params.get("sum_axes", ()))


def running(
    body: Body,
    eqn: Equation,
    values: Sequence[Value],
    wanted: Sequence[Value | None],
    op: Op,
    begin: float | None,
) -> list[Value]:
    """`op` of all elements up to each along a dim of a value, from the other end if `reverse`.

    What floats begin with, if not with the first element, is `begin`.
    """
    code, (x,), into = body.code, values, wanted[0]
    axis, reverse = eqn.params["axis"] + code.lead, eqn.params["reverse"]
    n = x.shape[axis]
    if n == 1:
        return [x]
    x = code.in_memory(x)
    into = code.memory(x.shape, x.dtype, into)

    def row(value: Value, i: str) -> Value:
        shape, steps = (v[:axis] + v[axis + 1 :] for v in (value.shape, value.steps))
        return replace(value, shape=shape, steps=steps, place=code.moved(value.place, i, value.steps[axis]))

    first, there = (row(value, str(n - 1 if reverse else 0)) for value in (x, into))

    def begun(lanes: list[Lane]) -> Lane:
        return code.emitted(op, [code.like(begin, lanes[0]), lanes[0]], {}, x.dtype)

    if begin is None or "float" not in x.dtype:
        store(code, first, there)
    else:
        pointwise(code, [first], begun, x.dtype, there)

    def step(i: str, _: list[str]) -> list[str]:
        at = code.integer("sub", n - 2, i) if reverse else code.integer("add", i, 1)
        before = code.integer("add", at, 1) if reverse else i
        pointwise(
            code,
            [row(into, before), row(x, at)],
            lambda lanes: code.emitted(op, lanes, {}, x.dtype),
            x.dtype,
            row(into, at),
        )
        return []

    code.loop(0, n - 1, step)
    return [code.settled(into)]


def store(code: Code, value: Value, into: Value) -> None:
    """Copy `value`, broadcast to the shape of `into`, there."""
    value = code.aligned(value, len(into.shape))
    if into.size <= costs.REGISTER_ELEMENTS:
        lane = code.lane_of(value, into.shape)
        code.write(Lane(lane.ref, into.dtype), into.place, into.shape, into.steps)
    else:
        each(code, into.shape, [value], lambda lanes: lanes, [into])


def dense(code: Code, value: Value) -> Value:
    """`value` in memory in C order."""
    value = code.in_memory(value)
    if all(
        n == 1 or s == t
        for n, s, t in zip(value.shape, value.steps, dense_steps(value.shape, value.itemsize), strict=True)
    ):
        return replace(value, steps=dense_steps(value.shape, value.itemsize))
    into = code.buffer(value.shape, value.dtype)
    store(code, value, into)
    return into


def _merged(shape: Shape, steps: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """The loops with neighbours joined where all operands are walked with one step; at least one loop."""
    extents: list[int] = []
    out: list[list[int]] = [[] for _ in steps]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if extents and all(o[-1] == s[d] * n for o, s in zip(out, steps, strict=True)):
            extents[-1] *= n
            for o, s in zip(out, steps, strict=True):
                o[-1] = s[d]
        else:
            extents.append(n)
            for o, s in zip(out, steps, strict=True):
                o.append(s[d])
    if not extents:
        return (1,), [(0,) for _ in steps]
    return tuple(extents), [tuple(o) for o in out]


# -- reductions ----------------------------------------------------------------------------------------------------------


def reduced(code: Code, eqn: Equation, x: Value, into: Value | None) -> Value:
    """The result of a reduction; in `into` if that is given and the operand is in memory."""
    fold, out = eqn.op.fold, name_of(eqn.outputs[0].aval)
    assert fold is not None
    axes = tuple(a + code.lead for a in eqn.params["axes"])
    kept = tuple(d for d in range(len(x.shape)) if d not in axes)
    shape = tuple(x.shape[d] for d in kept)
    if x.size <= costs.REGISTER_ELEMENTS:
        lane = _in_register(code, fold, code.settled(x), (*axes, *kept), math.prod(shape), out)
        return code.of_lane(lane, shape, out)
    into = code.buffer(shape, out) if into is None else into
    _Reduction(code, fold, code.in_memory(x), axes, kept, into).write()
    return code.settled(into)


def _in_register(code: Code, fold: Fold, x: Value, order: Sequence[int], n: int, dtype: str) -> Lane:
    """Rows of `n` lanes: halves are merged until one row is left."""
    places = np.arange(x.size).reshape(x.shape).transpose(order).ravel()
    rows = x.size // n
    lane = code.shuffled(code.lane_of(x), x.size, places.tolist())
    code.at(x.size)
    numbers = code.known(np.repeat(np.arange(rows, dtype=np.int32), n), "int32")
    held: Held = fold.step(code, fold.start(code, x.dtype), lane, code.lane_of(numbers) if fold.positions else None)
    held = _rows_merged(code, fold, held, rows, n)
    return Lane(fold.finish(code.at(n), held, dtype).ref, dtype)


def _rows_merged(code: Code, fold: Fold, held: Held, rows: int, n: int) -> Held:
    """Accumulators of `rows` times `n` lanes merged into `n` lanes."""
    left: list[Held] = []

    def part(first: int, count: int) -> Held:
        places = list(range(first * n, (first + count) * n))
        return tuple(code.shuffled(x, rows * n, places) for x in held)

    while rows > 1:
        half = rows // 2
        if rows % 2:
            left.append(part(rows - 1, 1))
        low, high = part(0, half), part(half, half)
        held, rows = fold.merge(code.at(half * n), low, high), half
    for other in left:
        held = fold.merge(code.at(n), held, other)
    return held


@dataclass(frozen=True, slots=True)
class _Sums:
    """Accumulators of so many lanes."""

    lanes: Held
    width: int


class _Reduction:
    """A reduction of a value in memory: vectors run along the dim whose elements lie side by side, reduced or not."""

    def __init__(self, code: Code, fold: Fold, x: Value, axes: Shape, kept: Shape, into: Value) -> None:
        self.code, self.fold, self.x, self.into = code, fold, x, into
        real = [d for d in range(len(x.shape)) if x.shape[d] != 1]
        near = max((d for d in real if x.steps[d] == x.itemsize), key=lambda d: x.shape[d], default=None)
        self.along = near if near in axes else None
        across = near if near in kept else None
        self.rounds = [d for d in real if d in axes and d != self.along]
        self.rows = [d for d in real if d in kept and d != across]
        self.across = across
        self.out_step = {d: into.steps[k] for k, d in enumerate(kept)}
        lanes = code.lanes_per_vector((x.dtype,))
        self.width = 1
        if self.along is not None:
            n = x.shape[self.along]
            self.width = n if n <= lanes else lanes
        elif across is not None:
            self.width = min(lanes, x.shape[across])

    def write(self) -> None:
        x, code = self.x, self.code
        extents = [x.shape[d] for d in self.rows]
        walks = [
            _Walk(x.place, tuple(x.steps[d] for d in self.rows), x.dtype),
            _Walk(self.into.place, tuple(self.out_step[d] for d in self.rows), self.into.dtype),
        ]
        code.nest(extents, [w.place for w in walks], [w.steps for w in walks], self._row)

    def _row(self, places: list[str]) -> None:
        code, x = self.code, self.x
        if self.across is None:
            self._result(*places)
            return
        n, d = x.shape[self.across], self.across

        def step(at: str) -> None:
            self._result(code.moved(places[0], at, x.steps[d]), code.moved(places[1], at, self.out_step[d]))

        code.row(n, step, self.width)

    def _result(self, source: str, target: str) -> None:
        """The elements of the result at `target`."""
        code, fold, dtype = self.code, self.fold, self.into.dtype
        sets = [self._begun(self.width)]
        if self.along is not None and self.x.shape[self.along] % self.width:
            sets.append(self._begun(1))
        first, *rest = self._rounds(0, source, "0", sets)
        held, width = first.lanes, first.width
        if self.along is not None:
            held, width = _rows_merged(code, fold, held, width, 1), 1
            for other in rest:
                held = fold.merge(code.at(1), held, other.lanes)
        lane = Lane(fold.finish(code.at(width), held, dtype).ref, dtype)
        code.write(lane, target, (width,), (self.out_step[self.across] if self.across is not None else 0,))

    def _begun(self, width: int) -> _Sums:
        return _Sums(self.fold.start(self.code.at(width), self.x.dtype), width)

    def _rounds(self, k: int, source: str, position: str, sets: list[_Sums]) -> list[_Sums]:
        """The accumulators after the reduced dims from the k-th on."""
        code, x = self.code, self.x
        if k == len(self.rounds):
            return self._vectors(source, position, sets)
        d = self.rounds[k]

        def body(i: str, held: list[_Sums]) -> list[_Sums]:
            here = code.moved(source, i, x.steps[d])
            return self._rounds(k + 1, here, i if self.fold.positions else "0", held)

        return self._looped(x.shape[d], sets, body)

    def _vectors(self, source: str, position: str, sets: list[_Sums]) -> list[_Sums]:
        code, x, width = self.code, self.x, self.width
        if self.along is None:
            return [self._step(source, position, sets[0], x.steps[self.across] if self.across is not None else 0)]
        n, size = x.shape[self.along], x.itemsize

        def vector(i: str, held: list[_Sums]) -> list[_Sums]:
            at = code.integer("mul", i, width)
            return [self._step(code.moved(source, at, size), at, held[0], size)]

        def single(i: str, held: list[_Sums]) -> list[_Sums]:
            at = code.integer("add", i, n // width * width)
            return [self._step(code.moved(source, at, size), at, held[0], size)]

        out = self._looped(n // width, sets[:1], vector)
        return out if len(sets) == 1 else [*out, *self._looped(n % width, sets[1:], single)]

    def _step(self, place: str, position: str, sums: _Sums, step: int) -> _Sums:
        code = self.code.at(sums.width)
        value = code.read(place, (sums.width,), (step,), self.x.dtype)
        where = None
        if self.fold.positions:
            where = code.splat(code.value(f"trunc i64 {position} to i32"), "int32")
            where = code.add(where, code.sequence("int32")) if self.along is not None else where
        return _Sums(self.fold.step(code, sums.lanes, value, where), sums.width)

    def _looped(self, n: int, sets: list[_Sums], body: Callable[[str, list[_Sums]], list[_Sums]]) -> list[_Sums]:
        """A loop that carries accumulators."""
        carried = [(f"<{s.width} x {lane.type}>", lane.ref) for s in sets for lane in s.lanes]

        def named(refs: Sequence[str]) -> list[_Sums]:
            names = iter(refs)
            return [_Sums(tuple(Lane(next(names), lane.dtype) for lane in s.lanes), s.width) for s in sets]

        def step(i: str, refs: list[str]) -> list[str]:
            return [lane.ref for s in body(i, named(refs)) for lane in s.lanes]

        return named(self.code.loop(0, n, step, carried))
