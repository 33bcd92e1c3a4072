"""Sums of exponentials that do not overflow: `logsumexp`, `softmax`, `log_softmax`; `scipy.special` offers them."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np

from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Axis,
    array,
    canonical_axes,
    convert,
    is_complex,
    promote_to_inexact,
    spread_together,
    strong,
)
from shardwise.numpy.named_axes import split_names
from shardwise.ops.rules.convert import wide_float
from shardwise.scipy.special_operands import choose, inexact_operands

__all__ = ["log_softmax", "logsumexp", "softmax"]


def logsumexp(
    a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """log(sum(b exp(a))) along `axis` (default: all), without overflow; with `return_sign` of its magnitude, and the
    sign.

    `where` says which elements count; `keepdims` keeps the dims, with size 1. Negative sums give NaN unless the sign
    is asked for.

    >>> from shardwise.scipy import special
    >>> special.logsumexp(jnp.array([0.0, 1.0])).round(3)
    Array(1.313, dtype=float32)
    """
    x, *weights = promote_to_inexact("logsumexp", *map(wide_float, [a] if b is None else [a, b]))
    masks = [] if where is None else [lax.convert_element_type(array("logsumexp", where), np.dtype(bool))]
    x, *rest = spread_together("logsumexp", x, *weights, *masks)
    shape, weights = x.shape, rest[: len(weights)]
    for mask in rest[len(weights) :]:
        x = choose(mask, x, -inf)
    for w in weights:
        x = choose(lax.ne(w, lax.full_like(w, 0)), x, -inf)
    axis, names = split_names(axis)
    dims = canonical_axes(axis, x.ndim)
    real = lax.real(x) if is_complex(x.dtype) else x
    top = lax.reduce_max(lax.stop_gradient(real), dims)
    top = lax.pmax(top, names) if names else top
    top = choose(lax.is_finite(top), top, 0.0)
    kept_dims = tuple(d for d in range(x.ndim) if d not in dims)
    spread = lax.broadcast_in_dim(convert(top, x.dtype), shape, kept_dims)
    terms = lax.exp(lax.sub(x, spread))
    for w in weights:
        terms = lax.mul(terms, w)
    total = lax.reduce_sum(terms, dims)
    total = lax.psum(total, names) if names else total
    sign = lax.sign(total)
    size = lax.abs(total) if return_sign or not is_complex(x.dtype) else total
    out = lax.add(lax.log(size), convert(top, size.dtype))
    if not return_sign and weights and not is_complex(out.dtype):
        out = choose(lax.lt(sign, 0.0), nan, out)
    if keepdims:
        out, sign = lax.expand_dims(out, sorted(dims)), lax.expand_dims(sign, sorted(dims))
    return (out, sign) if return_sign else out


def softmax(x: Any, /, *, axis: Axis = None) -> Array:
    """exp(x) divided by its sum along `axis` (default: all).

    >>> from shardwise.scipy import special
    >>> special.softmax(jnp.array([0.0, 1.0])).round(3)
    Array([0.269, 0.731], dtype=float32)
    """
    v = strong(*inexact_operands("softmax", x))
    terms, total, _ = _exponentials(v, axis)
    return lax.div(terms, total)


def log_softmax(x: Any, /, *, axis: Axis = None) -> Array:
    """The logarithm of `softmax` of `x` over `axis` (default: all).

    >>> from shardwise.scipy import special
    >>> special.log_softmax(jnp.array([0.0, 1.0])).round(3)
    Array([-1.313, -0.313], dtype=float32)
    """
    v = strong(*inexact_operands("log_softmax", x))
    _, total, shifted_values = _exponentials(v, axis)
    return lax.sub(shifted_values, lax.log(total))


def _exponentials(x: Array, axis: Axis) -> tuple[Array, Array, Array]:
    """exp(x - max) and its sum, spread over the reduced dims; x - max."""
    dims = canonical_axes(axis, x.ndim)
    kept_dims = tuple(d for d in range(x.ndim) if d not in dims)
    spread = lambda v: lax.broadcast_in_dim(v, x.shape, kept_dims)  # noqa: E731
    shifted_values = lax.sub(x, spread(lax.stop_gradient(lax.reduce_max(x, dims))))
    terms = lax.exp(shifted_values)
    return terms, spread(lax.reduce_sum(terms, dims)), shifted_values
