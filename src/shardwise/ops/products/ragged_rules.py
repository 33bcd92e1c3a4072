"""Derivatives and batching of `ragged_dot_general`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.shapes import Ints
from shardwise.ir import Array
from shardwise.ir.op import Params
from shardwise.ops.products.contract import dot_general_p
from shardwise.ops.products.dot_sharding import with_mapped_dim
from shardwise.ops.products.ragged_numbers import RaggedDims, RaggedDotDimensionNumbers, ragged_dims
from shardwise.ops.rules.derivative import (
    cotangent_sharding,
    dims_sharding,
    do,
    full_in_front,
    is_linear,
    with_dtype,
)
from shardwise.runtime.products import DotDims


def ragged_transpose(
    ct: Array, lhs: Any, rhs: Any, sizes: Any, *, ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, **params: Any
) -> list[Any]:
    """The cotangent times the other operand in the same groups, then the dims put in the operand's order."""
    roles = ragged_dims(ragged_dot_dimension_numbers, lhs.aval.ndim, rhs.aval.ndim)
    if roles.batches:
        plain = {k: params[k] for k in ("precision", "preferred_element_type", "out_sharding")}
        assert dot_general_p.transpose is not None
        return [*dot_general_p.transpose(ct, lhs, rhs, dimension_numbers=roles.dims, **plain), None]
    back = _back_of_sums if roles.contracts else _back_of_rows
    return [*back(ct, lhs, rhs, sizes, roles, params), None]


def _back_of_rows(ct: Array, lhs: Any, rhs: Any, sizes: Any, roles: RaggedDims, params: dict[str, Any]) -> list[Any]:
    """Of rows in groups: those of lhs in groups again; of rhs a product for each group, whose rows are summed over."""
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = roles.dims
    assert roles.group is not None
    batch = tuple(range(len(lhs_batch)))
    middle = len(batch) + len(roles.lhs_free)
    left, right = tuple(range(len(batch), middle)), tuple(range(middle, ct.ndim))
    if is_linear(lhs):
        dims: DotDims = ((right, roles.rhs_free), (batch, rhs_batch))
        ragged_dim = left[roles.lhs_free.index(roles.ragged_dim)]
        numbers = RaggedDotDimensionNumbers(dims, (ragged_dim,), (roles.group,))
        order = (*lhs_batch, *roles.lhs_free, *_in_order_of(lhs_con, rhs_con))
        return [_back(ct, rhs, sizes, numbers, order, lhs, params), None]
    dims = ((roles.lhs_free, left), (lhs_batch, batch))
    numbers = RaggedDotDimensionNumbers(dims, (roles.ragged_dim,), ())
    order = (roles.group, *rhs_batch, *_in_order_of(rhs_con, lhs_con), *roles.rhs_free)
    return [None, _back(lhs, ct, sizes, numbers, order, rhs, params)]


def _back_of_sums(ct: Array, lhs: Any, rhs: Any, sizes: Any, roles: RaggedDims, params: dict[str, Any]) -> list[Any]:
    """Of results by group: the rows of each group times its cotangent."""
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = roles.dims
    batch = tuple(range(1, 1 + len(lhs_batch)))
    middle = 1 + len(batch) + len(roles.lhs_free)
    left, right = tuple(range(1 + len(batch), middle)), tuple(range(middle, ct.ndim))
    if is_linear(lhs):
        other, other_batch, con, free = _in_list_order(rhs, rhs_batch, rhs_con, roles.rhs_free, sizes)
        ragged_dim = con[lhs_con.index(roles.ragged_dim)]
        numbers = RaggedDotDimensionNumbers(((free, right), (other_batch, batch)), (ragged_dim,), (0,))
        order = (*lhs_batch, *_in_order_of(lhs_con, con), *roles.lhs_free)
        return [_back(other, ct, sizes, numbers, order, lhs, params), None]
    other, other_batch, con, free = _in_list_order(lhs, lhs_batch, lhs_con, roles.lhs_free, sizes)
    ragged_dim = con[lhs_con.index(roles.ragged_dim)]
    numbers = RaggedDotDimensionNumbers(((free, left), (other_batch, batch)), (ragged_dim,), (0,))
    order = (*rhs_batch, *_in_order_of(rhs_con, con), *roles.rhs_free)
    return [None, _back(other, ct, sizes, numbers, order, rhs, params)]


def _in_order_of(dims: Ints, others: Ints) -> Ints:
    """`dims` in the order in which those that they pair with lie."""
    return tuple(d for _, d in sorted(zip(others, dims, strict=True)))


def _in_list_order(x: Any, batch: Ints, contracted: Ints, free: Ints, sizes: Any) -> tuple[Any, Ints, Ints, Ints]:
    """The operand and its dims by role. Where sizes differ along dims, contracted ones lie in the order in which they are named, since
    their order as free dims is that in which they lie."""
    if sizes.aval.ndim == 1 or contracted == tuple(sorted(contracted)):
        return x, batch, contracted, free
    order = (*batch, *contracted, *free)
    at = iter(range(x.aval.ndim))
    places = [tuple(next(at) for _ in dims) for dims in (batch, contracted, free)]
    return do.transpose(x, permutation=order), places[0], places[1], places[2]


def _back(
    x: Any,
    y: Any,
    sizes: Any,
    numbers: RaggedDotDimensionNumbers,
    order: Ints,
    operand: Any,
    params: dict[str, Any],
) -> Any:
    """The product, whose dim i is dim ``order[i]`` of the operand."""
    sharding = dims_sharding(cotangent_sharding(operand.aval, x.aval, y.aval), order)
    given = {**params, "ragged_dot_dimension_numbers": numbers, "out_sharding": sharding}
    out = do.ragged_dot_general(x, y, sizes, **given)
    place = tuple(order.index(d) for d in range(len(order)))
    if place != tuple(range(len(order))):
        out = do.transpose(out, permutation=place)
    return with_dtype(out, operand.aval)


def ragged_batch(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Any:
    """One product: a dim that only one of lhs and rhs has is a free dim of it; else, and where sizes have one, it is a batch dim."""
    (lhs, rhs, sizes), (left, right, sizes_dim) = values, dims
    numbers: RaggedDotDimensionNumbers = params["ragged_dot_dimension_numbers"]
    roles = ragged_dims(numbers, lhs.ndim - (left is not None), rhs.ndim - (right is not None))
    if sizes_dim is not None:
        if left is None:
            lhs, left = full_in_front(size, lhs, None), 0
        if right is None:
            rhs, right = full_in_front(size, rhs, None), 0
    if left is not None and right is None and sizes.ndim > 1:  # behind the dims along which sizes differ
        rest = [d for d in range(lhs.ndim) if d != left]
        lhs, left = do.transpose(lhs, permutation=(*rest, left)), lhs.ndim - 1
    if left is not None and right is not None:
        sizes = _with_batch(size, sizes, sizes_dim, lhs, left, roles)
    new, at = _with_dim(numbers, roles, left, right)
    spec = with_mapped_dim(params["out_sharding"], at, (lhs, left), (rhs, right))
    given = {**params, "ragged_dot_dimension_numbers": new, "out_sharding": spec}
    return [do.ragged_dot_general(lhs, rhs, sizes, **given)], [at]


def _with_dim(
    numbers: RaggedDotDimensionNumbers, roles: RaggedDims, left: int | None, right: int | None
) -> tuple[RaggedDotDimensionNumbers, int]:
    """The numbers for operands with one more dim, and where the result has it."""
    up = lambda ds, at: tuple(d + (at is not None and d >= at) for d in ds)  # noqa: E731
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = ((up(a, left), up(b, right)) for a, b in roles.dims)
    if left is not None and right is not None:
        lhs_batch, rhs_batch, at = (left, *lhs_batch), (right, *rhs_batch), 0
    elif left is not None:
        at = len(lhs_batch) + sum(d < left for d in roles.lhs_free)
    else:
        assert right is not None
        at = len(lhs_batch) + len(roles.lhs_free) + sum(e < right for e in roles.rhs_free)
    ragged_dims, group = up(numbers.lhs_ragged_dimensions, left), up(numbers.rhs_group_dimensions, right)
    dims = (lhs_con, rhs_con), (lhs_batch, rhs_batch)
    return RaggedDotDimensionNumbers(dims, ragged_dims, group), at + roles.contracts


def _with_batch(size: int, sizes: Any, counted: int | None, lhs: Any, left: int, roles: RaggedDims) -> Any:
    """Sizes for operands with one more batch dim: the same ones for all of it, or with a dim for each along which they may differ."""
    if counted is None and sizes.ndim == 1:
        return sizes
    sizes = full_in_front(size, sizes, counted)
    if sizes.ndim == len(roles.prefix) + 2:
        return sizes
    shape = (size, *[lhs.shape[d + (d >= left)] for d in roles.prefix], sizes.shape[-1])
    return do.broadcast_in_dim(sizes, shape=shape, broadcast_dimensions=(0, len(shape) - 1), out_sharding=None)
