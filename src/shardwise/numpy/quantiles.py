"""Medians, quantiles and percentiles, with and without NaN: positions in sorted arrays.

In: an array, probabilities, axes. Out: for each probability (dims in front) the array without these axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Axis,
    array,
    as_array,
    astype,
    broadcast_to_shape,
    canonical_axes,
    constant,
    is_bool,
    is_complex,
    is_integer,
    promote_inexact,
    promote_shapes,
    value,
    zero_like,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.indexing import take_along_axis
from shardwise.numpy.predicates import isnan
from shardwise.transforms.jit.shown_calls import shown_call
from shardwise.transforms.manual.explicit import auto_axes, reshard

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


@shown_call("axis out overwrite_input method keepdims")
def quantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """The quantiles `q` (0 to 1, a scalar or 1-d) of the elements of `a` over `axis`; NaN if one is NaN.

    `method` selects the result between two elements: 'linear', 'lower', 'higher', 'midpoint', 'nearest',
    'inverted_cdf'; only the last one takes `weights`. ValueError for other methods and for complex values.

    Args:
        out: only None, as arrays are immutable; ValueError otherwise.
        overwrite_input: only False, as arrays are immutable; ValueError otherwise.
        keepdims: keep the reduced dims, with size 1.
        weights: numbers that broadcast with `a`: how often each element counts.

    >>> jnp.quantile(jnp.array([1.0, 2.0, 4.0]), jnp.array([0.5, 0.75]))
    Array([2., 3.], dtype=float32)
    """
    return _quantile("quantile", a, q, axis, out, overwrite_input, method, keepdims, weights, skip_nan=False)


@shown_call("axis out overwrite_input method keepdims")
def nanquantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """The quantiles `q` (0 to 1) of `a` over `axis`, without NaNs.

    Args:
        out: only None, as arrays are immutable; ValueError otherwise.
        overwrite_input: only False, as arrays are immutable; ValueError otherwise.
        method: as for `quantile`.
        keepdims: keep the reduced dims, with size 1.
        weights: numbers that broadcast with `a`: how much each element counts.

    >>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.5)
    Array(2., dtype=float32)
    """
    return _quantile("nanquantile", a, q, axis, out, overwrite_input, method, keepdims, weights, skip_nan=True)


@shown_call("axis out overwrite_input method keepdims out_sharding")
def percentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The percentiles `q` (0 to 100, a scalar or 1-d) of `a` over `axis`; see `quantile`.

    Args:
        out: only None, as arrays are immutable; ValueError otherwise.
        overwrite_input: only False, as arrays are immutable; ValueError otherwise.
        method: as for `quantile`.
        keepdims: keep the reduced dims, with size 1.
        weights: numbers that broadcast with `a`: how much each element counts.
        out_sharding: how the result is split over Explicit axes.

    >>> jnp.percentile(jnp.array([1.0, 2.0, 3.0]), 50)
    Array(2., dtype=float32)
    """
    fraction = _hundredth(q)

    def body(a: Any, weights: Any) -> Array:
        return _quantile(
            "percentile", a, fraction, axis, out, overwrite_input, method, keepdims, weights, skip_nan=False
        )

    if out_sharding is None:
        return body(a, weights)
    if not isinstance(a, Array) or a.aval.mesh is None:
        return reshard(body(a, weights), out_sharding)
    return auto_axes(body, out_sharding=out_sharding)(a, weights)


@shown_call("axis out overwrite_input method keepdims")
def nanpercentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Array:
    """The percentiles `q` (0 to 100) of `a` over `axis`, without NaNs; see `nanquantile`.

    Args:
        out: only None, as arrays are immutable; ValueError otherwise.
        overwrite_input: only False, as arrays are immutable; ValueError otherwise.
        method: as for `quantile`.
        keepdims: keep the reduced dims, with size 1.
        weights: numbers that broadcast with `a`: how much each element counts.

    >>> jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50)
    Array(2., dtype=float32)
    """
    return _quantile(
        "nanpercentile", a, _hundredth(q), axis, out, overwrite_input, method, keepdims, weights, skip_nan=True
    )


@shown_call("axis out overwrite_input keepdims")
def median(a: Any, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Array:
    """The middle of the sorted elements of `a` over `axis`, the mean of the two middle ones for an even number.
    `out`, `overwrite_input` and `keepdims` as for `quantile`.

    >>> jnp.median(jnp.array([7.0, 1.0, 3.0, 5.0]))
    Array(4., dtype=float32)
    """
    return _quantile("median", a, 0.5, axis, out, overwrite_input, "midpoint", keepdims, None, skip_nan=False)


@shown_call("axis out overwrite_input keepdims")
def nanmedian(
    a: Any, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """The median of `a` over `axis`, without NaNs. `out`, `overwrite_input` and `keepdims` as for `quantile`.

    >>> jnp.nanmedian(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2., dtype=float32)
    """
    return _quantile("nanmedian", a, 0.5, axis, out, overwrite_input, "midpoint", keepdims, None, skip_nan=True)


def _hundredth(q: Any) -> Any:
    if isinstance(q, int | float):
        return q / 100
    (v,) = promote_inexact(value("percentile", q, 1))
    return lax.div(v, constant(v, 100))


def _quantile(
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    out: None,
    overwrite_input: bool,
    method: str,
    keepdims: bool,
    weights: Any,
    skip_nan: bool,
) -> Array:
    if overwrite_input or out is not None:
        raise ValueError(f"{name}: arrays are immutable, so overwrite_input=True and out= are not supported.")
    if method not in _METHODS:
        raise ValueError(f"{name}: method can only be one of {', '.join(map(repr, _METHODS))}, got {method!r}.")
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(f"{name}: method {method!r} does not take weights; only 'inverted_cdf' does.")
    x, probabilities = array(name, a), array(name, q, 1)
    if is_complex(x.dtype) or is_complex(probabilities.dtype):
        raise ValueError(f"{name} does not support complex values, which have no order.")
    if is_integer(probabilities.dtype) or is_bool(probabilities.dtype):
        raise TypeError(f"{name} takes floats as q, got {probabilities.dtype}; write 1.0 for 1, or use percentile.")
    if probabilities.ndim > 1:
        raise ValueError(f"q must have rank <= 1, got shape {probabilities.shape}.")
    (x_,) = promote_inexact(x)
    x = as_array(astype(x_, x_.dtype))
    dtype = x.dtype
    axes = canonical_axes(axis, x.ndim)
    kept_dims = [d for d in range(x.ndim) if d not in axes]
    shape = tuple(x.shape[d] for d in kept_dims)
    n = x.size // max(1, int(np.prod(shape)))
    if not n and probabilities.size and 0 in [x.shape[d] for d in axes]:
        raise ValueError(f"{name}: no elements lie over axes {axes} of shape {x.shape}.")
    rows = lax.reshape(lax.transpose(x, [*kept_dims, *axes]), (*shape, n))
    p = as_array(astype(probabilities, np.dtype(np.float64 if dtype == np.float64 else np.float32)))
    if not n and not p.size:
        result = lax.full((*shape, 0), 0, dtype)
    elif weights is not None:
        w = _rows(name, weights, x, axes, kept_dims, shape, n)
        result = _weighted_quantile(rows, w, p, skip_nan)
    else:
        result = _interpolate(rows, p, method, skip_nan)
    # The probabilities' dim goes to the front.
    if p.ndim:
        result = lax.transpose(result, [result.ndim - 1, *range(result.ndim - 1)])
    if keepdims:
        result = lax.expand_dims(result, [d + p.ndim for d in axes])
    return as_array(astype(result, dtype))


def _rows(
    name: str, weights: Any, x: Array, axes: tuple[int, ...], kept: list[int], shape: tuple[int, ...], n: int
) -> Array:
    """Weights, of the shape of `x` or of its reduced dims, laid out as the rows are."""
    w = array(name, weights, 2)
    if w.shape != x.shape:
        if w.shape != tuple(x.shape[d] for d in axes):
            raise ValueError(f"{name}: weights of shape {w.shape} fit neither the array {x.shape} nor its axes {axes}.")
        w = lax.broadcast_in_dim(w, x.shape, axes)
    return lax.reshape(lax.transpose(as_array(astype(w, x.dtype)), [*kept, *axes]), (*shape, n))


def _interpolate(rows: Array, p: Array, method: str, skip_nan: bool) -> Array:
    """f[..., n] and probabilities f[k] (or f[]) -> f[..., k] (or f[...])."""
    n = rows.shape[-1]
    nan_mask = isnan(rows)
    sorted_rows = lax.sort(rows)  # NaN comes last
    probabilities = lax.reshape(p, (1,) * (rows.ndim - 1) + (p.size,))
    if skip_nan:
        present = lax.reduce_sum(lax.convert_element_type(lax.bitwise_not(nan_mask), p.dtype), (rows.ndim - 1,))
        last = lax.expand_dims(lax.sub(present, constant(present, 1)), (rows.ndim - 1,))
        last = lax.max(last, zero_like(last))
    else:
        last = literal(n - 1, p.dtype)
    probabilities = lax.clamp(zero_like(p), probabilities, constant(p, 1))
    if method == "inverted_cdf":
        count = lax.add(last, literal(1, p.dtype))
        position = lax.max(lax.sub(lax.ceil(lax.mul(probabilities, count)), literal(1, p.dtype)), zero_like(p))
    else:
        position = lax.mul(probabilities, last)
    below, above = lax.floor(position), lax.ceil(position)
    low, high = _at_rank(sorted_rows, below), _at_rank(sorted_rows, above)
    weight = as_array(astype(lax.sub(position, below), rows.dtype))
    if method == "linear":
        one = constant(weight, 1)
        result = lax.add(lax.mul(low, lax.sub(one, weight)), lax.mul(high, weight))
    elif method == "midpoint":
        result = lax.mul(lax.add(low, high), constant(low, 0.5))
    elif method == "higher":
        result = high
    elif method == "nearest":
        result = where_(lax.le(weight, constant(weight, 0.5)), low, high)
    else:
        result = low
    if not skip_nan:
        is_poisoned = lax.expand_dims(lax.reduce_or(nan_mask, (rows.ndim - 1,)), (rows.ndim - 1,))
    else:  # a row of NaN alone has slopes of 0
        is_poisoned = lax.expand_dims(lax.reduce_and(nan_mask, (rows.ndim - 1,)), (rows.ndim - 1,))
    result = where_(is_poisoned, constant(result, np.nan), result)
    return result if p.ndim else lax.squeeze(result, (result.ndim - 1,))


def _at_rank(ordered: Array, position: Array) -> Array:
    """The elements of each row at these places: f[..., n] and f[... or 1, k] -> f[..., k]."""

    index = lax.convert_element_type(position, default_dtype("i"))
    index = broadcast_to_shape(index, (*ordered.shape[:-1], index.shape[-1]))
    return take_along_axis(ordered, index, -1)


def _weighted_quantile(rows: Array, weights: Array, p: Array, skip_nan: bool) -> Array:
    """The first element at which the part of the weights seen reaches the probability."""
    nan_mask = isnan(rows)
    weights = where_(nan_mask, zero_like(weights), weights)
    ordered_rows, sorted_weights = lax.sort((rows, weights), num_keys=1)
    last = rows.ndim - 1
    cumulative_weights = lax.cumsum(sorted_weights, last)
    total = lax.slice_in_dim(cumulative_weights, rows.shape[-1] - 1, rows.shape[-1], axis=last)
    share = lax.expand_dims(lax.div(cumulative_weights, total), (last,))  # f[..., 1, n]
    wanted_shares = lax.reshape(as_array(astype(p, rows.dtype)), (1,) * last + (p.size, 1))
    smaller = lax.lt(*promote_shapes("quantile", share, wanted_shares))
    position = lax.reduce_sum(lax.convert_element_type(smaller, p.dtype), (smaller.ndim - 1,))
    position = lax.min(position, literal(rows.shape[-1] - 1, p.dtype))
    result = _at_rank(ordered_rows, position)
    if not skip_nan:
        is_poisoned = lax.expand_dims(lax.reduce_or(nan_mask, (last,)), (last,))
        result = where_(is_poisoned, constant(result, np.nan), result)
    return result if p.ndim else lax.squeeze(result, (result.ndim - 1,))


__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]
