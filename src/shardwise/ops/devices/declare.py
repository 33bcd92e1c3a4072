"""Declaring a collective: `define_op` with the fields that all collectives share."""

from __future__ import annotations

import math
from typing import Any

from shardwise.ir import Collective, Equation, Op, Program, Var, define_op
from shardwise.ir.op import find_op
from shardwise.ops.devices.lines import gather_across


def define_collective(name: str, *, collective: Collective, **fields: Any) -> Op:
    """Define a collective in one place; `fields` are those of `Op`, and its type rule gives complete types.

    Without `across`, the processes gather all blocks and each runs the block kernel on them. Without `batch`, vmap treats it as any
    other op and supports only axes other than the vmap's own.
    """
    if collective.alone is None and "across" not in fields:
        fields["across"] = gather_across(fields["kernel"])
    return define_op(name, typed=True, collective=collective, **fields)


def of_one_device(eqn: Equation, devices: int) -> Program | None:
    """A collective over no axes, as an `Op.rewrite`: a device that is alone has all elements in their order, at most in a shape with
    other dims of size 1.
    """
    (x,), (out,) = eqn.inputs, eqn.outputs
    if eqn.params["axes"] or x.aval.dtype != out.aval.dtype or x.aval.size != out.aval.size:
        return None
    old = Var(x.aval)
    if x.aval.shape == out.aval.shape:
        return Program((old,), (), (old,), 0, eqn.op.name)
    new = Var(out.aval)
    params = {"new_sizes": out.aval.shape, "out_sharding": None}
    return Program((old,), (Equation(find_op("reshape"), (old,), (new,), params, eqn.source),), (new,), 0, eqn.op.name)


def shown_groups(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    """The params of a collective as JAX's programs show them, with its groups of devices and their size."""
    groups = eqn.params.get("groups")
    size = len(groups[0]) if groups else math.prod(eqn.params["sizes"])
    return {**shown, "axis_index_groups": groups, "axis_size": size}
