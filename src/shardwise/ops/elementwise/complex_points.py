"""Functions of complex blocks at special points: parts that are infinite, NaN or signed zeros follow XLA's formulas.

NumPy follows the C library there. Each function calls NumPy's and replaces its results at such points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray

Parts = tuple[Ndarray, Ndarray]


def _define_where(ufunc: Any, where: Callable[[Ndarray, Ndarray], Ndarray]) -> Callable[[Ndarray], Ndarray]:
    """`ufunc`, but NaN in both parts unless ``where(real, imag)``."""

    def function(x: Ndarray) -> Ndarray:
        out = np.asarray(ufunc(x))
        if not np.isfinite(x).all():
            out[~where(x.real, x.imag)] = complex(np.nan, np.nan) if out.dtype.kind == "c" else np.nan
        return out

    function.__name__ = ufunc.__name__
    return function


def _first_is_finite(first: Ndarray, second: Ndarray) -> Ndarray:
    return np.isfinite(first)


def _second_is_finite(first: Ndarray, second: Ndarray) -> Ndarray:
    return np.isfinite(second)


def _both_are_finite(first: Ndarray, second: Ndarray) -> Ndarray:
    return np.isfinite(first) & np.isfinite(second)


def _no_nan(first: Ndarray, second: Ndarray) -> Ndarray:
    return ~(np.isnan(first) | np.isnan(second))  # the C library treats infinity as larger than NaN


exp = _define_where(np.exp, _second_is_finite)
exp2 = _define_where(np.exp2, _both_are_finite)
cosh = _define_where(np.cosh, _second_is_finite)
sinh = _define_where(np.sinh, _second_is_finite)
tanh = _define_where(np.tanh, lambda real, imag: np.isfinite(imag) | ~np.isfinite(real))
cos = _define_where(np.cos, _first_is_finite)
sin = _define_where(np.sin, _first_is_finite)
tan = _define_where(np.tan, lambda real, imag: np.isfinite(real) | ~np.isfinite(imag))
absolute = _define_where(np.absolute, _no_nan)
log = _define_where(np.log, _no_nan)
_less_one = _define_where(np.expm1, _second_is_finite)


def expm1(x: Ndarray) -> Ndarray:
    """``e**x - 1``; real for real numbers, including infinities. The real part is a difference, so that its zeros are positive."""
    out = _less_one(x)
    out.real += 0
    np.copyto(out.imag, x.imag, where=x.imag == 0)
    return out


def _log1p_near_one(x: Ndarray) -> Ndarray:
    """`np.log1p` of finite numbers, with all digits where 1 + x has a modulus near 1.

    The square of that modulus less one is 2 real + real**2 + imag**2, which float64 holds well enough for complex64; for complex128 the
    rounding errors of the squares and sums are added.
    """
    out: Any = np.asarray(np.log1p(x))
    a, b = x.real.astype(np.float64), x.imag.astype(np.float64)
    with np.errstate(all="ignore"):
        terms = [2 * a, *_square_and_rest(a), *_square_and_rest(b)]
        excess, lost_bits = terms[0], np.zeros_like(a)
        for term in terms[1:]:
            total = excess + term
            back = total - excess
            lost_bits += (excess - (total - back)) + (term - back)
            excess = total
        excess = excess + lost_bits
        np.copyto(out.real, 0.5 * np.log1p(excess), where=(np.abs(excess) < 0.5) & (np.abs(a) < 3), casting="same_kind")
    return out


def _square_and_rest(a: Ndarray) -> Parts:
    """a * a, and its rounding error (Dekker's product)."""
    square = a * a
    high = a * 134217729.0
    high = high - (high - a)
    low = a - high
    return square, ((high * high - square) + 2 * high * low) + low * low


_log1p_near_one.__name__ = "log1p"
log1p = _define_where(_log1p_near_one, _no_nan)


def _cut_along(part: str, ufunc: Any, where: Callable[[Ndarray, Ndarray], Ndarray]) -> Callable[[Ndarray], Ndarray]:
    """`ufunc`, but on the branch cut ``where(part, the other)`` a part of -0.0 gives the same value as 0.0."""

    def function(x: Ndarray) -> Ndarray:
        along = getattr(x, part)
        cut = (along == 0) & np.signbit(along) & where(x.real, x.imag)
        if cut.any():
            x = np.copy(x)
            getattr(x, part)[cut] = 0
        out = np.asarray(ufunc(x))
        unknown = np.isnan(x)
        if unknown.any():
            out[unknown & ~np.isinf(x.real) & ~np.isinf(x.imag)] = complex(np.nan, np.nan)
        return out

    function.__name__ = ufunc.__name__
    return function


sqrt = _cut_along("imag", _define_where(np.sqrt, _no_nan), lambda real, imag: real < 0)
asin = _cut_along("imag", np.arcsin, lambda real, imag: np.abs(real) > 1)
acos = _cut_along("imag", np.arccos, lambda real, imag: np.abs(real) > 1)
acosh = _cut_along("imag", np.arccosh, lambda real, imag: real < 1)
asinh = _cut_along("real", np.arcsinh, lambda real, imag: np.abs(imag) > 1)


def square(x: Ndarray) -> Ndarray:
    """`x` times itself; where squares overflow, their difference is (real - imag) * (real + imag)."""
    out = np.asarray(np.square(x))
    lost_places = ~np.isfinite(out)
    if lost_places.any():
        real, imag = x.real[lost_places], x.imag[lost_places]
        far = np.empty(real.shape, out.dtype)
        far.real, far.imag = (real - imag) * (real + imag), 2 * (real * imag)
        out[lost_places] = far
    return out


def sign(x: Ndarray) -> Ndarray:
    """`x` over its modulus, part by part; 0 of 0."""
    size = absolute(x)
    size[size == 0] = 1
    out = np.empty_like(x)
    out.real, out.imag = x.real / size, x.imag / size
    return out


def divide(x: Ndarray, y: Ndarray) -> Ndarray:
    """`x` over `y`. Infinite over finite is infinite and finite over infinite is zero, in any direction of the plane.

    Over zero, each part is multiplied by infinity with the sign of the zero's real part.
    """
    out: Ndarray = np.asarray(np.true_divide(x, y))
    by_zero = np.equal(y, 0) & ~(np.isnan(np.real(x)) & np.isnan(np.imag(x)))
    if by_zero.any():
        infinity = np.copysign(out.dtype.type(np.inf).real, np.real(y))
        np.copyto(out.real, infinity * np.real(x), where=by_zero)
        np.copyto(out.imag, infinity * np.imag(x), where=by_zero)
    lost_places = np.isnan(out.real) & np.isnan(out.imag)
    if lost_places.any():
        x, y = (np.broadcast_to(v, out.shape)[lost_places] for v in (x, y))
        far, away = np.isinf(x), np.isinf(y)
        of = far & np.isfinite(y)
        by = away & np.isfinite(x)
        a, b = (np.where(of, _direction(v), v) for v in (x.real, x.imag))
        c, d = (np.where(by, _direction(v), v) for v in (y.real, y.imag))
        factor = np.where(of, np.inf, np.where(by, 0, np.nan)).astype(a.dtype)
        replacement = np.empty(a.shape, out.dtype)
        replacement.real, replacement.imag = factor * (a * c + b * d), factor * (b * c - a * d)
        out[lost_places] = np.where(of | by, replacement, out[lost_places])
    return out


def _direction(part: Ndarray) -> Ndarray:
    """1 for an infinite part, 0 for another, with the part's sign."""
    return np.copysign(np.isinf(part).astype(part.dtype), part)
