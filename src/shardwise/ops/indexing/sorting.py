"""Sorting along one dim: sort of one or several operands, top_k, and their approximate forms, which are exact here.

NaNs are last and equal to each other, -0.0 equals 0.0; `top_k` ranks by the total order of floats instead
(NaN above infinity, -NaN below -infinity, 0.0 above -0.0), as XLA does.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import isdtype
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, ShapedArray, SmallForm, bind, define_op
from shardwise.ir.explicit import specs_from_rule
from shardwise.ir.op import Params, Steps, Types
from shardwise.ir.showing import SHOWING
from shardwise.ir.types import Spec
from shardwise.ops.elementwise.unary import neg
from shardwise.ops.indexing import row_selection
from shardwise.ops.indexing.along_dims import take_along
from shardwise.ops.indexing.sort_partition import sort_partition, top_k_partition
from shardwise.ops.rules import batching
from shardwise.ops.rules.bodies import define_shown
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import do, later
from shardwise.ops.rules.dims import dim_index
from shardwise.ops.rules.in_rows import in_rows, rows_at_once
from shardwise.ops.rules.order import comparable, sorted_rows
from shardwise.ops.shapes.iota import broadcasted_iota
from shardwise.runtime.blocks import with_dim_at
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule, own_factors

__all__ = ["approx_max_k", "approx_min_k", "sort", "sort_key_val", "top_k"]


# -- sort -------------------------------------------------------------------------------------


def _sort_type(*operands: ShapedArray, dimension: int, is_stable: bool, num_keys: int) -> tuple[ShapedArray, ...]:
    del is_stable, num_keys
    shapes = [t.shape for t in operands]
    if any(s != shapes[0] for s in shapes):
        raise TypeError(f"sort takes operands of equal shapes, got {', '.join(map(str, shapes))}.")
    if not 0 <= dimension < len(shapes[0]):
        raise ValueError(f"sort: dimension {dimension} is out of bounds for operands of {len(shapes[0])} dims.")
    return tuple(ShapedArray(t.shape, t.dtype, t.weak_type) for t in operands)


def _sort_kernel(env: Env, *operands: Ndarray, dimension: int, is_stable: bool, num_keys: int) -> tuple[Ndarray, ...]:
    return sorted_rows(operands, env.lead + dimension, env.lead, is_stable, num_keys)


def _sort_rule(ins: Types, outs: Types, params: Params) -> Rule:
    del outs
    return along_rule(ins[0].shape, params["dimension"], len(ins), len(ins), ins[0].shape)


def along_rule(shape: tuple[int, ...], dim: int, inputs: int, outputs: int, out_shape: tuple[int, ...]) -> Rule:
    """All tensors have the same dims; `dim` must be whole. Its sharding propagates to results that keep its full size."""
    dims = own_factors(shape)
    outs = tuple(dims[d] if n != 1 or shape[d] == 1 else () for d, n in enumerate(out_shape))
    kinds = tuple(Kind.REPLICATE if d == dim else Kind.PASS for d in range(len(shape)))
    blocked_dims = frozenset({dim}) if shape != out_shape else frozenset[int]()
    return Rule((dims,) * inputs, (outs,) * outputs, shape, kinds, blocked_dims)


def _sort_specs(ins: Types, outs: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    del params
    if config.dialect.explicit.sort_keeps_split_dim and all(t.spec == ins[0].spec for t in ins):
        return (ins[0].spec,) * len(outs)
    return specs_from_rule("sort", ins, outs, rule)


def _sort_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, dimension: int, **params: Any) -> tuple[Any, Any]:
    """The tangents in the sorted order of the keys."""
    place = do.iota(dtype=np.dtype(np.int32), shape=primals[0].shape, dimension=dimension, out_sharding=None)
    *outs, order = do.sort(*primals, place, dimension=dimension, **params)
    return outs, [None if t is None else take_along(t, order, dimension, unique=True) for t in tangents]


SHORT = 512  # elements of rows that are sorted in another way than long ones


def _sort_algorithm(ins: Types, outs: Types, params: Params) -> Steps:
    """Comparisons of all rows; operands beside the keys are moved once they are sorted, as often."""
    key, *others = ins
    length = key.shape[params["dimension"]]
    name = "argsort" if others else "sort_short" if length <= SHORT else "sort"
    return Steps(name, len(ins) * key.size * log2(max(length, 2)), size=length)


def _sort_workspace(ins: Types, outs: Types, params: Params) -> int:
    """The order of the rows that are sorted at once, where operands are put in that of others."""
    if len(ins) == 1:
        return 0
    return 8 * rows_at_once(ins[0].shape, params["dimension"]) * ins[0].shape[params["dimension"]]


sort_p = define_op(
    "sort",
    jvp=_sort_jvp,
    batch=batching.sort,
    type_rule=_sort_type,
    kernel=_sort_kernel,
    rule=_sort_rule,
    multiple_results=True,
    explicit=_sort_specs,
    partition=sort_partition,
    algorithm=_sort_algorithm,
    workspace=_sort_workspace,
    arranges=True,
    small=SmallForm(
        later("shardwise.ops.indexing.small_sorting", "write_sort"),
        later("shardwise.ops.indexing.small_sorting", "sort_fits"),
    ),
)


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort `operand` along `dimension`. With `is_stable` equal elements keep their order. Several operands (a tuple
    or list) are sorted together by the first `num_keys` operands.

    Returns an array, or a tuple for a sequence of operands. NaNs are last. Raises TypeError if shapes differ or the
    sequence is empty, ValueError for an invalid dimension or number of keys.

    >>> lax.sort((jnp.array([2, 1]), jnp.array([20, 10])))
    (Array([1, 2], dtype=int32), Array([10, 20], dtype=int32))
    """
    several = isinstance(operand, (list, tuple))
    values = [as_array(x) for x in operand] if several else [as_array(operand)]
    if not values:
        raise TypeError("sort needs at least one operand.")
    if not 1 <= num_keys <= len(values):
        raise ValueError(f"sort: num_keys={num_keys} must lie between 1 and the number of operands, {len(values)}.")
    dim = dim_index(dimension, values[0].ndim, "sort")
    out = bind(sort_p, *values, dimension=dim, is_stable=bool(is_stable), num_keys=operator.index(num_keys))
    return tuple(out) if several else out[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Array, Array]:
    """`keys` sorted along `dimension`, and `values` in the same order. With `is_stable` equal keys keep theirs.

    >>> lax.sort_key_val(jnp.array([2, 1]), jnp.array([20, 10]))
    (Array([1, 2], dtype=int32), Array([10, 20], dtype=int32))
    """
    first, second = sort((keys, values), dimension, is_stable, num_keys=1)
    return first, second


def argsort_positions(x: Any, dimension: int = -1, *, is_stable: bool = True, dtype: Any = np.int32) -> Array:
    """The positions that sort `x` along `dimension`, as `dtype`."""
    keys = as_array(x)
    dim = dim_index(dimension, keys.ndim, "argsort")
    positions = broadcasted_iota(dtype, keys.shape, dim)
    return sort((keys, positions), dim, is_stable)[1]


# -- top_k -------------------------------------------------------------------------------------


def _top_k_type(x: ShapedArray, *, k: int, axis: int) -> tuple[ShapedArray, ...]:
    if isdtype(x.dtype, "complex floating"):
        raise ValueError(f"top_k does not order complex values, got {x.str_short()}.")
    if not isdtype(x.dtype, ("bool", "integral", "real floating")):
        raise ValueError(f"top_k does not order values of dtype {x.dtype.name}.")
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}.")
    if k > x.shape[axis]:
        raise ValueError(
            f"k argument to top_k must be no larger than size along axis {axis} of {x.str_short()}, got {k}."
        )
    if x.shape[axis] > np.iinfo(np.int32).max:
        raise ValueError(
            f"top_k returns int32 indices, which will overflow along axis {axis} of {x.str_short()}. Split that dim."
        )
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return ShapedArray(shape, x.dtype, x.weak_type), ShapedArray(shape, np.dtype(np.int32), x.weak_type)


def descending_ranks(x: Ndarray) -> Ndarray:
    """Integer ranks of `x` in the total order, greatest values first."""
    if x.dtype.kind == "b":
        return (~x).view(np.int8)
    keys = comparable(x)
    if keys.dtype == np.uint32:
        return (keys ^ np.uint32(0x7FFFFFFF)).view(np.int32)
    if keys.dtype.kind != "f":
        return ~keys
    bits = np.ascontiguousarray(keys).view(f"i{keys.dtype.itemsize}")
    ranks = bits >> (8 * bits.itemsize - 1)  # -1 for negative floats, whose bits are in reverse order
    ranks &= bits.dtype.type(np.iinfo(bits.dtype).max)
    ranks ^= bits
    return np.invert(ranks, out=ranks)


def _top_k_kernel(env: Env, x: Ndarray, *, k: int, axis: int) -> tuple[Ndarray, ...]:
    at = env.lead + axis
    if at == x.ndim - 1 and row_selection.selects(x, k) and row_selection.row_steps(x) is not None:
        return row_selection.greatest(x, k)
    return in_rows(lambda part: _greatest(part, at, k), (x,), at, [(k, x.dtype), (k, np.int32)])


def _greatest(x: Ndarray, at: int, k: int) -> tuple[Ndarray, Ndarray]:
    rows = with_dim_at(x, at, -1)
    n = rows.shape[-1]
    if row_selection.selects(rows, k):
        values, places = row_selection.greatest(np.ascontiguousarray(rows), k, threads=1)
        return with_dim_at(values, -1, at), with_dim_at(places, -1, at)
    ranks = descending_ranks(rows)
    if ranks.dtype.itemsize <= 4 and n < 1 << 31:
        # Rank and position in one integer: ties go to the lowest index, and no two elements are equal.
        packed_ranks = ranks.astype(np.int64)
        packed_ranks <<= 32
        packed_ranks |= np.arange(n)
        if 0 < k < n:
            packed_ranks = np.partition(packed_ranks, k - 1, axis=-1)[..., :k]
        order = np.sort(packed_ranks[..., :k], axis=-1) & 0xFFFFFFFF
    else:
        order = ranks.argsort(axis=-1, kind="stable")[..., :k]
    values = np.take_along_axis(rows, order, -1)
    return with_dim_at(values, -1, at), with_dim_at(order.astype(np.int32), -1, at)


def _top_k_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, k: int, axis: int) -> tuple[Any, Any]:
    values, places = do.top_k(*primals, k=k, axis=axis)
    return [values, places], [take_along(tangents[0], places, axis), None]


def _top_k_algorithm(ins: Types, outs: Types, params: Params) -> Steps:
    """A look at each element. The size: for each look, how many more those take that are put in their place of a sorted list."""
    x, k = ins[0], params["k"]
    length = max(x.shape[params["axis"]], 1)
    return Steps("top_k", float(x.size), size=row_selection.insertion_steps(k, length) / length)


top_k_p = define_op(
    "top_k",
    jvp=_top_k_jvp,
    batch=batching.shift_dims_rule("top_k", "axis"),
    type_rule=_top_k_type,
    kernel=_top_k_kernel,
    rule=lambda ins, outs, params: along_rule(ins[0].shape, params["axis"], 1, 2, outs[0].shape),
    partition=top_k_partition,
    algorithm=_top_k_algorithm,
    multiple_results=True,
    small=SmallForm(
        later("shardwise.ops.indexing.small_selection", "write_top_k"),
        later("shardwise.ops.indexing.small_selection", "top_k_fits"),
    ),
)


def top_k(operand: Any, k: int, *, axis: int = -1) -> list[Array]:
    """The `k` greatest elements of `operand` along `axis`, greatest first, and their positions (int32); ties: lowest
    position first.

    Raises ValueError for complex operands, an invalid axis, or k outside 0..size.

    >>> lax.top_k(jnp.array([1, 9, 3]), 2)
    [Array([9, 3], dtype=int32), Array([1, 2], dtype=int32)]
    """
    x = as_array(operand)
    values, indices = bind(top_k_p, x, k=operator.index(k), axis=dim_index(axis, x.ndim, "top_k"))
    return [values, indices]


def _check_approximation(
    name: str,
    operand: Any,
    *,
    k: int,
    reduction_dimension: int,
    recall_target: float,
    reduction_input_size_override: int,
    aggregate_to_topk: bool,
) -> tuple[Array, int, int]:
    """The operand, how many elements are returned, and the dim."""
    x = as_array(operand)
    if not isdtype(x.dtype, "real floating"):
        raise ValueError(f"{name} takes a floating operand, got {x.dtype.name}.")
    if not x.ndim:
        raise TypeError(f"{name}: operand must have >= 1 dimension, got shape ().")
    dim = dim_index(reduction_dimension, x.ndim, name)
    if k <= 0:
        raise ValueError(f"{name}: k must be positive, got {k}.")
    if k > x.shape[dim]:
        raise ValueError(f"{name}: k={k} exceeds the size of dim {dim}, {x.shape[dim]}.")
    if not 0 < recall_target <= 1:
        raise ValueError(f"{name}: recall_target must lie in (0, 1], got {recall_target}.")
    size, override = x.shape[dim], reduction_input_size_override
    if override != -1 and override < size:
        raise ValueError(
            f"{name}: reduction_input_size_override={override} is less than the size of dim {dim}, {size}."
        )
    # Without aggregation the candidates of all bins are returned; exact search has one bin per element.
    return x, operator.index(k) if aggregate_to_topk else size, dim


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Array]:
    """The `k` greatest elements of `operand` along `reduction_dimension` and their positions: f[n, m] -> f[n, k],
    i32[n, k]; exact, so that every `recall_target` is met.

    Without `aggregate_to_topk` all elements are returned, in order. Raises ValueError for operands that are not
    floats.

    Args:
        reduction_input_size_override: without effect, as the result is exact.

    >>> lax.approx_max_k(jnp.array([3.0, 1.0, 2.0]), 2)
    [Array([3., 2.], dtype=float32), Array([0, 2], dtype=int32)]
    """
    return _approximate(
        "approx_max_k",
        operand,
        k=k,
        reduction_dimension=reduction_dimension,
        recall_target=recall_target,
        is_max_k=True,
        reduction_input_size_override=reduction_input_size_override,
        aggregate_to_topk=aggregate_to_topk,
    )


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Array]:
    """The `k` least elements of `operand` along `reduction_dimension` and their positions: f[n, m] -> f[n, k], i32[n,
    k]; see `approx_max_k`.

    `recall_target`, `reduction_input_size_override` and `aggregate_to_topk` as there.

    >>> lax.approx_min_k(jnp.array([3.0, 1.0, 2.0]), 2)
    [Array([1., 2.], dtype=float32), Array([1, 2], dtype=int32)]
    """
    return _approximate(
        "approx_min_k",
        operand,
        k=k,
        reduction_dimension=reduction_dimension,
        recall_target=recall_target,
        is_max_k=False,
        reduction_input_size_override=reduction_input_size_override,
        aggregate_to_topk=aggregate_to_topk,
    )


def _least_k(x: Array, k: int, dim: int) -> list[Array]:
    values, indices = top_k(neg(x), k, axis=dim)
    return [neg(values), indices]


def _approximate(name: str, operand: Any, *, is_max_k: bool, **params: Any) -> list[Array]:
    x, count, dim = _check_approximation(name, operand, **params)
    if SHOWING.get():
        return list(bind(_approx_top_k_p, x, is_max_k=is_max_k, **params))
    return top_k(x, count, axis=dim) if is_max_k else _least_k(x, count, dim)


def _approximate_k(x: Array, *, is_max_k: bool, **params: Any) -> list[Array]:
    x, count, dim = _check_approximation("approx_top_k", x, **params)
    return top_k(x, count, axis=dim) if is_max_k else _least_k(x, count, dim)


_approx_top_k_p = define_shown("approx_top_k", _approximate_k, several=True)
