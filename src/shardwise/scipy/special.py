"""`shardwise.scipy.special`: gamma, error, Bessel and information functions, elementwise; log-sum-exp and softmax."""

from __future__ import annotations

import operator
import warnings
from math import inf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.dtypes import default_dtype
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import promote_complex, strong, values
from shardwise.numpy._ufunc_forms import weak_if_scalar
from shardwise.numpy.transcendental import bessel_i0
from shardwise.ops.control.calls import define_along
from shardwise.ops.elementwise import scipy_functions as scipy
from shardwise.scipy import exponentials as _exponentials
from shardwise.scipy import gamma_functions as _gamma_functions
from shardwise.scipy import harmonics as _harmonics
from shardwise.scipy.exponentials import *  # noqa: F403
from shardwise.scipy.gamma_functions import *  # noqa: F403
from shardwise.scipy.harmonics import sph_harm, sph_harm_y
from shardwise.scipy.special_operands import as_arrays, choose, float_operand, inexact_operands, real_operands

if TYPE_CHECKING:  # names that `__getattr__` gives
    from shardwise.scipy.harmonics import lpmn as lpmn
    from shardwise.scipy.harmonics import lpmn_values as lpmn_values

__all__ = ["bessel_jn", "boxcox", "boxcox1p", "dawsn", "entr", "erf", "erfc", "erfcx", "erfinv", "exp1", "expi",
           "expit", "expn", "fresnel", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr",
           "logit", "ndtr", "ndtri", "owens_t", "rel_entr", "sici", "spence",
           "sph_harm", "sph_harm_y", "wofz", "xlog1py", "xlogy"]  # fmt: skip
__all__ += _gamma_functions.__all__
__all__ += _exponentials.__all__


# -- error functions -------------------------------------------------------------------------------------------------------------


def erf(x: Any) -> Array:
    """Elementwise error function of the floats `x`.

    >>> from shardwise.scipy import special
    >>> special.erf(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.843], dtype=float32)
    """
    return lax.erf(*real_operands("erf", x))


def erfc(x: Any) -> Array:
    """1 - erf(x).

    >>> from shardwise.scipy import special
    >>> special.erfc(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 0.157], dtype=float32)
    """
    return lax.erfc(*real_operands("erfc", x))


def erfinv(x: Any) -> Array:
    """Elementwise inverse of `erf` at the floats `x`; NaN outside -1..1.

    >>> from shardwise.scipy import special
    >>> special.erfinv(jnp.array([0.0, 0.5])).round(3)
    Array([0.   , 0.477], dtype=float32)
    """
    return lax.erf_inv(*real_operands("erfinv", x))


def erfcx(x: Any) -> Array:
    """exp(x**2) erfc(x).

    >>> from shardwise.scipy import special
    >>> special.erfcx(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 0.428], dtype=float32)
    """
    return scipy.apply("erfcx", *inexact_operands("erfcx", x))


def dawsn(x: Any) -> Array:
    """Elementwise Dawson's integral of the floats `x`.

    >>> from shardwise.scipy import special
    >>> special.dawsn(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.538], dtype=float32)
    """
    return scipy.apply("dawsn", *real_operands("dawsn", x))


def wofz(z: Any) -> Array:
    """Faddeeva's function exp(-z**2) erfc(-iz), complex.

    >>> from shardwise.scipy import special
    >>> special.wofz(jnp.array([0.0, 1.0j])).real.round(3)
    Array([1.   , 0.428], dtype=float32)
    """
    return scipy.apply("wofz", *promote_complex(*values("wofz", z)))


def fresnel(x: Any) -> tuple[Array, Array]:
    """Fresnel's integrals S and C of the floats `x`, two arrays of its shape.

    >>> from shardwise.scipy import special
    >>> [a.round(3) for a in special.fresnel(jnp.array([0.0, 1.0]))]
    [Array([0.   , 0.438], dtype=float32), Array([0.  , 0.78], dtype=float32)]
    """
    return scipy.apply_pair("fresnel", *real_operands("fresnel", x))


def ndtr(x: Any) -> Array:
    """The distribution function of the standard normal at `x`. TypeError unless float32 or float64.

    >>> from shardwise.scipy import special
    >>> special.ndtr(jnp.array([0.0, 1.0])).round(3)
    Array([0.5  , 0.841], dtype=float32)
    """
    v = strong(float_operand("ndtr", *as_arrays(x)))
    half = sqrt(0.5)
    small = lax.lt(lax.abs(v), half)
    w = lax.mul(v, half)
    tail = lax.mul(lax.erfc(lax.abs(w)), 0.5)
    centre = lax.add(lax.mul(lax.erf(w), 0.5), 0.5)
    return lax.select(small, centre, lax.select(lax.gt(w, 0.0), lax.sub(lax.full_like(v, 1), tail), tail))


def ndtri(p: Any) -> Array:
    """The inverse of `ndtr` at `p`. TypeError unless float32 or float64.

    >>> from shardwise.scipy import special
    >>> special.ndtri(jnp.array([0.5, 0.75])).round(3)
    Array([0.   , 0.674], dtype=float32)
    """
    return scipy.apply("ndtri", float_operand("ndtri", p))


def log_ndtr(x: Any, series_order: Any = 3) -> Array:
    """The logarithm of `ndtr` at the floats `x`, exact in the tail. `series_order` (0 to 30) is how JAX bounds its
    series; none is used here.

    Raises:
        TypeError: `x` is not of float32 or float64, or `series_order` no int. ValueError: that is out of range.

    >>> from shardwise.scipy import special
    >>> special.log_ndtr(jnp.array([-1.0, 1.0])).round(3)
    Array([-1.841, -0.173], dtype=float32)
    """
    if not isinstance(series_order, int):
        raise TypeError("series_order must be a Python integer.")
    if not 0 <= series_order <= 30:
        raise ValueError(f"series_order must be non-negative and <= 30, got {series_order}.")
    return scipy.apply("log_ndtr", float_operand("log_ndtr", *as_arrays(x)))


# -- logarithms, odds and information --------------------------------------------------------------------------------------------


def logit(x: Any) -> Array:
    """log(x / (1 - x)).

    >>> from shardwise.scipy import special
    >>> special.logit(jnp.array([0.5, 0.75])).round(3)
    Array([0.   , 1.099], dtype=float32)
    """
    return weak_if_scalar(_logit(*inexact_operands("logit", x)))


_logit = define_along(
    "logit",
    lambda x: lax.log(lax.div(x, lax.sub(lax.full_like(x, 1), x))),
    lambda t, y, x: lax.div(t, lax.mul(x, lax.sub(lax.full_like(x, 1), x))),
)


def expit(x: Any) -> Array:
    """The logistic function 1 / (1 + exp(-x)).

    >>> from shardwise.scipy import special
    >>> special.expit(jnp.array([0.0, 2.0])).round(3)
    Array([0.5  , 0.881], dtype=float32)
    """
    return lax.logistic(*inexact_operands("expit", x))


def xlogy(x: Any, y: Any) -> Array:
    """x log(y), and 0 where x is 0 unless y is NaN.

    >>> from shardwise.scipy import special
    >>> special.xlogy(jnp.array([0.0, 2.0]), 3.0).round(3)
    Array([0.   , 2.197], dtype=float32)
    """
    return _xlogy(*inexact_operands("xlogy", x, y))


def xlog1py(x: Any, y: Any) -> Array:
    """x log(1 + y), and 0 where x is 0 unless y is NaN.

    >>> from shardwise.scipy import special
    >>> special.xlog1py(jnp.array([0.0, 2.0]), 1.0).round(3)
    Array([0.   , 1.386], dtype=float32)
    """
    return _xlog1py(*inexact_operands("xlog1py", x, y))


def _times_log(logarithm: Any) -> Any:
    def body(x: Array, y: Array) -> Array:
        counts = lax.bitwise_or(lax.ne(x, lax.full_like(x, 0)), lax.ne(y, y))
        return choose(counts, lax.mul(x, logarithm(y)), 0.0)

    return body


# Where x is 0 the derivative in x is the logarithm still: the function is linear in x.
_xlogy = define_along(
    "xlogy",
    _times_log(lax.log),
    lambda t, out, x, y: lax.mul(t, lax.log(y)),
    lambda t, out, x, y: lax.div(lax.mul(t, x), y),
)
_xlog1py = define_along(
    "xlog1py",
    _times_log(lax.log1p),
    lambda t, out, x, y: lax.mul(t, lax.log1p(y)),
    lambda t, out, x, y: lax.div(lax.mul(t, x), lax.add(lax.full_like(y, 1), y)),
)
_xlogx = define_along(
    "xlogx", lambda x: _times_log(lax.log)(x, x), lambda t, out, x: lax.mul(t, lax.add(lax.log(x), lax.full_like(x, 1)))
)


def entr(x: Any) -> Array:
    """-x log(x), 0 at 0, and -inf for negative x.

    >>> from shardwise.scipy import special
    >>> special.entr(jnp.array([0.25, 0.5])).round(3)
    Array([0.347, 0.347], dtype=float32)
    """
    (v,) = real_operands("entr", x)
    return choose(lax.lt(v, 0.0), -inf, lax.neg(_xlogx(v)))


def rel_entr(p: Any, q: Any) -> Array:
    """p log(p / q), 0 where p is 0 and q is not negative, else infinity.

    >>> from shardwise.scipy import special
    >>> special.rel_entr(jnp.array([0.0, 2.0]), 1.0).round(3)
    Array([0.   , 1.386], dtype=float32)
    """
    result = _relative_entropy(*real_operands("rel_entr", p, q))
    return strong(result) if np.ndim(p) else result


def _relative_entropy(a: Array, b: Array) -> Array:
    positive = lax.bitwise_and(lax.gt(a, 0.0), lax.gt(b, 0.0))
    zero = lax.bitwise_and(lax.eq(a, 0.0), lax.ge(b, 0.0))
    x, y = choose(positive, a, 1.0), choose(positive, b, 1.0)
    value = lax.sub(_xlogx(x), _xlogy(x, y))
    return lax.select(positive, value, choose(zero, 0.0, lax.full_like(a, inf)))


def kl_div(p: Any, q: Any) -> Array:
    """rel_entr(p, q) - p + q.

    >>> from shardwise.scipy import special
    >>> special.kl_div(jnp.array([1.0, 2.0]), 1.0).round(3)
    Array([0.   , 0.386], dtype=float32)
    """
    a, b = real_operands("kl_div", p, q)
    result = lax.add(lax.sub(_relative_entropy(a, b), a), b)
    return strong(result) if np.ndim(p) else result


def boxcox(x: Any, lmbda: Any) -> Array:
    """(x**lmbda - 1) / lmbda, and log(x) where lmbda is 0.

    >>> from shardwise.scipy import special
    >>> special.boxcox(jnp.array([1.0, 4.0]), 0.5)
    Array([0., 2.], dtype=float32)
    """
    v, power = real_operands("boxcox", x, lmbda)
    return _power_or_log(lax.log(v), power)


def boxcox1p(x: Any, lmbda: Any) -> Array:
    """``boxcox(1 + x, lmbda)``, exact for small `x`.

    >>> from shardwise.scipy import special
    >>> special.boxcox1p(jnp.array([0.0, 3.0]), 0.5)
    Array([0., 2.], dtype=float32)
    """
    v, power = real_operands("boxcox1p", x, lmbda)
    return _power_or_log(lax.log1p(v), power)


def _power_or_log(logs: Array, power: Array) -> Array:
    zero = lax.eq(power, 0.0)
    safe = choose(zero, 1.0, power)
    return lax.select(zero, logs, lax.div(lax.expm1(lax.mul(safe, logs)), safe))


# -- Bessel, exponential integrals, hypergeometric -------------------------------------------------------------------------------


def i0e(x: Any) -> Array:
    """exp(-|x|) times the modified Bessel function of order 0.

    >>> from shardwise.scipy import special
    >>> special.i0e(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 0.466], dtype=float32)
    """
    return lax.bessel_i0e(*real_operands("i0e", x))


def i0(x: Any) -> Array:
    """The modified Bessel function of order 0 of the floats `x`.

    >>> from shardwise.scipy import special
    >>> special.i0(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 1.266], dtype=float32)
    """
    return bessel_i0(*real_operands("i0", x))


def i1e(x: Any) -> Array:
    """exp(-|x|) times the modified Bessel function of order 1.

    >>> from shardwise.scipy import special
    >>> special.i1e(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.208], dtype=float32)
    """
    return lax.bessel_i1e(*real_operands("i1e", x))


def i1(x: Any) -> Array:
    """The modified Bessel function of order 1 of the floats `x`.

    >>> from shardwise.scipy import special
    >>> special.i1(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.565], dtype=float32)
    """
    return _i1(*real_operands("i1", x))


def _i1_slope(t: Array, y: Array, x: Array) -> Array:
    """``i0(x) - i1(x) / x``, one half at 0."""
    zero = lax.eq(x, lax.full_like(x, 0))
    slope = lax.sub(bessel_i0(x), lax.div(y, choose(zero, 1.0, x)))
    return lax.mul(t, choose(zero, 0.5, slope))


_i1 = define_along("bessel_i1", lambda x: lax.mul(lax.exp(lax.abs(x)), lax.bessel_i1e(x)), _i1_slope)


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Array:
    """The Bessel functions of the first kind of orders 0 to v at the floats `z`, stacked in front: f[...] -> f[v + 1,
    ...].

    `n_iter` is how far JAX iterates; SciPy's values need none.

    >>> from shardwise.scipy import special
    >>> special.bessel_jn(1.0, v=2).round(3)
    Array([0.765, 0.44 , 0.115], dtype=float32)
    """
    v, n_iter = operator.index(v), operator.index(n_iter)
    (x,) = real_operands("bessel_jn", *as_arrays(z))
    del n_iter
    rows = [lax.expand_dims(scipy.apply("jv", lax.full_like(x, order), x), (0,)) for order in range(v + 1)]
    return lax.concatenate(rows, 0)


def expi(x: Any) -> Array:
    """Elementwise exponential integral Ei of the floats `x`.

    >>> from shardwise.scipy import special
    >>> special.expi(jnp.array([0.5, 1.0])).round(3)
    Array([0.454, 1.895], dtype=float32)
    """
    return scipy.apply("expi", *real_operands("expi", x))


def exp1(x: Any) -> Array:
    """The exponential integral E1; NaN for negative x.

    >>> from shardwise.scipy import special
    >>> special.exp1(jnp.array([0.5, 1.0])).round(3)
    Array([0.56 , 0.219], dtype=float32)
    """
    (v,) = real_operands("exp1", x)
    return scipy.apply("expn", lax.full_like(v, 1), v)


def expn(n: Any, x: Any) -> Array:
    """Elementwise generalized exponential integral of order `n` of floats `x`, which broadcast.

    >>> from shardwise.scipy import special
    >>> special.expn(2, jnp.array([0.5, 1.0])).round(3)
    Array([0.327, 0.148], dtype=float32)
    """
    return scipy.apply("expn", *real_operands("expn", *as_arrays(n, x)))


def sici(x: Any) -> tuple[Array, Array]:
    """The sine and cosine integrals of `x`, two arrays of its shape.

    >>> from shardwise.scipy import special
    >>> [a.round(3) for a in special.sici(jnp.array([1.0, 2.0]))]
    [Array([0.946, 1.605], dtype=float32), Array([0.337, 0.423], dtype=float32)]
    """
    return scipy.apply_pair("sici", *real_operands("sici", x))


def spence(x: Any) -> Array:
    """Spence's function (the dilogarithm of 1 - x). TypeError unless float32 or float64.

    >>> from shardwise.scipy import special
    >>> special.spence(jnp.array([0.5, 2.0])).round(3)
    Array([ 0.582, -0.822], dtype=float32)
    """
    return scipy.apply("spence", float_operand("spence", *as_arrays(x)))


def hyp1f1(a: Any, b: Any, x: Any) -> Array:
    """The confluent hypergeometric function 1F1(a; b; x) of floats `a`, `b` and `x`, which broadcast.

    >>> from shardwise.scipy import special
    >>> special.hyp1f1(1.0, 2.0, jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 1.718], dtype=float32)
    """
    return scipy.apply("hyp1f1", *real_operands("hyp1f1", *as_arrays(a, b, x)))


def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Array:
    """Gauss's hypergeometric function 2F1(a, b; c; x) of floats `a`, `b`, `c` and `x`, which broadcast.

    >>> from shardwise.scipy import special
    >>> special.hyp2f1(1.0, 1.0, 2.0, jnp.array([0.0, 0.5])).round(3)
    Array([1.   , 1.386], dtype=float32)
    """
    return scipy.apply("hyp2f1", *real_operands("hyp2f1", a, b, c, x))


def owens_t(h: Any, a: Any) -> Array:
    """Owen's T function of real numbers `h` and `a`, which broadcast: float32, with types of 64 bits enabled float64.

    >>> from shardwise.scipy import special
    >>> special.owens_t(1.0, jnp.array([0.5, 1.0])).round(4)
    Array([0.0431, 0.0667], dtype=float32)
    """
    wide = default_dtype("f")
    return scipy.apply("owens_t", *[lax.convert_element_type(x, wide) for x in real_operands("owens_t", h, a)])


if not TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> Any:
        if name in ("lpmn", "lpmn_values"):
            warnings.warn(f"scipy.special.{name} is deprecated; there is no other.", DeprecationWarning, stacklevel=2)
            return getattr(_harmonics, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__dir__ = _listing(__name__)
