"""The beta distribution."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import betainc, betaln, xlog1py, xlogy
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the beta distribution with shape parameters `a` and `b`, on `loc` to `loc +
    scale`. Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.beta.logpdf(0.5, 2.0, 3.0).round(3)
    Array(0.405, dtype=float32, weak_type=True)
    """
    x, a, b, loc, scale = real("beta.logpdf", x, a, b, loc, scale)
    outside = (x < loc) | (x > loc + scale)
    z = jnp.where(outside, 0.5, (x - loc) / scale)
    value = xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b) - lax.log(scale)
    is_invalid = (a <= 0) | (b <= 0) | (scale <= 0)
    return jnp.where(is_invalid, jnp.nan, jnp.where(outside, -jnp.inf, value))


def pdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.beta.pdf(0.5, 2.0, 3.0).round(3)
    Array(1.5, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, a, b, loc, scale))


def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.beta.cdf(0.5, 2.0, 3.0).round(3)
    Array(0.688, dtype=float32, weak_type=True)
    """
    x, a, b, loc, scale = real("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, lax.clamp(0.0, (x - loc) / scale, 1.0))


def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.beta.sf(0.5, 2.0, 3.0).round(3)
    Array(0.312, dtype=float32, weak_type=True)
    """
    x, a, b, loc, scale = real("beta.sf", x, a, b, loc, scale)
    return betainc(b, a, 1 - lax.clamp(0.0, (x - loc) / scale, 1.0))


def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.beta.logcdf(0.5, 2.0, 3.0).round(3)
    Array(-0.375, dtype=float32, weak_type=True)
    """
    return lax.log(cdf(x, a, b, loc, scale))


def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.beta.logsf(0.5, 2.0, 3.0).round(3)
    Array(-1.163, dtype=float32, weak_type=True)
    """
    return lax.log(sf(x, a, b, loc, scale))


__dir__ = _listing(__name__)
