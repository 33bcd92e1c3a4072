"""`ragged_dot_general`, the op: products of the rows of groups, each with its own matrix or its own result."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.shapes import Axes, Ndarray
from shardwise.ir import Equation, GroupedProduct, Groups, ShapedArray, Shown, define_op
from shardwise.ir.explicit import complete_types
from shardwise.ir.op import Params, Types
from shardwise.ops.products.contract import check_dot_dims, dot_dtype
from shardwise.ops.products.dot_sharding import check_unreduced
from shardwise.ops.products.gemm import contract_as, product_workspace
from shardwise.ops.products.ragged_kernel import Kernel, RaggedProduct, group_bounds, plain_product
from shardwise.ops.products.ragged_numbers import RaggedDotDimensionNumbers, ragged_dims
from shardwise.ops.products.ragged_rules import ragged_batch, ragged_transpose
from shardwise.ops.products.ragged_sharding import (
    dims_of,
    ragged_explicit,
    ragged_localize,
    ragged_place,
    ragged_rule,
)
from shardwise.ops.products.split_products import by_algorithm, check_algorithm
from shardwise.ops.rules.derivative import later, multilinear_jvp
from shardwise.ops.rules.out_sharding import with_out_sharding
from shardwise.ops.rules.precision import CanonicalPrecision, DotAlgorithm, DotAlgorithmPreset
from shardwise.runtime.env import Env
from shardwise.runtime.products import DotDims
from shardwise.sharding import NamedSharding

# -- types ---------------------------------------------------------------------------------------------------------------


def _ragged_type(
    lhs: ShapedArray,
    rhs: ShapedArray,
    sizes: ShapedArray,
    *,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: CanonicalPrecision,
    preferred_element_type: np.dtype[Any] | None,
    out_sharding: NamedSharding | None = None,
    own_groups: int | None = None,
    ragged_axes: Axes = (),
    group_axes: Axes = (),
) -> ShapedArray:
    groups = _check_groups(lhs, rhs, sizes, ragged_dot_dimension_numbers, own_groups)
    check_algorithm(precision, lhs.dtype, rhs.dtype)
    dtype = dot_dtype(lhs.dtype, rhs.dtype, precision, preferred_element_type)
    roles = ragged_dims(ragged_dot_dimension_numbers, lhs.ndim, rhs.ndim)
    shape = (
        *((groups,) if roles.contracts else ()),
        *(lhs.shape[d] for d in (*roles.dims[1][0], *roles.lhs_free)),
        *(rhs.shape[d] for d in roles.rhs_free),
    )
    out = ShapedArray(shape, dtype, lhs.weak_type and rhs.weak_type)
    params = dict(ragged_dot_dimension_numbers=ragged_dot_dimension_numbers, out_sharding=out_sharding)
    (out,) = complete_types(ragged_dot_general_p, (lhs, rhs, sizes), (out,), params)
    if out_sharding is not None:
        check_unreduced(out_sharding, lhs, rhs, roles.dims)
        out = with_out_sharding(out, out_sharding)
    return out.update(vma=out.vma | set(group_axes)) if group_axes else out


def _check_groups(
    lhs: ShapedArray, rhs: ShapedArray, sizes: ShapedArray, numbers: RaggedDotDimensionNumbers, own_groups: int | None
) -> int:
    """TypeError unless dims and sizes fit; the number of groups that a device has."""
    name, cut, over = "ragged_dot_general", numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    if len(cut) != 1:
        raise TypeError(f"{name} expects exactly one ragged dimension in the lhs. Got {len(cut)}.")
    if np.dtype(sizes.dtype).kind not in "iu":
        raise TypeError(f"{name} requires that group_sizes.dtype is subtype of np.integer. Got {sizes.dtype}.")
    check_dot_dims(lhs, rhs, numbers.dot_dimension_numbers)
    for what, dims, t in (("ragged dim of lhs", cut, lhs), ("group dim of rhs", over, rhs)):
        if any(not 0 <= d < t.ndim for d in dims):
            raise TypeError(f"{name} requires that the {what} is a dim of it, got {dims[0]} for {t.str_short()}.")
    if not sizes.ndim:
        raise TypeError(f"{name} takes group_sizes of rank 1 or more: one size for each group.")
    roles = ragged_dims(numbers, lhs.ndim, rhs.ndim)
    expected_shape = (*[lhs.shape[d] for d in roles.prefix], sizes.shape[-1])
    if sizes.ndim > 1 and sizes.shape != expected_shape:
        raise TypeError(f"{name} takes group_sizes [groups] or {expected_shape} here, got shape {sizes.shape}.")
    groups = sizes.shape[-1] if own_groups is None else own_groups
    if roles.contracts or roles.batches:
        if over:
            raise TypeError(
                f"{name} requires zero group dimensions in the rhs when the ragged dim is contracted or a batch dim."
            )
        return groups
    if len(over) != 1:
        raise TypeError(f"{name} requires exactly one group dimension in the rhs when the ragged dim is free.")
    if over[0] in (*roles.dims[0][1], *roles.dims[1][1]):
        raise TypeError(f"{name} requires that the group dim of rhs, {over[0]}, is neither contracted nor a batch dim.")
    if rhs.shape[over[0]] != groups:
        raise TypeError(f"group_sizes has {groups} groups, but rhs {rhs.shape[over[0]]} along dim {over[0]}.")
    return groups


# -- kernel ----------------------------------------------------------------------------------------------------------------


def _ragged_kernel(
    env: Env,
    lhs: Ndarray,
    rhs: Ndarray,
    sizes: Ndarray,
    *,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: CanonicalPrecision,
    preferred_element_type: np.dtype[Any] | None,
    out_sharding: NamedSharding | None = None,
    own_groups: int | None = None,
    ragged_axes: Axes = (),
    group_axes: Axes = (),
) -> Ndarray:
    lead = env.lead
    roles = ragged_dims(ragged_dot_dimension_numbers, lhs.ndim - lead, rhs.ndim - lead)
    dtype = dot_dtype(lhs.dtype, rhs.dtype, precision, preferred_element_type)

    by_parts = isinstance(precision, (DotAlgorithm, DotAlgorithmPreset))

    def multiply(x: Ndarray, y: Ndarray, dims: DotDims) -> Ndarray:
        if not by_parts:
            return contract_as(dtype, x, y, lead, dims)
        return by_algorithm(precision, lambda a, b, to: contract_as(to, a, b, lead, dims), x, y, dtype)

    if roles.batches:
        return multiply(lhs, rhs, roles.dims)
    own = sizes.shape[-1] if own_groups is None else own_groups
    bounds = group_bounds(env, sizes, lhs.shape[lead + roles.ragged_dim], own, ragged_axes, group_axes)
    return RaggedProduct(lead, roles, (lhs, rhs), bounds, dtype, multiply, not by_parts).run()


def _ragged_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    def general(lhs: Ndarray, rhs: Ndarray, sizes: Ndarray) -> Ndarray:
        return _ragged_kernel(env, lhs, rhs, sizes, **params)

    (lhs, rhs, sizes), out, roles = in_types, out_types[0], dims_of(in_types, params)
    by_parts = isinstance(params["precision"], (DotAlgorithm, DotAlgorithmPreset))
    alike = lhs.dtype == rhs.dtype == out.dtype and out.dtype.char in "fdFD" and not by_parts
    matrices = lhs.ndim == 2 and rhs.ndim == (2 if roles.contracts else 3) and len(roles.rhs_free) == sizes.ndim == 1
    if env.lead or not alike or not matrices or roles.batches or len(roles.dims[0][0]) != 1:
        return general
    return plain_product(roles, out.shape, out.dtype, general)


def _ragged_workspace(in_types: Types, out_types: Types, params: Params) -> int:
    """The bytes that the product of one group needs, if all groups have the same size."""
    return product_workspace(in_types[0], in_types[1], out_types[0]) // _groups_of(in_types, params).total


def _groups_of(in_types: Types, params: Params) -> Groups:
    roles = dims_of(in_types, params)
    if roles.batches:
        return Groups(1, 1, False)
    count = max(1, in_types[2].shape[-1])
    own = params.get("own_groups")
    return Groups(count, count if own is None else max(1, own), roles.contracts)


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    return (
        shown
        if config.dialect.jaxprs.reduction_shows_out_sharding
        else {k: v for k, v in shown.items() if k != "out_sharding"}
    )


ragged_dot_general_p = define_op(
    "ragged_dot_general",
    type_rule=_ragged_type,
    kernel=_ragged_kernel,
    compile=_ragged_compile,
    rule=ragged_rule,
    explicit=ragged_explicit,
    localize=ragged_localize,
    place=ragged_place,
    workspace=_ragged_workspace,
    typed=True,
    jvp=multilinear_jvp("ragged_dot_general", (0, 1)),
    transpose=ragged_transpose,
    batch=ragged_batch,
    makes_nan=True,
    product=True,
    grouped=GroupedProduct(_groups_of, later("shardwise.ops.products.ragged_masks", "masked_product")),
    shown=Shown(
        hidden=frozenset({"own_groups", "ragged_axes", "group_axes"}),
        empty=("group_offset", "out_sharding", "precision", "preferred_element_type"),
        change=_shown_params,
    ),
)
