"""Communication between devices in small programs: reductions over leading dims of a block, and moves of elements between devices.

Comes in: a collective, or an op whose kernel reduces over mesh axes as well (the param `sum_axes`). Goes out: loops in a `Code`. In a
reduction a value that is the same along an axis counts once for each device there. A collective that only moves elements is what its
kernel does to the elements' numbers: copies of boxes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from shardwise.base.dtypes import physical
from shardwise.base.shapes import Shape
from shardwise.ir import Equation, Spread, Var
from shardwise.runtime import costs
from shardwise.runtime.fused import takes_type
from shardwise.runtime.loops import Reduction, dtype_name
from shardwise.runtime.machine import Lane
from shardwise.runtime.monoids import MONOIDS, Monoid
from shardwise.runtime.small.boxes import Even, even_boxes, number_elements
from shardwise.runtime.small.code import Code, Unwritable, Value
from shardwise.runtime.small.group import Group, GroupReduction, along_all, write_group
from shardwise.runtime.small.loops import dense, pointwise, reduce_lanes
from shardwise.runtime.small.moves import Kernel, apart, join_parts, kernel_of

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter


def all_reduce_fits(eqn: Equation, spread: Spread) -> bool:
    """Whether the reduction has vector code for the dtype. On one device each group has one member, whose value is the result."""
    return math.prod(spread.sizes.values()) == 1 or reduction_fits(eqn, eqn.params["kind"])


def reduction_fits(eqn: Equation, kind: str) -> bool:
    """Whether there is vector code for this reduction of the operand over all devices of the axes."""
    return eqn.params.get("groups") is None and takes_type(eqn.inputs[0].aval, MONOIDS[kind].fold.kinds)


def write_all_reduce(
    body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Sequence[Value | None]
) -> list[Value]:
    """The collective."""
    if eqn.params.get("groups") is not None:
        return list(values)
    monoid, dtype = MONOIDS[eqn.params["kind"]], dtype_name(eqn.outputs[0].aval)
    return [over_devices(body.code, monoid, values[0], eqn.params["axes"], (), dtype, wanted[0])]


def over_devices(
    code: Code,
    monoid: Monoid,
    x: Value,
    axes: Sequence[str],
    dims: Shape,
    dtype: str,
    wanted: Value | None = None,
) -> Value:
    """`x` reduced over mesh axes and over `dims`, which count the leading ones, too."""
    loops = [code.env.dim(a) for a in axes]
    copies = math.prod(code.env.size(a) for a, d in zip(axes, loops, strict=True) if x.shape[d] == 1)
    gone = (*[d for d in loops if x.shape[d] != 1], *dims)
    shape = tuple(1 if d in loops else n for d, n in enumerate(x.shape) if d not in dims)
    if gone:
        kept = tuple(n for d, n in enumerate(x.shape) if d not in gone)
        x = code.settle_value(x)
        if x.size <= costs.REGISTER_ELEMENTS:
            x = replace(reduce_lanes(code, monoid.fold, x, gone, dtype), shape=shape)
        else:
            into = code.memory(shape, dtype, wanted if copies == 1 else None)
            left = [d for d in range(len(x.shape)) if d not in dims]
            steps = tuple(s for s, d in zip(into.steps, left, strict=True) if d not in gone)
            flat = replace(into, shape=kept, steps=steps)
            gathered = GroupReduction(Reduction(monoid.fold, 0, x.dtype), along_all(flat, x.shape, gone))
            write_group(code, Group(x.shape, {0: code.in_memory(x)}, lambda values: None, {}, gone, [gathered]))
            x = code.settle_value(into)
    if copies == 1 or monoid.repeated is None:
        return x
    if not monoid.linear:
        raise Unwritable(f"{monoid.name} of values that are the same on several devices")

    def multiply_parts(lanes: Sequence[Lane]) -> Lane:
        parts = code.take_apart(lanes[0])
        return code.join_parts([code.mul(part, code.constant(copies, part.dtype)) for part in parts])

    return pointwise(code, [x], multiply_parts, dtype, wanted)


def move_elements(
    body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Sequence[Value | None]
) -> list[Value]:
    """The result of a collective that moves elements."""
    return [relocate_elements(body.code, eqn.outputs[0], values, kernel_of(body.code, eqn), wanted[0])]


def moves_fit(eqn: Equation, spread: Spread) -> bool:
    """Whether the result has few enough boxes of elements that move alike."""
    params = eqn.params
    if params.get("groups") is not None:
        return False
    if "perm" in params:
        apart = [target - source for source, target in sorted(params["perm"])]
        return len(params["axes"]) == 1 and sum(a != b for a, b in pairwise(apart)) + 1 <= costs.SMALL_BOXES // 2
    return len(params.get("pieces", ())) + math.prod(params["sizes"]) <= costs.SMALL_BOXES


def relocate_elements(code: Code, out: Var, values: Sequence[Value], kernel: Kernel, wanted: Value | None) -> Value:
    """The result of a `kernel` that moves elements of values and fills in zeros."""
    dtype = dtype_name(out.aval)
    numbers = kernel(*[number_elements(k, v.shape) for k, v in enumerate(values)])
    boxes = even_boxes(numbers, costs.SMALL_BOXES)
    if boxes is None:
        raise Unwritable(f"more than {costs.SMALL_BOXES} boxes of elements that move alike")
    sources = {b.source: values[b.source] for b in boxes if b.source is not None}
    sources = {k: v if v.even else dense(code, v) for k, v in sources.items()}
    parts = [
        code.constant_value(np.zeros((1,) * numbers.ndim, physical(out.aval.dtype)), dtype)
        if b.source is None
        else _box_of(code, sources[b.source], b)
        for b in boxes
    ]
    if len(boxes) == 1 and boxes[0].source is not None:
        return apart(code, sources[boxes[0].source], parts[0])
    return join_parts(code, numbers.shape, dtype, parts, [itemgetter(b.index) for b in boxes], wanted)


def _box_of(code: Code, x: Value, box: Even) -> Value:
    if x.even:
        return replace(x, shape=box.shape)
    place = code.advance_address(x.place, "1", box.first * x.itemsize)
    return code.settle_value(replace(x, shape=box.shape, steps=tuple(s * x.itemsize for s in box.steps), place=place))
