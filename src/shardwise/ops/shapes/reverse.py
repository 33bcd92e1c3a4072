"""Arrays with some dims reversed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Equation, Halo, ShapedArray, bind, define_op
from shardwise.ir.key_uses import HANDS_ON
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.ppermute import ppermute_op
from shardwise.ops.rules.batching import shift_dims_rule
from shardwise.ops.rules.derivative import do
from shardwise.ops.rules.dims import int_tuple
from shardwise.ops.rules.operands import operand
from shardwise.ops.shapes.even_parts import missing_rows, with_rows_behind
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule, own_factors

__all__ = ["rev"]

_operand = operand  # functions below have a parameter of that name


def _rev_type(x: ShapedArray, *, dimensions: tuple[int, ...]) -> ShapedArray:
    if len(set(dimensions)) != len(dimensions):
        raise TypeError(f"rev dimensions must be unique, got {dimensions}.")
    if any(not 0 <= d < x.ndim for d in dimensions):
        raise TypeError(
            f"rev dimensions must lie in 0..{x.ndim - 1} for an operand of {x.ndim} dims, got {dimensions}."
        )
    return ShapedArray(x.shape, x.dtype, x.weak_type)


def _rev_kernel(env: Env, x: Ndarray, *, dimensions: tuple[int, ...]) -> Ndarray:
    reversed_axes = {env.lead + d for d in dimensions}
    return (
        x[tuple([slice(None, None, -1) if d in reversed_axes else slice(None) for d in range(x.ndim)])]
        if reversed_axes
        else x
    )


def _rev_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    shape = in_types[0].shape
    factors = own_factors(shape)
    kinds = tuple(Kind.PERMUTE if d in params["dimensions"] else Kind.PASS for d in range(len(shape)))
    return Rule((factors,), (factors,), shape, kinds)


def _rev_halo(params: Params, dim: int, in_types: Types, out_local: int) -> Halo:
    """Part i of the result is part i of the operand counted from the end."""
    return Halo(-out_local, in_types[0].shape[dim] - out_local, out_local, params)


def _rev_partition(region: Any, eqn: Equation) -> None:
    """Rows of a view that the axes do not divide are reversed with extra rows at the end, which then come first.

    Devices that split several dims send their parts to the opposite corner at once.
    """
    uneven_dims = [d for d in eqn.params["dimensions"] if missing_rows(region, eqn, d)]
    if len(uneven_dims) == 1:
        (dim,) = uneven_dims
        missing_count = missing_rows(region, eqn, dim)
        return with_rows_behind(region, eqn, dim, (0,), missing_count, lambda region, eqn: region.usual(eqn))
    layout = region.layout(eqn.inputs[0])
    axes = tuple(a for d in eqn.params["dimensions"] for a in layout[d]) if layout else ()
    if sum(bool(layout and layout[d]) for d in eqn.params["dimensions"]) < 2:
        return region.usual(eqn)
    (operand,), (out,), n = eqn.inputs, eqn.outputs, math.prod(region.sizes_of(axes))
    perm = tuple((i, n - 1 - i) for i in range(n))
    atom = region.collective(ppermute_op, [region.read(operand)[0]], axes, operand.aval, {"perm": perm})
    (turned_part,) = region.emit(eqn.op, [atom], eqn.params)
    placement = region.placements.get(out, layout)
    region.define(out, region.reshard(turned_part, layout, placement, out.aval), placement)


rev_p = define_op(
    "rev",
    type_rule=_rev_type,
    kernel=_rev_kernel,
    rule=_rev_rule,
    halo=_rev_halo,
    partition=_rev_partition,
    view=True,
    jvp="linear",
    transpose=lambda ct, x, **params: [do.rev(ct, **params)],
    batch=shift_dims_rule("rev", "dimensions"),
    keys=HANDS_ON,
)


def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """`operand` reversed along `dimensions`. TypeError for negative, repeated or missing dims.

    >>> lax.rev(jnp.array([1, 2, 3]), (0,))
    Array([3, 2, 1], dtype=int32)
    """
    return bind(rev_p, _operand("rev", operand), dimensions=int_tuple(dimensions, "rev dimensions"))
