"""Casts between a value's types over mesh axes: varying, invariant, partial sums (unreduced) and `reduced`. Free at run time."""

from __future__ import annotations

from typing import Any

from shardwise.base import config
from shardwise.ir import Collective, ShapedArray, Shown
from shardwise.ir.axis_scope import is_checked
from shardwise.ir.key_uses import HANDS_ON
from shardwise.ops.devices.batching import pointwise
from shardwise.ops.devices.declare import define_collective, of_one_device
from shardwise.ops.devices.rules import same_dims
from shardwise.ops.rules.derivative import do


def _pvary_type(x: ShapedArray, *, axes: tuple[str, ...]) -> ShapedArray:
    return x.update(vma=x.vma | set(axes), reduced=x.reduced - set(axes))


def _pvary_transpose(ct: Any, x: Any, *, axes: tuple[str, ...]) -> list[Any]:
    """The sum over the axes; over axes on which the value is `reduced`, the cotangent stays a partial sum."""
    new = tuple(a for a in axes if a not in x.aval.vma and is_checked(a))
    parts = tuple(a for a in new if a in x.aval.reduced)
    summed_axes = tuple(a for a in new if a not in parts)
    ct = do.all_reduce(ct, axes=summed_axes, kind="sum", groups=None) if summed_axes else ct
    return [do.pcast(ct, axes=parts, to="unreduced") if parts else ct]


def _first_operand(position: int, operands: Any, params: Any) -> Any:
    return operands[0]


pvary_op = define_collective(
    "pvary",
    type_rule=_pvary_type,
    kernel=lambda env, x, axes: x,
    rule=same_dims,
    view=True,
    hands_on=True,
    jvp="linear",
    transpose=_pvary_transpose,
    batch=pointwise("pvary"),
    rewrite=of_one_device,
    collective=Collective("pvary", alone=_first_operand),
    shown=Shown(name=lambda: config.dialect.jaxprs.pvary),
    keys=HANDS_ON,
)


def _pcast_type(x: ShapedArray, *, axes: tuple[str, ...], to: str) -> ShapedArray:
    if to == "unreduced":
        return x.update(vma=x.vma - set(axes), unreduced=x.unreduced | set(axes))
    return x.update(reduced=x.reduced | set(axes))


def _pcast_transpose(ct: Any, x: Any, *, axes: tuple[str, ...], to: str) -> list[Any]:
    """The cotangent of partial sums is `reduced`, and that of a `reduced` value is a partial sum."""
    if to == "unreduced":
        return [do.pvary(ct, axes=axes)]
    parts = tuple(a for a in axes if a in ct.aval.unreduced or a in ct.aval.vma)  # elsewhere it is the sum already
    return [do.all_reduce(ct, axes=parts, kind="sum", groups=None) if parts else ct]


pcast_op = define_collective(
    "pcast",
    type_rule=_pcast_type,
    kernel=lambda env, x, axes, to: x,
    rule=same_dims,
    jvp="linear",
    transpose=_pcast_transpose,
    batch=pointwise("pcast"),
    rewrite=of_one_device,
    collective=Collective("pcast", alone=_first_operand),
    keys=HANDS_ON,
)
