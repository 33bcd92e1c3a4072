"""Products of matrices in groups of rows: `ragged_dot` and `ragged_dot_general`."""

from __future__ import annotations

from typing import Any

from shardwise.base.dtypes import check_requested
from shardwise.ir import Array, bind
from shardwise.ops.products.ragged_dot import ragged_dot_general_p
from shardwise.ops.products.ragged_numbers import RaggedDotDimensionNumbers
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.ops.rules.precision import canonicalize_precision

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"]


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Rows of `lhs` [m, k] in groups, each group times its own matrix of `rhs` [g, k, n]: [m, n].

    `group_sizes` [g] are integers; rows beyond their sum give zeros. Raises TypeError or ValueError for other ranks and sizes.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.
        group_offset: not supported: cut `lhs` and `group_sizes` before the call.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> lax.ragged_dot(jnp.ones((3, 2)), jnp.ones((2, 2, 4)), jnp.array([1, 2])).shape
    (3, 4)
    """
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(
        lhs, rhs, group_sizes, numbers, precision, preferred_element_type, group_offset, out_sharding=out_sharding
    )


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Array:
    """`dot_general` of groups of `lhs` and `rhs` along one dim of `lhs`, which `ragged_dot_dimension_numbers` names.
    `group_sizes` are integers [g], or [..., g] with the batch dims, and the dims of its kind before that one, in front.

    Where that dim is free, each group meets its own part of `rhs` (which has a dim over groups); where it is
    contracted, each group gives its own result (along a new first dim); where it is a batch dim, groups make no
    difference. Only rows of a group meet its part of `rhs`: its elements are without effect on others, NaNs too.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.
        group_offset: not supported: cut `lhs` and `group_sizes` before the call.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    Raises:
        TypeError: shapes, sizes and dimension numbers do not fit. NotImplementedError: `group_offset` is given.

    >>> numbers = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])
    >>> lax.ragged_dot_general(jnp.ones((3, 2)), jnp.arange(8.0).reshape(2, 2, 2), jnp.array([1, 2]), numbers)
    Array([[ 2.,  4.],
           [10., 12.],
           [10., 12.]], dtype=float32)
    """
    if group_offset is not None:
        raise NotImplementedError("group_offset is not supported; cut lhs and group_sizes before the call.")
    a, b, sizes = (as_array(as_value(x)) for x in (lhs, rhs, group_sizes))
    numbers = ragged_dot_dimension_numbers
    (contracted_dims, _), (batch, _) = numbers.dot_dimension_numbers
    dtype = None if preferred_element_type is None else check_requested(preferred_element_type, "ragged_dot_general")
    by_group = not {*numbers.lhs_ragged_dimensions}.isdisjoint(contracted_dims)
    ndim = a.ndim + b.ndim - 2 * len(contracted_dims) - len(batch) - len(numbers.rhs_group_dimensions) + by_group
    return bind(
        ragged_dot_general_p,
        a,
        b,
        sizes,
        ragged_dot_dimension_numbers=numbers,
        precision=canonicalize_precision(precision),
        preferred_element_type=dtype,
        out_sharding=resolve_out_sharding(out_sharding, "ragged_dot_general", ndim),
    )
