"""Gamma and beta functions, and the numbers made from them."""

from __future__ import annotations

import operator
from math import log, nan, pi
from typing import Any

import numpy as np

from shardwise.base.dtypes import issubdtype
from shardwise.ir import Array, bind
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, is_complex, strong, values
from shardwise.ops.elementwise import scipy_functions as scipy
from shardwise.scipy.special_operands import choose, inexact_operands, real_operands

__all__ = ["bernoulli", "beta", "betainc", "betaln", "comb", "digamma", "factorial", "gamma", "gammainc", "gammaincc",
           "gammaln", "gammasgn", "loggamma", "multigammaln", "poch", "polygamma", "zeta"]  # fmt: skip


def gammaln(x: Any) -> Array:
    """The logarithm of the magnitude of the gamma function of the floats `x`.

    >>> from shardwise.scipy import special
    >>> special.gammaln(jnp.array([3.0, 10.0])).round(3)
    Array([ 0.693, 12.802], dtype=float32)
    """
    return lax.lgamma(*inexact_operands("gammaln", x))


def gammasgn(x: Any) -> Array:
    """The sign of the gamma function of the floats `x`: 1 or -1, NaN at its poles.

    >>> from shardwise.scipy import special
    >>> special.gammasgn(jnp.array([-0.5, 1.0]))
    Array([-1.,  1.], dtype=float32)
    """
    v = strong(*real_operands("gammasgn", x))
    floor = lax.floor(v)
    negative = lax.lt(v, 0.0)
    pole = lax.bitwise_or(lax.bitwise_and(negative, lax.eq(v, floor)), lax.ne(v, v))
    odd = lax.bitwise_and(negative, lax.ne(lax.rem(floor, 2.0), 0.0))
    # The sign of zero counts: gamma(-0.) is -inf.
    minus_zero = lax.bitwise_and(lax.eq(v, 0.0), lax.lt(lax.div(lax.full_like(v, 1), v), 0.0))
    sign = choose(lax.bitwise_or(odd, minus_zero), -1.0, lax.full_like(v, 1))
    return choose(pole, nan, sign)


def loggamma(x: Any) -> Array:
    """The logarithm of the gamma function of `x`: NaN for negative real numbers, the principal branch for complex
    ones.

    >>> from shardwise.scipy import special
    >>> special.loggamma(jnp.array([3.0, 10.0])).round(3)
    Array([ 0.693, 12.802], dtype=float32)
    """
    (v,) = inexact_operands("loggamma", x)
    if is_complex(v.dtype):
        return scipy.apply("loggamma", v)
    return choose(lax.gt(v, 0.0), lax.lgamma(v), nan)


def gamma(x: Any) -> Array:
    """Elementwise gamma function of the floats `x`.

    >>> from shardwise.scipy import special
    >>> special.gamma(jnp.array([1.0, 5.0])).round(3)
    Array([ 1., 24.], dtype=float32)
    """
    (v,) = inexact_operands("gamma", x)
    if is_complex(v.dtype):
        return scipy.apply("gamma", v)
    return lax.mul(gammasgn(v), lax.exp(lax.lgamma(v)))


def betaln(a: Any, b: Any) -> Array:
    """The logarithm of the magnitude of the beta function of floats `a` and `b`, which broadcast.

    >>> from shardwise.scipy import special
    >>> special.betaln(2.0, jnp.array([1.0, 4.0])).round(3)
    Array([-0.693, -2.996], dtype=float32)
    """
    return bind(scipy.OPS["betaln"], *real_operands("betaln", a, b))  # as weak as its operands


def beta(a: Any, b: Any) -> Array:
    """Elementwise beta function of floats `a` and `b`, which broadcast.

    >>> from shardwise.scipy import special
    >>> special.beta(2.0, jnp.array([1.0, 4.0])).round(3)
    Array([0.5 , 0.05], dtype=float32)
    """
    x, y = real_operands("beta", a, b)
    sign = lax.mul(lax.mul(gammasgn(x), gammasgn(y)), gammasgn(lax.add(x, y)))
    return lax.mul(sign, lax.exp(betaln(x, y)))


def betainc(a: Any, b: Any, x: Any) -> Array:
    """Elementwise regularized incomplete beta function I_x(a, b) of floats `a`, `b` and `x`, which broadcast.

    >>> from shardwise.scipy import special
    >>> special.betainc(2.0, 3.0, jnp.array([0.0, 0.5])).round(4)
    Array([0.    , 0.6875], dtype=float32)
    """
    return lax.betainc(*real_operands("betainc", a, b, x))


def gammainc(a: Any, x: Any) -> Array:
    """The regularized lower incomplete gamma function P(a, x) of floats `a` and `x`, which broadcast.

    >>> from shardwise.scipy import special
    >>> special.gammainc(2.0, jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.264], dtype=float32)
    """
    return lax.igamma(*real_operands("gammainc", a, x))


def gammaincc(a: Any, x: Any) -> Array:
    """The regularized upper incomplete gamma function Q(a, x) of floats `a` and `x`, which broadcast.

    >>> from shardwise.scipy import special
    >>> special.gammaincc(2.0, jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 0.736], dtype=float32)
    """
    return lax.igammac(*real_operands("gammaincc", a, x))


def digamma(x: Any) -> Array:
    """Elementwise derivative of `gammaln` at the floats `x`.

    >>> from shardwise.scipy import special
    >>> special.digamma(jnp.array([1.0, 2.0])).round(3)
    Array([-0.577,  0.423], dtype=float32)
    """
    return lax.digamma(*real_operands("digamma", x))


def polygamma(n: Any, x: Any) -> Array:
    """The derivative of integer order n of `digamma` at the floats `x`. ValueError for orders of another type.

    >>> from shardwise.scipy import special
    >>> special.polygamma(1, jnp.array([1.0, 2.0])).round(3)
    Array([1.645, 0.645], dtype=float32)
    """
    (order,) = values("polygamma", n)
    if not issubdtype(order.dtype, np.integer):
        raise ValueError(f"Argument `n` to polygamma must be of integer type. Got dtype {order.dtype}.")
    return lax.polygamma(*real_operands("polygamma", n, x))


def zeta(x: Any, q: Any = None) -> Array:
    """The Hurwitz zeta function of floats `x` and `q`, which broadcast. NotImplementedError without `q`.

    >>> from shardwise.scipy import special
    >>> special.zeta(jnp.array([2.0, 3.0]), 1.0).round(3)
    Array([1.645, 1.202], dtype=float32)
    """
    if q is None:
        raise NotImplementedError(
            "Riemann zeta function not implemented; pass q=1 for it, or any other q for the Hurwitz zeta function."
        )
    return lax.zeta(*real_operands("zeta", x, q))


def factorial(n: Any, exact: bool = False) -> Array:
    """gamma(n + 1), and 0 for negative n. NotImplementedError for `exact`.

    >>> from shardwise.scipy import special
    >>> special.factorial(jnp.array([3, 5])).round(3)
    Array([  6., 120.], dtype=float32)
    """
    if exact:
        raise NotImplementedError("factorial computes in floating point; take math.factorial for exact integers.")
    (v,) = real_operands("factorial", n)
    return choose(lax.lt(v, 0.0), 0.0, lax.exp(lax.lgamma(lax.add(v, 1.0))))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Array:
    """The number of ways to choose k of N things, with `repetition` or without.

    >>> from shardwise.scipy import special
    >>> special.comb(5, jnp.array([2, 3])).round(3)
    Array([10., 10.], dtype=float32)
    """
    n, m = real_operands("comb", N, k)
    if repetition:
        trivial = lax.bitwise_and(lax.eq(m, 0.0), lax.ge(n, 0.0))
        return choose(trivial, 1.0, comb(lax.sub(lax.add(n, m), 1.0), m))
    possible = lax.bitwise_and(lax.bitwise_and(lax.le(m, n), lax.ge(n, 0.0)), lax.ge(m, 0.0))
    n, m = choose(possible, n, 0.0), choose(possible, m, 0.0)
    rest = lax.lgamma(lax.add(lax.sub(n, m), 1.0))
    logs = lax.sub(lax.sub(lax.lgamma(lax.add(n, 1.0)), lax.lgamma(lax.add(m, 1.0))), rest)
    return choose(possible, lax.exp(logs), 0.0)


def multigammaln(a: Any, d: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension `d` of the floats `a`.

    >>> from shardwise.scipy import special
    >>> special.multigammaln(jnp.array([2.0, 3.0]), 2).round(3)
    Array([0.452, 1.55 ], dtype=float32)
    """
    d = operator.index(d)
    v = strong(*real_operands("multigammaln", a))
    out = lax.full_like(v, 0.25 * d * (d - 1) * log(pi))
    for i in range(d):
        out = lax.add(out, lax.lgamma(lax.sub(v, i / 2)))
    return out


def poch(z: Any, m: Any) -> Array:
    """Pochhammer's symbol gamma(z + m) / gamma(z).

    >>> from shardwise.scipy import special
    >>> special.poch(2.0, jnp.array([1.0, 3.0])).round(3)
    Array([ 2., 24.], dtype=float32)
    """
    return scipy.apply("poch", *real_operands("poch", z, m))


def bernoulli(n: int) -> Array:
    """The Bernoulli numbers up to B(n), with B(1) = -1/2. ValueError for negative n.

    >>> from shardwise.scipy import special
    >>> special.bernoulli(4).round(4)
    Array([ 1.    , -0.5   ,  0.1667,  0.    , -0.0333], dtype=float32)
    """
    n = operator.index(n)
    if n < 0:
        raise ValueError("n must be a non-negative integer.")
    from scipy.special import bernoulli as numbers

    return array("bernoulli", np.asarray(numbers(n))[: n + 1])
