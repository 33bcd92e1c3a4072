"""Products of matrices in groups of rows: `ragged_dot` and `ragged_dot_general`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ints
from shardwise.ir import Array
from shardwise.ops.elementwise import bitwise_and, ge, lt, mul, sub
from shardwise.ops.elementwise.casts import convert_element_type
from shardwise.ops.products.contract import dot_general
from shardwise.ops.reductions.cumulative import cumsum
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.ops.shapes.iota import broadcasted_iota

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"]


@dataclass(frozen=True, init=False)
class RaggedDotDimensionNumbers:
    """`dot_dimension_numbers` as of `dot_general`; the one dim of lhs that is cut into groups; the dim of rhs over groups."""

    dot_dimension_numbers: tuple[tuple[Ints, Ints], tuple[Ints, Ints]]
    lhs_ragged_dimensions: Ints
    rhs_group_dimensions: Ints

    def __init__(
        self, dot_dimension_numbers: Any, lhs_ragged_dimensions: Sequence[int], rhs_group_dimensions: Sequence[int]
    ) -> None:
        numbers = tuple(tuple(tuple(int(d) for d in dims) for dims in pair) for pair in dot_dimension_numbers)
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", tuple(lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", tuple(rhs_group_dimensions))


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
    `group_sizes` are integers [g].

    Where that dim is free, each group meets its own part of `rhs` (which has a dim over groups); where it is
    contracted, each group gives its own result (along a new first dim); where it is a batch dim, groups make no
    difference.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.
        group_offset: not supported: cut `lhs` and `group_sizes` before the call.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    Raises:
        TypeError: shapes, sizes and dimension numbers do not fit. NotImplementedError: `group_offset` is given, or
            `group_sizes` has batch dims.

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
    (a_contract, b_contract), (a_batch, b_batch) = numbers.dot_dimension_numbers
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise TypeError(
            f"ragged_dot_general expects exactly one ragged dimension in the lhs. Got {len(numbers.lhs_ragged_dimensions)}."
        )
    if np.dtype(sizes.dtype).kind not in "iu":
        raise TypeError(
            f"ragged_dot_general requires that group_sizes.dtype is subtype of np.integer. Got {sizes.dtype}."
        )
    ragged = numbers.lhs_ragged_dimensions[0]
    options = dict(precision=precision, preferred_element_type=preferred_element_type, out_sharding=out_sharding)
    if ragged in a_batch:
        return dot_general(a, b, (numbers.dot_dimension_numbers), **options)
    if sizes.ndim != 1:
        raise NotImplementedError("group_sizes with batch dims are not supported; map the call over them with vmap.")
    groups = sizes.shape[0]
    spread = mul(
        broadcast_in_dim(a, (groups, *a.shape), tuple(range(1, a.ndim + 1))),
        _members(sizes, (groups, *a.shape), ragged + 1, a.dtype),
    )
    shifted = lambda dims: tuple(d + 1 for d in dims)  # noqa: E731
    if ragged in a_contract:
        if numbers.rhs_group_dimensions:
            raise TypeError(
                "ragged_dot_general requires zero group dimensions in the rhs when the ragged dim is contracted."
            )
        b = broadcast_in_dim(b, (groups, *b.shape), tuple(range(1, b.ndim + 1)))
        pairs = ((shifted(a_contract), shifted(b_contract)), ((0, *shifted(a_batch)), (0, *shifted(b_batch))))
        return dot_general(spread, b, pairs, **options)
    if len(numbers.rhs_group_dimensions) != 1:
        raise TypeError(
            "ragged_dot_general requires exactly one group dimension in the rhs when the ragged dim is free."
        )
    group_dim = numbers.rhs_group_dimensions[0]
    if b.shape[group_dim] != groups:
        raise TypeError(f"group_sizes has {groups} groups, but rhs {b.shape[group_dim]} along dim {group_dim}.")
    pairs = (((0, *shifted(a_contract)), (group_dim, *b_contract)), (shifted(a_batch), b_batch))
    return dot_general(spread, b, pairs, **options)


def _members(sizes: Array, shape: tuple[int, ...], dim: int, dtype: Any) -> Array:
    """1 where an entry along `dim` belongs to the group of the first dim."""
    positions = broadcasted_iota(sizes.dtype, shape, dim)
    ends = cumsum(sizes, 0)
    wide = lambda x: broadcast_in_dim(x, shape, (0,))  # noqa: E731
    inside = bitwise_and(ge(positions, wide(sub(ends, sizes))), lt(positions, wide(ends)))
    return convert_element_type(inside, dtype)
