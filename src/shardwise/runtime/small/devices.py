"""Reductions over devices in small programs: over leading dims of a block, which then have extent 1.

Comes in: a collective that reduces, or an op whose kernel reduces over mesh axes as well (the param `sum_axes`). Goes out: loops in a
`Code`. A value that is the same along an axis counts once for each device there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardwise.ir import Equation
from shardwise.runtime import costs
from shardwise.runtime.fused import fits
from shardwise.runtime.loops import Reduction, dtype_name
from shardwise.runtime.monoids import MONOIDS, Monoid
from shardwise.runtime.small.code import Code, Shape, Unwritable, Value
from shardwise.runtime.small.group import Gathered, Group, along_all, write_group
from shardwise.runtime.small.loops import pointwise, reduce_lanes

if TYPE_CHECKING:
    from shardwise.runtime.small.body import Body


def all_reduce_fits(eqn: Equation, devices: int) -> bool:
    """Whether the reduction has vector code for the dtype. On one device each group has one member, whose value is the result."""
    return devices == 1 or (
        eqn.params.get("groups") is None and fits(eqn.inputs[0].aval, MONOIDS[eqn.params["kind"]].fold.kinds)
    )


def all_reduced(body: Body, eqn: Equation, values: Sequence[Value], wanted: Sequence[Value | None]) -> list[Value]:
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
        x = code.settled(x)
        if x.size <= costs.REGISTER_ELEMENTS:
            x = replace(reduce_lanes(code, monoid.fold, x, gone, dtype), shape=shape)
        else:
            into = code.memory(shape, dtype, wanted if copies == 1 else None)
            left = [d for d in range(len(x.shape)) if d not in dims]
            steps = tuple(s for s, d in zip(into.steps, left, strict=True) if d not in gone)
            flat = replace(into, shape=kept, steps=steps)
            gathered = Gathered(Reduction(monoid.fold, 0, x.dtype), along_all(flat, x.shape, gone))
            write_group(code, Group(x.shape, {0: code.in_memory(x)}, lambda values: None, {}, gone, [gathered]))
            x = code.settled(into)
    if copies == 1 or monoid.repeated is None:
        return x
    if not monoid.linear:
        raise Unwritable(f"{monoid.name} of values that are the same on several devices")
    return pointwise(code, [x], lambda lanes: code.mul(lanes[0], code.constant(copies, lanes[0].dtype)), dtype, wanted)
