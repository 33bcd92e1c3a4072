"""Polynomials, given by their coefficients, the highest first: values, sums, products, roots, fits; `interp`, and `cross`.

In: 1-d arrays of coefficients. Out: arrays; coefficients of products, quotients and integrals are floats.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import finfo, to_complex
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import (
    as_array,
    astype,
    broadcast_to_shape,
    concrete,
    concrete_int,
    constant,
    is_complex,
    is_inexact,
    promote_dtypes,
    promote_inexact,
    strong,
    value,
    values,
    zero_like,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.binary import clip, remainder
from shardwise.numpy.creation import asarray
from shardwise.numpy.cross import cross as cross
from shardwise.numpy.diagonals import vander
from shardwise.numpy.indexing import take
from shardwise.numpy.products import dot
from shardwise.numpy.rearranging import roll, trim_zeros
from shardwise.numpy.reductions import sum
from shardwise.numpy.shapes import with_rank
from shardwise.numpy.signal import convolve
from shardwise.numpy.unary import absolute
from shardwise.ops.indexing.search import searchsorted
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = [
    "cross", "interp", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "roots",
]  # fmt: skip


def _coefficients(name: str, *given: Any, error: type[Exception] = IndexError) -> list[Array]:
    """1-d arrays; an error for a scalar, which has no number of coefficients."""
    arrays = [checked(name, p, i) for i, p in enumerate(given)]
    for p in arrays:
        if not p.ndim:
            raise error(f"{name} takes arrays of coefficients, got a scalar. Use jnp.atleast_1d.")
    return arrays


# -- values ----------------------------------------------------------------------------------------------------


@functools.partial(jit, inline=True, static_argnames="unroll")
def _polyval(p: Array, x: Any, unroll: int) -> Array:
    del unroll
    coefficients, at = promote_dtypes(p, x)
    shape = lax.broadcast_shapes(p.shape[1:], at.shape)
    if not p.shape[0]:
        return lax.full(shape, 0, at.dtype)
    first, *others = lax.unstack(as_array(coefficients))
    result = broadcast_to_shape(first, shape)
    for c in others:
        result = result * at + c
    return broadcast_to_shape(as_array(astype(result, at.dtype)), shape)


@shown_call("unroll")
def polyval(p: Any, x: Any, *, unroll: int = 16) -> Array:
    """The values of the polynomial `p` at `x`, by Horner's rule; further dims of `p` broadcast with `x`.

    `unroll` has no effect: there is no loop.

    >>> jnp.polyval(jnp.array([1.0, 0.0, 2.0]), 3.0)
    Array(11., dtype=float32)
    """
    (coefficients,) = _coefficients("polyval", p)
    at = value("polyval", x, 1)
    if config.dialect.functions.polyval_promotes_integers:
        coefficients, at = promote_inexact(coefficients, at)
    return _polyval(as_array(coefficients), at, unroll)


# -- arithmetic ------------------------------------------------------------------------------------------------


@shown_call()
def polyadd(a1: Any, a2: Any) -> Array:
    """The sum of the polynomials with the coefficients `a1` and `a2`, highest first.

    >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([3]))
    Array([1, 5], dtype=int32)
    """
    p, q = map(as_array, promote_dtypes(*_coefficients("polyadd", a1, a2)))
    n = max(p.shape[0], q.shape[0])
    longer, shorter = (p, q) if p.shape[0] == n else (q, p)
    ahead = [(n - shorter.shape[0], 0, 0), *[(0, 0, 0)] * (shorter.ndim - 1)]
    return longer + lax.pad(shorter, zero_like(shorter), ahead)


@shown_call()
def polysub(a1: Any, a2: Any) -> Array:
    """The difference of the polynomials with the coefficients `a1` and `a2`, highest first.

    >>> jnp.polysub(jnp.array([1, 2]), jnp.array([3]))
    Array([ 1, -1], dtype=int32)
    """
    p, q = map(as_array, promote_dtypes(*_coefficients("polysub", a1, a2)))
    return polyadd(p, lax.neg(q))


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Array:
    """The product of the polynomials with the coefficients `a1` and `a2`, highest first; `trim_leading_zeros`, which
    needs concrete values, drops leading zeros.

    >>> jnp.polymul(jnp.array([1, 1]), jnp.array([1, -1]))
    Array([ 1.,  0., -1.], dtype=float32)
    """

    p, q = map(as_array, promote_inexact(*_coefficients("polymul", a1, a2, error=TypeError)))
    if trim_leading_zeros and (p.shape[0] > 1 or q.shape[0] > 1):
        p, q = trim_zeros(p, "f"), trim_zeros(q, "f")
    p, q = (x if x.shape[0] else lax.full((1,), 0, x.dtype) for x in (p, q))
    return convolve(p, q, mode="full")


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """The quotient and the remainder of the polynomials `u` and `v`; see `polymul` for `trim_leading_zeros` (of the
    remainder).

    >>> jnp.polydiv(jnp.array([1.0, 3.0, 2.0]), jnp.array([1.0, 1.0]))
    (Array([1., 2.], dtype=float32), Array([0., 0., 0.], dtype=float32))
    """
    rest, divisor = map(as_array, promote_inexact(*_coefficients("polydiv", u, v)))
    m, n = rest.shape[0] - 1, divisor.shape[0] - 1
    quotient = lax.full((1,), 0, rest.dtype) if m < n else None
    if quotient is None:
        quotient, rest = _long_division(rest, divisor)
    if trim_leading_zeros:
        magnitudes = np.abs(concrete(rest, "u of polydiv with trim_leading_zeros"))
        large = np.flatnonzero(magnitudes >= np.sqrt(finfo(rest.dtype).eps))
        rest = lax.slice_in_dim(rest, int(large[0]) if len(large) else rest.shape[0], None)
    return quotient, rest


@functools.partial(jit, inline=True)
def _long_division(rest: Array, divisor: Array) -> tuple[Array, Array]:
    m, n = rest.shape[0] - 1, divisor.shape[0] - 1
    scale = lax.reciprocal(lax.slice_in_dim(divisor, 0, 1))
    digits = []
    for k in range(m - n + 1):
        digits.append(scale * lax.slice_in_dim(rest, k, k + 1))
        step = digits[-1] * divisor
        rest = rest - lax.pad(step, zero_like(step), [(k, m - n - k, 0)])
    return strong(lax.concatenate(digits, 0)), rest


@shown_call("m")
def polyder(p: Any, m: int = 1) -> Array:
    """The derivative of order `m` of the polynomial with the coefficients `p`, highest first. ValueError for a
    negative order.

    >>> jnp.polyder(jnp.array([1.0, 2.0, 3.0]))
    Array([2., 2.], dtype=float32)
    """
    (given,) = _coefficients("polyder", p, error=TypeError)
    order = concrete_int(m, "m of polyder")
    x = as_array(promote_inexact(given)[0])
    if order < 0:
        raise ValueError(f"polyder: Order of derivative must be positive, got {order}.")
    if not order:
        return x
    n = x.shape[0]
    if order >= n:
        return lax.full((0,), 0, x.dtype)
    powers = np.arange(n - 1, order - 1, -1, dtype=np.float64)
    factors = np.prod([powers - k for k in range(order)], axis=0)
    return lax.slice_in_dim(x, 0, n - order) * asarray(factors, x.dtype)


@shown_call("m")
def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """The integral of order `m` of the polynomial with the coefficients `p`, highest first, with the constants `k`
    (default 0), the first one integrated last.

    ValueError for a negative order, and for another number of constants than 1 or `m`.

    >>> jnp.polyint(jnp.array([2.0, 2.0]))
    Array([1., 2., 0.], dtype=float32)
    """
    order = concrete_int(m, "m of polyint")
    (given,) = _coefficients("polyint", p, error=TypeError)
    x, constants = map(as_array, promote_inexact(given, value("polyint", 0 if k is None else k, 1)))
    if order < 0:
        raise ValueError(f"polyint: Order of integral must be positive (see polyder), got {order}.")
    constants = with_rank(constants, 1)
    if constants.shape == (1,):
        constants = lax.broadcast_in_dim(constants, (order,), (0,))
    if constants.shape != (order,):
        raise ValueError(
            f"polyint: k must be a scalar or a rank-1 array of length 1 or m, got shape {constants.shape}."
        )
    if not order:
        return x
    powers = np.arange(x.shape[0] + order - 1, -1, -1, dtype=np.float64)
    divisors = np.prod([np.maximum(powers - i, 1) for i in range(order)], axis=0)
    return lax.concatenate([x, constants], 0) / asarray(divisors, x.dtype)


# -- roots -----------------------------------------------------------------------------------------------------


@shown_call()
def poly(seq_of_zeros: Any) -> Array:
    """The coefficients, highest first, of the polynomial with the roots `seq_of_zeros`: f[n] -> f[n + 1], or the
    characteristic polynomial of a square matrix. ValueError for other shapes.

    >>> jnp.poly(jnp.array([1.0, 2.0]))
    Array([ 1., -3.,  2.], dtype=float32)
    """
    from shardwise.numpy.linalg import eigvals  # start-up time

    x = with_rank(as_array(promote_inexact(checked("poly", seq_of_zeros))[0]), 1)
    if x.ndim == 2 and x.shape[0] == x.shape[1] and x.shape[0]:
        x = eigvals(x)
    if x.ndim != 1:
        raise ValueError(f"poly: input must be 1d or non-empty square 2d array, got shape {x.shape}.")
    one = lax.full((1,), 1, x.dtype)
    if not x.shape[0]:
        return lax.reshape(one, ())
    return _with_roots(x)


@functools.partial(jit, inline=True)
def _with_roots(x: Array) -> Array:
    p = lax.full((1,), 1, x.dtype)
    for k in range(x.shape[0]):
        root = lax.slice_in_dim(x, k, k + 1)
        p = lax.pad(p, zero_like(p), [(0, 1, 0)]) - root * lax.pad(p, zero_like(p), [(1, 0, 0)])
    return p


def roots(p: Any, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial, complex, from the eigenvalues of its companion matrix.

    `strip_zeros`: leading zeros are dropped, which needs concrete values; else as many roots are NaN. Raises
    ConcretizationTypeError if they are traced, ValueError unless `p` has one dim.

    >>> jnp.roots(jnp.array([1.0, -3.0, 2.0])).round(3)
    Array([2.+0.j, 1.+0.j], dtype=complex64)
    """
    x = with_rank(as_array(promote_inexact(checked("roots", p))[0]), 1)
    if x.ndim != 1:
        raise ValueError(f"roots: Input must be a rank-1 array, got shape {x.shape}.")
    n = x.shape[0]
    if n < 2:
        return lax.full((0,), 0, to_complex(x.dtype))
    if strip_zeros:
        host_values = concrete(x, "p of roots, unless strip_zeros=False is passed,")
        nonzeros = np.flatnonzero(host_values)
        return _roots(lax.slice_in_dim(x, int(nonzeros[0]) if len(nonzeros) else n, None))
    return _roots_with_zeros(x)


def _roots(p: Array) -> Array:
    from shardwise.numpy.linalg import eigvals  # start-up time

    n = p.shape[0]
    if n < 2:
        return lax.full((0,), 0, to_complex(p.dtype))
    first = lax.neg(lax.slice_in_dim(p, 1, None)) / lax.slice_in_dim(p, 0, 1)
    below = asarray(np.eye(n - 2, n - 1), p.dtype)
    return eigvals(lax.concatenate([lax.expand_dims(first, (0,)), below], 0))


def _roots_with_zeros(p: Array) -> Array:
    """Leading zeros become trailing ones, which have roots 0; these come last and are replaced by NaN."""

    n = p.shape[0]
    zero = lax.eq(p, zero_like(p))
    nothing = lax.reduce_and(zero, (0,))
    leading_zeros = where_(nothing, np.int32(n) * lax.full((), 1, np.int32), lax.argmin(zero, 0, np.int32))
    root_values = _roots(roll(where_(nothing, constant(p, 1), p), lax.neg(leading_zeros)))
    root_values = lax.sort((lax.eq(root_values, zero_like(root_values)), root_values), 0, num_keys=1)[1]
    is_kept = lax.lt(lax.iota(np.int32, n - 1), lax.sub(np.int32(n - 1), leading_zeros))
    return where_(is_kept, root_values, constant(root_values, complex(np.nan, np.nan)))


# -- fits ------------------------------------------------------------------------------------------------------


@shown_call("deg rcond full cov")
def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: bool | str = False
) -> Any:
    """The polynomial of degree `deg` with the least squared distance to the points (x, y); `y` may have several columns.

    Args:
        rcond: singular values below this part of the greatest are taken as 0.
        full: also the residuals, the rank, the singular values and `rcond`.
        w: weights of the distances.
        cov: also the covariances of the coefficients; 'unscaled' for their relative size.

    Raises ValueError for a negative degree, and too few points for `cov`; TypeError where shapes do not fit.

    >>> jnp.polyfit(jnp.array([0.0, 1.0, 2.0]), jnp.array([1.0, 3.0, 5.0]), 1).round(3)
    Array([2., 1.], dtype=float32)
    """
    from shardwise.numpy.linalg import inv, lstsq  # start-up time

    xs, ys = checked("polyfit", x), checked("polyfit", y, 1)
    weights = None if w is None else checked("polyfit", w, 2)
    order = concrete_int(deg, "deg of polyfit") + 1
    _check_points(xs, ys, weights, order - 1)
    if not is_inexact(xs.dtype):
        xs = as_array(promote_inexact(xs)[0])
    n = xs.shape[0]
    cut = n * float(finfo(xs.dtype).eps) if rcond is None else float(rcond)
    powers = vander(xs, order)
    if weights is not None:
        factor = as_array(promote_inexact(weights)[0])
        powers = powers * lax.expand_dims(factor, (1,))
        ys = ys * (lax.expand_dims(factor, (1,)) if ys.ndim == 2 else factor)
    scale = lax.sqrt(sum(powers * powers, axis=0))
    powers = powers / lax.expand_dims(scale, (0,))
    coefficients, residuals, rank, singular = lstsq(powers, ys, cut)
    coefficients = coefficients / (lax.expand_dims(scale, (1,)) if coefficients.ndim > 1 else scale)
    if full:
        return coefficients, residuals, rank, singular, asarray(cut)
    if not cov:
        return coefficients
    base = inv(dot(lax.transpose(powers, (1, 0)), powers))
    base = base / (lax.expand_dims(scale, (1,)) * lax.expand_dims(scale, (0,)))
    if cov == "unscaled":
        spread: Any = asarray(np.ones(1, np.float32))
    elif n <= order:
        raise ValueError(
            f"polyfit: the number of data points, {n}, must exceed the order, {order}, to scale the covariance matrix."
        )
    else:
        spread = with_rank(residuals / (n - order), 1)
    if ys.ndim == 1:
        return coefficients, base * lax.expand_dims(spread, (0,))
    return coefficients, lax.expand_dims(base, (2,)) * lax.expand_dims(spread, (0, 1))


def _check_points(x: Array, y: Array, w: Array | None, degree: int) -> None:
    if degree < 0:
        raise ValueError(f"polyfit: expected deg >= 0, got {degree}.")
    if x.ndim != 1 or not x.size:
        raise TypeError(f"polyfit: expected a non-empty 1D vector for x, got shape {x.shape}.")
    if y.ndim not in (1, 2):
        raise TypeError(f"polyfit: expected 1D or 2D array for y, got shape {y.shape}.")
    if x.shape[0] != y.shape[0]:
        raise TypeError(f"polyfit: expected x and y to have same length, got {x.shape[0]} and {y.shape[0]}.")
    if w is not None and w.shape != x.shape:
        raise TypeError(f"polyfit: expected a 1-d array of {x.shape[0]} weights, got shape {w.shape}.")


# -- interpolation ---------------------------------------------------------------------------------------------


@shown_call("left right period", name="_interp")
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Array:
    """The piecewise linear function through the points (xp, fp), `xp` increasing, at `x`.

    Args:
        left, right: its value outside of the points (default: that of the end), or 'extrapolate'.
        period: after which the function repeats; then `left` and `right` have no effect and `xp` may have any order.

    Raises ValueError for complex `x`, points that do not fit, and another text or a period that is no scalar.

    >>> jnp.interp(jnp.array([0.5, 5.0]), jnp.array([0.0, 1.0]), jnp.array([10.0, 20.0]))
    Array([15., 20.], dtype=float32)
    """
    at, places, levels = values("interp", x, xp, fp)
    if places.shape != levels.shape or places.ndim != 1:
        raise ValueError(
            f"interp: xp and fp must be one-dimensional arrays of equal size, got {places.shape} and {levels.shape}."
        )
    for name, end in (("left", left), ("right", right)):
        if isinstance(end, str) and end != "extrapolate":
            raise ValueError(f"interp: the only valid string value of `{name}` is 'extrapolate', but got: {end!r}.")
    at, places = promote_inexact(at, places)
    (levels,) = promote_inexact(levels)
    if is_complex(at.dtype):
        raise ValueError("interp: complex x values are not supported; they have no order.")
    at, places, levels = as_array(at), as_array(places), as_array(levels)
    if period is not None:
        cycle = absolute(value("interp", period, 5))
        if cycle.ndim:
            raise ValueError(f"interp: period must be a scalar; got shape {cycle.shape}.")
        at, places = remainder(at, cycle), remainder(places, cycle)
        places, levels = lax.sort_key_val(places, levels)
        first, last = (lambda v: lax.slice_in_dim(v, 0, 1)), (lambda v: lax.slice_in_dim(v, -1, None))
        places = lax.concatenate(promote_dtypes(last(places) - cycle, places, first(places) + cycle), 0)
        levels = lax.concatenate([last(levels), levels, first(levels)], 0)
        left = right = "extrapolate"
    at, places = map(as_array, promote_dtypes(at, places))
    return _interp(at, places, levels, left, right)


def _interp(at: Array, places: Array, levels: Array, left: Any, right: Any) -> Array:
    n = places.shape[0]
    behind = clip(searchsorted(places, at, right=True), 1, n - 1)
    before = behind - 1
    low, high = take(places, before, mode="clip"), take(places, behind, mode="clip")
    base = take(levels, before, mode="clip")
    width = high - low
    none = absolute(width) <= constant(width, float(np.spacing(finfo(places.dtype).eps)))
    share = (at - low) / where_(none, constant(width, 1), width)
    line = base + share * (take(levels, behind, mode="clip") - base)
    result: Any = where_(none, *promote_dtypes(base, line))
    first, last = (lax.index_in_dim(v, i, keepdims=False) for v, i in ((places, 0), (places, n - 1)))
    for outside, end, edge in ((at < first, left, 0), (at > last, right, n - 1)):
        if isinstance(end, str):
            continue
        level = lax.index_in_dim(levels, edge, keepdims=False) if end is None else value("interp", end)
        level, result = promote_dtypes(level, result)
        result = where_(outside, level, result)
    return as_array(result)
