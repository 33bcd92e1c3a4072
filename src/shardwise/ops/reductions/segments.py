"""Reductions of rows by segment (`segment_sum` and others), as scatters into one row per segment."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.errors import ConcretizationTypeError
from shardwise.ir import Array, Op, Tracer, bind
from shardwise.ops.elementwise.binary import div
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.indexing.scatter import ScatterDimensionNumbers, scatter_add, scatter_max, scatter_min, scatter_mul
from shardwise.ops.reductions.reduce import reduce_max_p, reduce_min_p, reduce_prod_p, reduce_sum_p
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import later
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.ops.shapes.broadcast import broadcast_in_dim, expand_dims
from shardwise.ops.shapes.fill import full, full_like
from shardwise.ops.shapes.iota import broadcasted_iota
from shardwise.ops.shapes.joining import concatenate
from shardwise.runtime.monoids import MONOIDS

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


_auto_axes = later("shardwise.transforms.manual.explicit", "auto_axes")


def _for_each_id(name: str, values: Array, shape: tuple[int, ...]) -> Array:
    """`values` repeated, as NumPy broadcasts, so that each id has a row."""
    lead = len(shape) - values.ndim
    if lead < 0 or any(n not in (1, m) for n, m in zip(values.shape, shape[lead:], strict=True)):
        raise ValueError(f"{name}: data of shape {values.shape} has no row for each of the ids, which take {shape}.")
    if values.shape == shape:
        return values
    return broadcast_in_dim(values, shape, tuple(range(lead, len(shape))))


_DOC = """The {reduction} of the rows of `data` that have each segment id: [n, ...] and int[n] -> [num_segments, ...].

    Args:
        data: a row for each id, or what broadcasts to that, as a number does.
        segment_ids: the id of each row; rows with ids outside of [0, num_segments) are left out.
        num_segments: the number of results; None: the largest id plus one, which needs concrete ids.
        indices_are_sorted: promises that ids ascend; without effect on the result.
        unique_indices: promises that no id occurs twice, which is faster.
        bucket_size: reduce rows in groups of that many first, which rounds sums less.
        mode: what becomes of ids out of bounds, as for `lax.scatter`.
        out_sharding: the sharding of the result on Explicit axes, where that of the rows does not say it.

    Raises:
        ValueError: `num_segments` is negative, `bucket_size` not positive, or `data` has other rows than ids.
        ConcretizationTypeError: `segment_ids` are traced without `num_segments`.

    >>> jax.ops.{name}(jnp.array([1, 2, 3]), jnp.array([0, 1, 0]))
    Array({shown}, dtype=int32)
    """


def _segment(name: str, reduction: str, scatter: Callable[..., Array], reduced: Op, shown: str) -> Callable[..., Array]:
    def segment(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
        out_sharding: Any = None,
    ) -> Array:
        if bucket_size is not None and operator.index(bucket_size) < 1:
            raise ValueError(f"{name}: bucket_size must be positive, got {bucket_size}.")
        values, ids = as_array(data), as_array(segment_ids)
        num_segments = _count(name, num_segments, ids)
        rows, tail = ids.shape, values.shape[1:]
        resolved_sharding = resolve_out_sharding(out_sharding, name, 1 + len(tail))
        if resolved_sharding is not None and resolved_sharding.mesh.explicit_axes:

            def whole(values: Any, ids: Any) -> Array:
                return segment(values, ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode)

            return _auto_axes(whole, out_sharding=resolved_sharding)(values, ids)
        values = _for_each_id(name, values, (*rows, *tail))
        size = None if bucket_size is None or not rows else operator.index(bucket_size)
        buckets = () if size is None else (-(-rows[0] // size),)
        lead = (*buckets, num_segments)
        out = full((*lead, *tail), MONOIDS[reduction].identity(values.dtype), values.dtype)
        positions = expand_dims(ids, (ids.ndim,))
        if size is not None:
            positions = _with_buckets(positions, size)
        window = tuple(range(ids.ndim, values.ndim))
        numbers = ScatterDimensionNumbers(window, tuple(range(len(lead))), tuple(range(len(lead))))
        result = scatter(
            out,
            positions,
            values,
            numbers,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            mode=mode,
        )
        return result if size is None else bind(reduced, result, axes=(0,))

    segment.__name__ = segment.__qualname__ = name
    segment.__doc__ = _DOC.format(reduction=reduction, name=name, shown=shown)
    return segment


def _count(name: str, num_segments: int | None, ids: Array) -> int:
    """The number of segments; as many as `ids` name for None."""
    if num_segments is None:
        if isinstance(ids, Tracer):
            raise ConcretizationTypeError(f"{name} inside a transformed function needs num_segments=, a Python int.")
        return int(np.max(np.asarray(ids), initial=-1)) + 1
    count = int(num_segments)
    if count < 0:
        raise ValueError(f"{name}: num_segments must be non-negative, got {count}.")
    return count


def _with_buckets(positions: Array, size: int) -> Array:
    """Positions of segments, each after that of its bucket of `size` rows: ids out of range stay out of range."""
    if positions.dtype.itemsize < 4:  # the number of a bucket has to fit
        positions = as_array(convert(positions, np.dtype(np.int32)))
    number = broadcasted_iota(positions.dtype, positions.shape, 0)
    return concatenate([div(number, full_like(number, size)), positions], positions.ndim - 1)


segment_sum = _segment("segment_sum", "sum", scatter_add, reduce_sum_p, "[4, 2]")
segment_prod = _segment("segment_prod", "prod", scatter_mul, reduce_prod_p, "[3, 2]")
segment_max = _segment("segment_max", "max", scatter_max, reduce_max_p, "[3, 2]")
segment_min = _segment("segment_min", "min", scatter_min, reduce_min_p, "[1, 2]")
