"""Reductions of rows by segment (`segment_sum` and others), as scatters into one row per segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.errors import ConcretizationTypeError
from shardwise.ir import Array, Tracer
from shardwise.ops.indexing.scatter import ScatterDimensionNumbers, scatter_add, scatter_max, scatter_min, scatter_mul
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.broadcast import expand_dims
from shardwise.ops.shapes.fill import full
from shardwise.runtime.monoids import MONOIDS

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _segment(name: str, reduction: str, scatter: Callable[..., Array]) -> Callable[..., Array]:
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
        if bucket_size is not None:
            raise NotImplementedError(
                f"{name}: bucket_size is not supported; sums are exact enough without. Leave it out."
            )
        if out_sharding is not None:
            raise NotImplementedError(f"{name}: out_sharding is not supported. Leave it out, and reshard the result.")
        values, ids = as_array(data), as_array(segment_ids)
        if num_segments is None:
            if isinstance(ids, Tracer):
                raise ConcretizationTypeError(
                    f"{name} inside a transformed function needs num_segments=, a Python int."
                )
            num_segments = int(np.max(np.asarray(ids), initial=-1)) + 1
        num_segments = int(num_segments)
        if num_segments < 0:
            raise ValueError(f"{name}: num_segments must be non-negative, got {num_segments}.")
        out = full((num_segments, *values.shape[ids.ndim :]), MONOIDS[reduction].identity(values.dtype), values.dtype)
        window = tuple(range(ids.ndim, values.ndim))
        numbers = ScatterDimensionNumbers(window, (0,), (0,))
        return scatter(
            out,
            expand_dims(ids, (ids.ndim,)),
            values,
            numbers,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            mode=mode,
        )

    segment.__name__ = segment.__qualname__ = name
    segment.__doc__ = (
        f"The {reduction} of the rows of `data` that have each segment id: [n, ...] and int[n] -> [num_segments, ...].\n\n"
        "    Ids outside of [0, num_segments) are left out. Without `num_segments` it is the largest id plus one, which needs\n"
        "    concrete ids.\n"
    )
    return segment


segment_sum = _segment("segment_sum", "sum", scatter_add)
segment_prod = _segment("segment_prod", "prod", scatter_mul)
segment_max = _segment("segment_max", "max", scatter_max)
segment_min = _segment("segment_min", "min", scatter_min)
