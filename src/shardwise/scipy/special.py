"""`shardwise.scipy.special`: gamma, error, Bessel and information functions, elementwise; log-sum-exp and softmax."""

from __future__ import annotations

import operator
from math import inf, log, nan, pi, sqrt
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import issubdtype
from shardwise.ir import Array, bind
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Axis,
    array,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    convert,
    is_complex,
    promote_complex,
    promote_to_inexact,
    strong,
    values,
)
from shardwise.numpy._ufunc_forms import weak_if_scalar
from shardwise.numpy.creation import asarray
from shardwise.numpy.named_axes import split_names
from shardwise.numpy.transcendental import bessel_i0
from shardwise.ops.control.calls import define_along
from shardwise.ops.elementwise import scipy_functions as scipy
from shardwise.scipy.harmonics import sph_harm, sph_harm_y

__all__ = ["bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn", "digamma", "entr", "erf",
           "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial", "fresnel", "gamma", "gammainc", "gammaincc",
           "gammaln", "gammasgn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr", "log_softmax", "loggamma",
           "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "owens_t", "poch", "polygamma", "rel_entr", "sici", "softmax",
           "spence", "sph_harm", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta"]  # fmt: skip


# -- arguments -----------------------------------------------------------------------------------------------------------------


def _any(name: str, *xs: Any) -> list[Array]:
    """The arguments with one floating or complex dtype, broadcast to one shape."""
    promoted = promote_to_inexact(name, *xs)
    shape = broadcast_shapes(*(x.shape for x in promoted))
    return [broadcast_to_shape(x, shape) for x in promoted]


def _arrays(*xs: Any) -> list[Any]:
    """The arguments of a function that takes nested lists: these as arrays."""
    return [asarray(x) if isinstance(x, list | tuple) else x for x in xs]


def _real(name: str, *xs: Any) -> list[Array]:
    """`_any` for functions of real numbers; complex ones raise the error that JAX raises for this function."""
    out = _any(name, *xs)
    if is_complex(out[0].dtype):
        kind = ValueError if name in config.dialect.functions.complex_value_errors else TypeError
        raise kind(f"{name} does not support complex-valued inputs.")
    return out


def _single_or_double(name: str, x: Any) -> Array:
    """An argument that must be float32 or float64 already."""
    value = array(name, x)
    if value.dtype.name not in ("float32", "float64"):
        raise TypeError(f"{name}: x.dtype={value.dtype} is not supported; cast to float32 or float64.")
    return value


def _where(condition: Array, yes: Any, no: Any) -> Array:
    """Elementwise choice; numbers stand for arrays of them."""
    like = yes if isinstance(yes, Array) else no
    fill = lambda v: v if isinstance(v, Array) else lax.full_like(like, v)  # noqa: E731
    return lax.select(condition, fill(yes), fill(no))


# -- gamma and beta ------------------------------------------------------------------------------------------------------------


def gammaln(x: Any) -> Array:
    """The logarithm of the magnitude of the gamma function."""
    return lax.lgamma(*_any("gammaln", x))


def gammasgn(x: Any) -> Array:
    """The sign of the gamma function: 1 or -1, NaN at its poles."""
    v = strong(*_real("gammasgn", x))
    floor = lax.floor(v)
    negative = lax.lt(v, 0.0)
    pole = lax.bitwise_or(lax.bitwise_and(negative, lax.eq(v, floor)), lax.ne(v, v))
    odd = lax.bitwise_and(negative, lax.ne(lax.rem(floor, 2.0), 0.0))
    # The sign of zero counts: gamma(-0.) is -inf.
    minus_zero = lax.bitwise_and(lax.eq(v, 0.0), lax.lt(lax.div(lax.full_like(v, 1), v), 0.0))
    sign = _where(lax.bitwise_or(odd, minus_zero), -1.0, lax.full_like(v, 1))
    return _where(pole, nan, sign)


def loggamma(x: Any) -> Array:
    """The logarithm of the gamma function: NaN for negative real numbers, the principal branch for complex ones."""
    (v,) = _any("loggamma", x)
    if is_complex(v.dtype):
        return scipy.apply("loggamma", v)
    return _where(lax.gt(v, 0.0), lax.lgamma(v), nan)


def gamma(x: Any) -> Array:
    """The gamma function."""
    (v,) = _any("gamma", x)
    if is_complex(v.dtype):
        return scipy.apply("gamma", v)
    return lax.mul(gammasgn(v), lax.exp(lax.lgamma(v)))


def betaln(a: Any, b: Any) -> Array:
    """The logarithm of the magnitude of the beta function."""
    return bind(scipy.OPS["betaln"], *_real("betaln", a, b))  # as weak as its operands


def beta(a: Any, b: Any) -> Array:
    """The beta function."""
    x, y = _real("beta", a, b)
    sign = lax.mul(lax.mul(gammasgn(x), gammasgn(y)), gammasgn(lax.add(x, y)))
    return lax.mul(sign, lax.exp(betaln(x, y)))


def betainc(a: Any, b: Any, x: Any) -> Array:
    """The regularized incomplete beta function."""
    return lax.betainc(*_real("betainc", a, b, x))


def gammainc(a: Any, x: Any) -> Array:
    """The regularized lower incomplete gamma function."""
    return lax.igamma(*_real("gammainc", a, x))


def gammaincc(a: Any, x: Any) -> Array:
    """The regularized upper incomplete gamma function."""
    return lax.igammac(*_real("gammaincc", a, x))


def digamma(x: Any) -> Array:
    """The derivative of `gammaln`."""
    return lax.digamma(*_real("digamma", x))


def polygamma(n: Any, x: Any) -> Array:
    """The derivative of integer order n of `digamma`. ValueError for orders of another type."""
    (order,) = values("polygamma", n)
    if not issubdtype(order.dtype, np.integer):
        raise ValueError(f"Argument `n` to polygamma must be of integer type. Got dtype {order.dtype}.")
    return lax.polygamma(*_real("polygamma", n, x))


def zeta(x: Any, q: Any = None) -> Array:
    """The Hurwitz zeta function. NotImplementedError without `q`."""
    if q is None:
        raise NotImplementedError(
            "Riemann zeta function not implemented; pass q=1 for it, or any other q for the Hurwitz zeta function."
        )
    return lax.zeta(*_real("zeta", x, q))


def factorial(n: Any, exact: bool = False) -> Array:
    """gamma(n + 1), and 0 for negative n. NotImplementedError for `exact`."""
    if exact:
        raise NotImplementedError("factorial computes in floating point; take math.factorial for exact integers.")
    (v,) = _real("factorial", n)
    return _where(lax.lt(v, 0.0), 0.0, lax.exp(lax.lgamma(lax.add(v, 1.0))))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Array:
    """The number of ways to choose k of N things, with `repetition` or without."""
    n, m = _real("comb", N, k)
    if repetition:
        trivial = lax.bitwise_and(lax.eq(m, 0.0), lax.ge(n, 0.0))
        return _where(trivial, 1.0, comb(lax.sub(lax.add(n, m), 1.0), m))
    possible = lax.bitwise_and(lax.bitwise_and(lax.le(m, n), lax.ge(n, 0.0)), lax.ge(m, 0.0))
    n, m = _where(possible, n, 0.0), _where(possible, m, 0.0)
    rest = lax.lgamma(lax.add(lax.sub(n, m), 1.0))
    logs = lax.sub(lax.sub(lax.lgamma(lax.add(n, 1.0)), lax.lgamma(lax.add(m, 1.0))), rest)
    return _where(possible, lax.exp(logs), 0.0)


def multigammaln(a: Any, d: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension d."""
    d = operator.index(d)
    v = strong(*_real("multigammaln", a))
    out = lax.full_like(v, 0.25 * d * (d - 1) * log(pi))
    for i in range(d):
        out = lax.add(out, lax.lgamma(lax.sub(v, i / 2)))
    return out


def poch(z: Any, m: Any) -> Array:
    """Pochhammer's symbol gamma(z + m) / gamma(z)."""
    return scipy.apply("poch", *_real("poch", z, m))


def bernoulli(n: int) -> Array:
    """The Bernoulli numbers up to B(n), with B(1) = -1/2. ValueError for negative n."""
    n = operator.index(n)
    if n < 0:
        raise ValueError("n must be a non-negative integer.")
    from scipy.special import bernoulli as numbers

    return array("bernoulli", np.asarray(numbers(n))[: n + 1])


# -- error functions -------------------------------------------------------------------------------------------------------------


def erf(x: Any) -> Array:
    """The error function."""
    return lax.erf(*_real("erf", x))


def erfc(x: Any) -> Array:
    """1 - erf(x)."""
    return lax.erfc(*_real("erfc", x))


def erfinv(x: Any) -> Array:
    """The inverse of `erf`."""
    return lax.erf_inv(*_real("erfinv", x))


def erfcx(x: Any) -> Array:
    """exp(x**2) erfc(x)."""
    return scipy.apply("erfcx", *_any("erfcx", x))


def dawsn(x: Any) -> Array:
    """Dawson's integral."""
    return scipy.apply("dawsn", *_real("dawsn", x))


def wofz(z: Any) -> Array:
    """Faddeeva's function exp(-z**2) erfc(-iz), complex."""
    return scipy.apply("wofz", *promote_complex(*values("wofz", z)))


def fresnel(x: Any) -> tuple[Array, Array]:
    """Fresnel's integrals S and C."""
    return scipy.apply_pair("fresnel", *_real("fresnel", x))


def ndtr(x: Any) -> Array:
    """The distribution function of the standard normal. TypeError unless float32 or float64."""
    v = strong(_single_or_double("ndtr", *_arrays(x)))
    half = sqrt(0.5)
    small = lax.lt(lax.abs(v), half)
    w = lax.mul(v, half)
    tail = lax.mul(lax.erfc(lax.abs(w)), 0.5)
    centre = lax.add(lax.mul(lax.erf(w), 0.5), 0.5)
    return lax.select(small, centre, lax.select(lax.gt(w, 0.0), lax.sub(lax.full_like(v, 1), tail), tail))


def ndtri(p: Any) -> Array:
    """The inverse of `ndtr`. TypeError unless float32 or float64."""
    return scipy.apply("ndtri", _single_or_double("ndtri", p))


def log_ndtr(x: Any, series_order: Any = 3) -> Array:
    """The logarithm of `ndtr`, exact in the tail. `series_order` (0 to 30) is how JAX bounds its series; none is used here."""
    if not isinstance(series_order, int):
        raise TypeError("series_order must be a Python integer.")
    if not 0 <= series_order <= 30:
        raise ValueError(f"series_order must be non-negative and <= 30, got {series_order}.")
    return scipy.apply("log_ndtr", _single_or_double("log_ndtr", *_arrays(x)))


# -- logarithms, odds and information --------------------------------------------------------------------------------------------


def logit(x: Any) -> Array:
    """log(x / (1 - x))."""
    return weak_if_scalar(_logit(*_any("logit", x)))


_logit = define_along(
    "logit",
    lambda x: lax.log(lax.div(x, lax.sub(lax.full_like(x, 1), x))),
    lambda t, y, x: lax.div(t, lax.mul(x, lax.sub(lax.full_like(x, 1), x))),
)


def expit(x: Any) -> Array:
    """The logistic function 1 / (1 + exp(-x))."""
    return lax.logistic(*_any("expit", x))


def xlogy(x: Any, y: Any) -> Array:
    """x log(y), and 0 where x is 0 unless y is NaN."""
    return _xlogy(*_any("xlogy", x, y))


def xlog1py(x: Any, y: Any) -> Array:
    """x log(1 + y), and 0 where x is 0 unless y is NaN."""
    return _xlog1py(*_any("xlog1py", x, y))


def _times_log(logarithm: Any) -> Any:
    def body(x: Array, y: Array) -> Array:
        counts = lax.bitwise_or(lax.ne(x, lax.full_like(x, 0)), lax.ne(y, y))
        return _where(counts, lax.mul(x, logarithm(y)), 0.0)

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
    """-x log(x), 0 at 0, and -inf for negative x."""
    (v,) = _real("entr", x)
    return _where(lax.lt(v, 0.0), -inf, lax.neg(_xlogx(v)))


def rel_entr(p: Any, q: Any) -> Array:
    """p log(p / q), 0 where p is 0 and q is not negative, else infinity."""
    result = _relative_entropy(*_real("rel_entr", p, q))
    return strong(result) if np.ndim(p) else result


def _relative_entropy(a: Array, b: Array) -> Array:
    positive = lax.bitwise_and(lax.gt(a, 0.0), lax.gt(b, 0.0))
    zero = lax.bitwise_and(lax.eq(a, 0.0), lax.ge(b, 0.0))
    x, y = _where(positive, a, 1.0), _where(positive, b, 1.0)
    value = lax.sub(_xlogx(x), _xlogy(x, y))
    return lax.select(positive, value, _where(zero, 0.0, lax.full_like(a, inf)))


def kl_div(p: Any, q: Any) -> Array:
    """rel_entr(p, q) - p + q."""
    a, b = _real("kl_div", p, q)
    result = lax.add(lax.sub(_relative_entropy(a, b), a), b)
    return strong(result) if np.ndim(p) else result


def boxcox(x: Any, lmbda: Any) -> Array:
    """(x**lmbda - 1) / lmbda, and log(x) where lmbda is 0."""
    v, power = _real("boxcox", x, lmbda)
    return _power_or_log(lax.log(v), power)


def boxcox1p(x: Any, lmbda: Any) -> Array:
    """`boxcox` of 1 + x."""
    v, power = _real("boxcox1p", x, lmbda)
    return _power_or_log(lax.log1p(v), power)


def _power_or_log(logs: Array, power: Array) -> Array:
    zero = lax.eq(power, 0.0)
    safe = _where(zero, 1.0, power)
    return lax.select(zero, logs, lax.div(lax.expm1(lax.mul(safe, logs)), safe))


# -- Bessel, exponential integrals, hypergeometric -------------------------------------------------------------------------------


def i0e(x: Any) -> Array:
    """exp(-|x|) times the modified Bessel function of order 0."""
    return lax.bessel_i0e(*_real("i0e", x))


def i0(x: Any) -> Array:
    """The modified Bessel function of order 0."""
    return bessel_i0(*_real("i0", x))


def i1e(x: Any) -> Array:
    """exp(-|x|) times the modified Bessel function of order 1."""
    return lax.bessel_i1e(*_real("i1e", x))


def i1(x: Any) -> Array:
    """The modified Bessel function of order 1."""
    return _i1(*_real("i1", x))


def _i1_slope(t: Array, y: Array, x: Array) -> Array:
    """``i0(x) - i1(x) / x``, one half at 0."""
    zero = lax.eq(x, lax.full_like(x, 0))
    slope = lax.sub(bessel_i0(x), lax.div(y, _where(zero, 1.0, x)))
    return lax.mul(t, _where(zero, 0.5, slope))


_i1 = define_along("bessel_i1", lambda x: lax.mul(lax.exp(lax.abs(x)), lax.bessel_i1e(x)), _i1_slope)


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Array:
    """The Bessel functions of the first kind of orders 0 to v, stacked in front: f[...] -> f[v + 1, ...].

    `n_iter` is how far JAX iterates; SciPy's values need none.
    """
    v, n_iter = operator.index(v), operator.index(n_iter)
    (x,) = _real("bessel_jn", *_arrays(z))
    del n_iter
    rows = [lax.expand_dims(scipy.apply("jv", lax.full_like(x, order), x), (0,)) for order in range(v + 1)]
    return lax.concatenate(rows, 0)


def expi(x: Any) -> Array:
    """The exponential integral Ei."""
    return scipy.apply("expi", *_real("expi", x))


def exp1(x: Any) -> Array:
    """The exponential integral E1; NaN for negative x."""
    (v,) = _real("exp1", x)
    return scipy.apply("expn", lax.full_like(v, 1), v)


def expn(n: Any, x: Any) -> Array:
    """The generalized exponential integrals En."""
    return scipy.apply("expn", *_real("expn", *_arrays(n, x)))


def sici(x: Any) -> tuple[Array, Array]:
    """The sine and cosine integrals."""
    return scipy.apply_pair("sici", *_real("sici", x))


def spence(x: Any) -> Array:
    """Spence's function (the dilogarithm of 1 - x). TypeError unless float32 or float64."""
    return scipy.apply("spence", _single_or_double("spence", *_arrays(x)))


def hyp1f1(a: Any, b: Any, x: Any) -> Array:
    """The confluent hypergeometric function 1F1."""
    return scipy.apply("hyp1f1", *_real("hyp1f1", *_arrays(a, b, x)))


def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Array:
    """Gauss's hypergeometric function 2F1."""
    return scipy.apply("hyp2f1", *_real("hyp2f1", a, b, c, x))


def owens_t(h: Any, a: Any) -> Array:
    """Owen's T function."""
    return scipy.apply("owens_t", *_real("owens_t", h, a))


# -- sums of exponentials ----------------------------------------------------------------------------------------------------------


def logsumexp(
    a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """log(sum(b exp(a))) along `axis` (default: all), without overflow; with `return_sign` of its magnitude, and the sign.

    `where` says which elements count. Negative sums give NaN unless the sign is asked for.
    """
    x, *weights = promote_to_inexact("logsumexp", a, *([] if b is None else [b]))
    counted = [array("logsumexp", where)] if where is not None else []
    shape = broadcast_shapes(x.shape, *(w.shape for w in (*weights, *counted)))
    x = broadcast_to_shape(x, shape)
    weights = [broadcast_to_shape(w, shape) for w in weights]
    if counted:
        mask = broadcast_to_shape(lax.convert_element_type(counted[0], np.dtype(bool)), shape)
        x = _where(mask, x, -inf)
    for w in weights:
        x = _where(lax.ne(w, lax.full_like(w, 0)), x, -inf)
    axis, names = split_names(axis)
    dims = canonical_axes(axis, x.ndim)
    real = lax.real(x) if is_complex(x.dtype) else x
    top = lax.reduce_max(lax.stop_gradient(real), dims)
    top = lax.pmax(top, names) if names else top
    top = _where(lax.is_finite(top), top, 0.0)
    kept = tuple(d for d in range(x.ndim) if d not in dims)
    spread = lax.broadcast_in_dim(convert(top, x.dtype), shape, kept)
    terms = lax.exp(lax.sub(x, spread))
    for w in weights:
        terms = lax.mul(terms, w)
    total = lax.reduce_sum(terms, dims)
    total = lax.psum(total, names) if names else total
    sign = lax.sign(total)
    size = lax.abs(total) if return_sign or not is_complex(x.dtype) else total
    out = lax.add(lax.log(size), convert(top, size.dtype))
    if not return_sign and weights and not is_complex(out.dtype):
        out = _where(lax.lt(sign, 0.0), nan, out)
    if keepdims:
        out, sign = lax.expand_dims(out, sorted(dims)), lax.expand_dims(sign, sorted(dims))
    return (out, sign) if return_sign else out


def softmax(x: Any, /, *, axis: Axis = None) -> Array:
    """exp(x) divided by its sum along `axis` (default: all)."""
    v = strong(*_any("softmax", x))
    terms, total, _ = _exponentials(v, axis)
    return lax.div(terms, total)


def log_softmax(x: Any, /, *, axis: Axis = None) -> Array:
    """The logarithm of `softmax`."""
    v = strong(*_any("log_softmax", x))
    _, total, shifted = _exponentials(v, axis)
    return lax.sub(shifted, lax.log(total))


def _exponentials(x: Array, axis: Axis) -> tuple[Array, Array, Array]:
    """exp(x - max) and its sum, spread over the reduced dims; x - max."""
    dims = canonical_axes(axis, x.ndim)
    kept = tuple(d for d in range(x.ndim) if d not in dims)
    spread = lambda v: lax.broadcast_in_dim(v, x.shape, kept)  # noqa: E731
    shifted = lax.sub(x, spread(lax.stop_gradient(lax.reduce_max(x, dims))))
    terms = lax.exp(shifted)
    return terms, spread(lax.reduce_sum(terms, dims)), shifted
