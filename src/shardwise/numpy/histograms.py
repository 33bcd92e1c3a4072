"""Counts of values: bincount and histograms over one or several variables.

In: values, and bins: their number or their edges. Out: counts (sums of weights) and edges.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype, to_inexact
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import Array, Tracer, is_concrete, literal, not_concrete, primal_of
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import (
    as_array,
    astype,
    concrete_int,
    constant,
    is_bool,
    is_integer,
    promote_dtypes,
    promote_inexact,
    value,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.at import at
from shardwise.numpy.creation import asarray
from shardwise.numpy.cumulative import diff
from shardwise.numpy.ranges import linspace
from shardwise.numpy.reductions import max, min, sum
from shardwise.numpy.shapes import flat
from shardwise.ops.indexing.search import searchsorted
from shardwise.ops.rules.out_sharding import resolve_out_sharding

__all__ = ["bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]

Bins = Any  # a number of bins, or their edges


# -- integers --------------------------------------------------------------------------------------------------


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, out_sharding: Any = None
) -> Array:
    """The number of occurrences (or total of `weights`) of each integer in the 1-d `x`; negative ones count as 0.

    Args:
        minlength: the least size of the result, which else is one more than the greatest integer.
        length: its size; greater integers are left out. Needed under transformations.
        out_sharding: how the result is split over Explicit axes: replicated or unreduced.

    Raises:
        TypeError: `x` is not of integers. ValueError: it has other than one dim, or `weights` another shape.
        ConcretizationTypeError: `x` is traced without `length`.
        ShardingTypeError: `out_sharding` splits the result.

    >>> jnp.bincount(jnp.array([0, 2, 2, 3]), length=4)
    Array([1, 0, 2, 1], dtype=int32)
    """
    v = checked("bincount", x)
    if is_bool(v.dtype):
        v = as_array(astype(v, np.dtype(np.int32)))
    if not is_integer(v.dtype):
        raise TypeError(f"bincount: x must have an integer type; got {v.dtype}.")
    if v.ndim != 1:
        raise ValueError(f"bincount: only 1-dimensional input supported, got shape {v.shape}.")
    least = concrete_int(minlength, "minlength of bincount")
    if length is None:
        if isinstance(v, Tracer) and not is_concrete(v):
            raise not_concrete(
                v, "the size of bincount's result depends on values", "Pass the static argument length=."
            )
        host_values = np.asarray(primal_of(v))
        size = builtins.max(least, int(builtins.max(0, host_values.max())) + 1 if host_values.size else 0)
    else:
        size = concrete_int(length, "length of bincount")
    if weights is None:
        w: Any = literal(1, default_dtype("i"))
    else:
        w = checked("bincount", weights, 1)
        if w.shape != v.shape:
            raise ValueError(f"bincount: weights must match x, got {w.aval.str_short()} for {v.aval.str_short()}.")
    target = resolve_out_sharding(out_sharding, "jnp.bincount", 1)
    if target is not None and any(entry is not None for entry in target.spec.partitions):
        raise ShardingTypeError(f"bincount: out_sharding can only be replicated or unreduced, got {target.spec}.")
    v = lax.max(v, literal(0, v.dtype))
    zeros = lax.full((size,), 0, w.dtype)
    return at(zeros)[v].add(w, mode="drop", out_sharding=out_sharding)


# -- one variable ----------------------------------------------------------------------------------------------


def histogram_bin_edges(a: Any, bins: Bins = 10, range: Any = None, weights: Any = None) -> Array:
    """The edges of `bins` equal bins over `range` (default: from the least to the greatest value), or the given edges.

    `weights` has no effect. NotImplementedError for a text, ValueError for a range that is no pair.

    >>> jnp.histogram_bin_edges(jnp.array([0.0, 4.0]), bins=2)
    Array([0., 2., 4.], dtype=float32)
    """
    del weights
    if isinstance(bins, str):
        raise NotImplementedError(f"histogram_bin_edges: bins={bins!r} is not supported; give their number or edges.")
    x, given = checked("histogram_bin_edges", a), value("histogram_bin_edges", bins, 1)
    dtype = to_inexact(x.dtype)
    if given.ndim == 1:
        return as_array(astype(given, dtype))
    count = concrete_int(bins, "bins of histogram_bin_edges")
    if range is None:
        low, high = (as_array(astype(v, dtype)) for v in (min(x), max(x)))
    else:
        ends = asarray(range, dtype)
        if ends.shape != (2,):
            raise ValueError(
                f"histogram_bin_edges: `range` must be either None or a sequence of two scalars, got {range}."
            )
        low, high = lax.unstack(ends)
    single = lax.eq(low, high)
    low = where_(single, low - constant(low, 0.5), low)
    high = where_(single, high + constant(high, 0.5), high)
    return linspace(low, high, count + 1, dtype=dtype)


def _bins_of(x: Array, edges: Array) -> Array:
    """The number of the bin of each value, counted from 1; the last edge belongs to the last bin."""
    last = edges.shape[0] - 1
    bins = searchsorted(edges, x, right=True)
    return where_(lax.eq(x, lax.index_in_dim(edges, last, keepdims=False)), literal(last, bins.dtype), bins)


def histogram(
    a: Any, bins: Bins = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, Array]:
    """The counts of the values (or the totals of their `weights`) in each bin, and the bins' edges.

    `density`: divided by the total and by the bins' widths. ValueError if `weights` has another shape than `a`.

    Args:
        bins: the number of bins of one width, or the ascending edges.
        range: the ends (first, last) of the bins where `bins` is a number; by default those of the values.

    >>> jnp.histogram(jnp.array([0.0, 1.0, 1.0, 3.0]), bins=3)
    (Array([1., 2., 1.], dtype=float32), Array([0., 1., 2., 3.], dtype=float32))
    """
    x = checked("histogram", a)
    value("histogram", bins, 1)
    if weights is None:
        x = as_array(promote_inexact(x)[0])
        w: Any = literal(1, x.dtype)
    else:
        w = checked("histogram", weights, 2)
        if w.shape != x.shape:
            raise ValueError(f"histogram: weights should have the same shape as a, got {w.shape} and {x.shape}.")
        x, w = (flat(as_array(v)) for v in promote_inexact(x, w))
    x = flat(x)
    edges = histogram_bin_edges(x, bins, range)
    totals = at(lax.full(edges.shape, 0, w.dtype))[_bins_of(x, edges)].add(w, mode="drop")
    counts = lax.slice_in_dim(totals, 1, None)
    if density:
        counts = counts / diff(edges) / sum(counts)
    return counts, edges


# -- several variables -----------------------------------------------------------------------------------------


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, Array, Array]:
    """`histogramdd` of the variables `x` and `y`, both f[n]: the counts, and the edges along each.

    Args:
        range: the ends of the bins, a pair for each variable.
        weights: f[n]: how much each point counts.
        density: divide by the total and by the bins' areas.

    >>> jnp.histogram2d(jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0]), bins=2)[0]
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    first, second = checked("histogram2d", x), checked("histogram2d", y, 1)
    if hasattr(bins, "__len__") and len(bins) not in (1, 2):
        bins = [asarray(bins)] * 2
    a, b = (lax.expand_dims(as_array(v), (1,)) for v in promote_dtypes(first, second))
    counts, edges = histogramdd(lax.concatenate([a, b], 1), bins, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(
    sample: Any, bins: Any = 10, range: Sequence[Any] | None = None, weights: Any = None, density: bool | None = None
) -> tuple[Array, list[Array]]:
    """The counts of the rows of `sample` [n, d] in each bin of a d-dimensional grid, and the edges along each variable.

    Args:
        bins: a number or edges for all variables, or a sequence with one of these for each.
        range: for each variable a pair or None.
        weights: one per row; the totals instead of counts.
        density: divided by the total and by the bins' volumes.

    Raises ValueError where these do not fit the sample.

    >>> jnp.histogramdd(jnp.array([[0.0, 0.0], [1.0, 1.0]]), bins=2)[0]
    Array([[1, 0],
           [0, 1]], dtype=int32)
    """
    rows = checked("histogramdd", sample)
    w = None if weights is None else checked("histogramdd", weights, 1)
    if rows.ndim != 2:
        raise ValueError(f"histogramdd takes a sample of two dims, got shape {rows.shape}.")
    if w is not None and w.shape != rows.shape[:1]:
        raise ValueError(f"histogramdd: should have one weight for each sample, got {w.shape} for {rows.shape}.")
    rows, *rest = promote_inexact(rows) if w is None else promote_inexact(rows, w)  # type: ignore[assignment]
    n, variables = rows.shape
    ranges: Sequence[Any] = [None] * variables if range is None else range
    if len(ranges) != variables or any(r is not None and np.shape(r)[0] != 2 for r in ranges):
        raise ValueError(
            f"histogramdd: for sample.shape={(n, variables)}, range must be a sequence of {variables} pairs or "
            f"Nones; got range={range!r}."
        )
    one_for_all = not isinstance(bins, list | tuple) and not (hasattr(bins, "shape") and bins.ndim)
    given = [bins] * variables if one_for_all else list(bins)
    if len(given) != variables:
        raise ValueError(
            f"histogramdd: should be a bin for each dimension, got {len(given)} for {variables} variables."
        )
    edges: list[Array] = []
    place: Any = None
    for column, b, r in zip(lax.unstack(as_array(rows), 1), given, ranges, strict=True):
        edges.append(histogram_bin_edges(column, b, r))
        bins_of = _bins_of(column, edges[-1])
        # One more bin on each side counts values out of range.
        place = bins_of if place is None else place * (edges[-1].shape[0] + 1) + bins_of
    sizes = tuple(e.shape[0] + 1 for e in edges)
    counts = lax.reshape(bincount(place, rest[0] if rest else None, length=math.prod(sizes)), sizes)
    counts = lax.slice(counts, (1,) * variables, tuple(size - 1 for size in sizes))
    if density:
        counts = as_array(astype(counts, rows.dtype))
        counts = counts / sum(counts)
        for d, e in enumerate(edges):
            counts = counts / lax.expand_dims(diff(e), [i for i in builtins.range(variables) if i != d])
    return counts, edges
