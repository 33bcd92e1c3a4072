"""How a ragged product is split over devices: sizes of groups are whole everywhere, and each device takes what its part needs."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.base.shapes import DimAxes
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.products.dot_sharding import dot_explicit, free_dims
from shardwise.ops.products.ragged_numbers import RaggedDims, ragged_dims
from shardwise.sharding.rule import Rule, rule_of_names


def dims_of(in_types: Types, params: Params) -> RaggedDims:
    """The dims of an equation by role."""
    return ragged_dims(params["ragged_dot_dimension_numbers"], in_types[0].ndim, in_types[1].ndim)


def ragged_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """The rule of `dot_general`. A split ragged dim is cut where the device's part begins. If groups are split, each device computes its
    own: their results where each group has one, else their part of the sum."""
    roles = dims_of(in_types, params)
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = roles.dims
    left, right = [""] * in_types[0].ndim, [""] * in_types[1].ndim
    for i, (d, e) in enumerate(zip(lhs_batch, rhs_batch, strict=True)):
        left[d] = right[e] = f"b{i}"
    for i, (d, e) in enumerate(zip(lhs_con, rhs_con, strict=True)):
        left[d] = right[e] = f"c{i}"
    for d in roles.lhs_free:
        left[d] = f"l{d}"
    for e in roles.rhs_free:
        right[e] = f"r{e}"
    if roles.group is not None:
        right[roles.group] = "g"
    out = [left[d] for d in (*lhs_batch, *roles.lhs_free)] + [right[e] for e in roles.rhs_free]
    if roles.contracts:
        out.insert(0, "g")
    prefix_ndim = in_types[2].ndim - 1
    sizes = [left[d] for d in roles.prefix] if prefix_ndim == len(roles.prefix) else ["1"] * prefix_ndim
    names = [tuple((n,) for n in dims) for dims in (left, right, [*sizes, "1"], out)]
    shapes = tuple(t.shape for t in in_types), (out_types[0].shape,)
    return rule_of_names(tuple(names[:3]), (names[3],), *shapes, {})


def ragged_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    """As of `dot_general`; a dim over groups is whole in the result."""
    if params["out_sharding"] is not None:
        return (((),) * out_types[0].ndim,)  # the type rule puts in what was asked for
    roles = dims_of(in_types, params)
    plain = {"dimension_numbers": roles.dims, "out_sharding": None}
    (spec,) = dot_explicit(in_types[:2], out_types, plain, rule)
    if roles.contracts:
        return (((), *spec),)
    if roles.group is None:
        return (spec,)
    _, rhs_free = free_dims(roles.dims, in_types[0].ndim, in_types[1].ndim)
    at = len(roles.dims[1][0]) + len(roles.lhs_free) + rhs_free.index(roles.group)
    return ((*spec[:at], *spec[at + 1 :]),)


def ragged_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    """The params of the product on one device: how many groups it has, and a result without layout."""
    roles = dims_of(in_types, params)
    groups = in_types[2].shape[-1]
    own = (
        out_types[0].shape[0] if roles.contracts else groups if roles.group is None else in_types[1].shape[roles.group]
    )
    return {**params, "own_groups": own if own != groups else None, "out_sharding": None}


def ragged_place(params: Params, in_dims: Sequence[DimAxes], out_dims: Sequence[DimAxes]) -> Params:
    """Tell the kernel which mesh axes split the ragged dim and the groups."""
    if not in_dims[0]:
        return params
    roles = ragged_dims(params["ragged_dot_dimension_numbers"], len(in_dims[0]), len(in_dims[1]))
    groups = out_dims[0][0] if roles.contracts else () if roles.group is None else in_dims[1][roles.group]
    ragged_axes = () if roles.batches else in_dims[0][roles.ragged_dim]
    return {**params, "ragged_axes": tuple(ragged_axes), "group_axes": tuple(groups)}
