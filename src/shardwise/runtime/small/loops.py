"""Copies, single elementwise ops, running reductions, and reductions of values in registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.ir import Equation, Fold, Op, Spread
from shardwise.runtime import costs
from shardwise.runtime.fused import takes_type
from shardwise.runtime.loops import dense_steps, dtype_name, finish_reduction, merge_rows
from shardwise.runtime.machine import Lane
from shardwise.runtime.small.code import Code, Value
from shardwise.runtime.small.group import copy, each

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter


def pointwise(
    code: Code, operands: Sequence[Value], write: Callable[[list[Lane]], Lane], dtype: str, into: Value | None = None
) -> Value:
    """`write` of operands of one rank, which broadcast; in `into`, if that is given, which shares no memory with them."""
    return several_pointwise(code, operands, lambda lanes: [write(lanes)], [dtype], [into])[0]


def several_pointwise(
    code: Code,
    operands: Sequence[Value],
    write: Callable[[list[Lane]], Sequence[Lane]],
    dtypes: Sequence[str],
    wanted: Sequence[Value | None] = (),
) -> list[Value]:
    """As `pointwise`, with several results."""
    shape: Shape = np.broadcast_shapes(*[v.shape for v in operands])
    n = math.prod(shape)
    wanted = wanted or [None] * len(dtypes)
    if n > costs.REGISTER_ELEMENTS:
        made = [code.buffer(shape, d) if into is None else into for d, into in zip(dtypes, wanted, strict=True)]
        each(code, shape, operands, write, made)
        return made
    lanes = [code.lane_of(v, shape) for v in operands]
    code.at(n)
    values = [code.of_lane(Lane(x.ref, d), shape, d, n) for x, d in zip(write(lanes), dtypes, strict=True)]
    for value, into in zip(values, wanted, strict=True):
        if into is not None:
            store(code, value, into)
    return values


def running_fits(eqn: Equation, spread: Spread) -> bool:
    """Whether the dtype is known, no dim is split that the reduction runs along, and few elements lie apart from their neighbours."""
    x = eqn.inputs[0].aval
    along_rows = eqn.params["axis"] == x.ndim - 1 and x.ndim > 1
    if along_rows and spread.elements(x) > costs.SMALL_RUNNING:
        return False
    return takes_type(x, "iuwc") and not any(eqn.params.get("sum_axes", ()))


def write_running(
    body: BodyWriter,
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
    axis: int = eqn.params["axis"] + code.lead
    reverse: bool = eqn.params["reverse"]
    n = x.shape[axis]
    if n == 1:
        return [x]
    x = code.in_memory(x)
    into = code.memory(x.shape, x.dtype, into)

    def row(value: Value, i: str) -> Value:
        shape, steps = (v[:axis] + v[axis + 1 :] for v in (value.shape, value.steps))
        return replace(value, shape=shape, steps=steps, place=code.advance_address(value.place, i, value.steps[axis]))

    first, there = (row(value, str(n - 1 if reverse else 0)) for value in (x, into))

    def begin_lanes(lanes: list[Lane]) -> Lane:
        return code.emit(op, [code.like(begin, lanes[0]), lanes[0]], {}, x.dtype)

    if begin is None or x.dtype not in ("float32", "float64", "complex64", "complex128"):
        store(code, first, there)
    else:
        pointwise(code, [first], begin_lanes, x.dtype, there)

    def step(i: str, _: list[str]) -> list[str]:
        at = code.integer("sub", n - 2, i) if reverse else code.integer("add", i, 1)
        before = code.integer("add", at, 1) if reverse else i
        pointwise(
            code,
            [row(into, before), row(x, at)],
            lambda lanes: code.emit(op, lanes, {}, x.dtype),
            x.dtype,
            row(into, at),
        )
        return []

    code.loop(0, n - 1, step)
    return [code.settle_value(into)]


def store(code: Code, value: Value, into: Value) -> None:
    """Copy `value`, broadcast to the shape of `into`, there."""
    value = code.align_rank(value, len(into.shape))
    if into.size <= costs.REGISTER_ELEMENTS:
        lane = code.lane_of(value, into.shape)
        code.write(Lane(lane.ref, into.dtype), into.place, into.shape, into.steps)
    else:
        copy(code, value, into)


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


# -- reductions ----------------------------------------------------------------------------------------------------------


def reduce_in_register(code: Code, eqn: Equation, x: Value) -> Value:
    """The result of a reduction of a value that fits into a register."""
    assert eqn.op.fold is not None
    axes = tuple(a + code.lead for a in eqn.params["axes"])
    return reduce_lanes(code, eqn.op.fold, x, axes, dtype_name(eqn.outputs[0].aval))


def reduce_lanes(code: Code, fold: Fold, x: Value, axes: Shape, dtype: str) -> Value:
    """A value in a register without its dims `axes`: rows of lanes are merged until one is left."""
    kept = tuple(d for d in range(len(x.shape)) if d not in axes)
    shape = tuple(x.shape[d] for d in kept)
    n = math.prod(shape)
    rows = x.size // n
    places = np.arange(x.size).reshape(x.shape).transpose((*axes, *kept)).ravel()
    lane = code.shuffle_lanes(code.lane_of(x), x.size, places.tolist())
    code.at(x.size)
    numbers = code.constant_value(np.repeat(np.arange(rows, dtype=np.int32), n), "int32")
    held = fold.step(code, fold.start(code, x.dtype), lane, code.lane_of(numbers) if fold.positions else None)
    held = merge_rows(code, fold, held, rows, n)
    return code.of_lane(finish_reduction(code.at(n), fold, held, dtype), shape, dtype)
