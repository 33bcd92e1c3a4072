"""The gamma distribution."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import gammainc, gammaincc, gammaln, xlogy
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _of_positive(a: Any, value: Any) -> Array:
    """NaN without a positive shape, for there is no distribution."""
    return jnp.where(a > 0, value, jnp.nan)


def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the gamma distribution with shape parameter `a`, from `loc` on, in units of
    `scale`. Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.gamma.logpdf(0.5, 2.0).round(3)
    Array(-1.193, dtype=float32, weak_type=True)
    """
    x, a, loc, scale = real("gamma.logpdf", x, a, loc, scale)
    outside = x < loc
    z = jnp.where(outside, 1, (x - loc) / scale)
    return jnp.where(outside, -jnp.inf, xlogy(a - 1, z) - z - gammaln(a) - lax.log(scale))


def pdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `a`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gamma.pdf(0.5, 2.0).round(3)
    Array(0.303, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, a, loc, scale))


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `a`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gamma.cdf(0.5, 2.0).round(3)
    Array(0.09, dtype=float32, weak_type=True)
    """
    x, a, loc, scale = real("gamma.cdf", x, a, loc, scale)
    return _of_positive(a, gammainc(a, lax.clamp(0.0, (x - loc) / scale, jnp.inf)))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `a`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gamma.sf(0.5, 2.0).round(3)
    Array(0.91, dtype=float32, weak_type=True)
    """
    x, a, loc, scale = real("gamma.sf", x, a, loc, scale)
    return _of_positive(a, gammaincc(a, lax.clamp(0.0, (x - loc) / scale, jnp.inf)))


def logcdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `a`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gamma.logcdf(0.5, 2.0).round(3)
    Array(-2.406, dtype=float32, weak_type=True)
    """
    return lax.log(cdf(x, a, loc, scale))


def logsf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `a`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gamma.logsf(0.5, 2.0).round(3)
    Array(-0.095, dtype=float32, weak_type=True)
    """
    return lax.log(sf(x, a, loc, scale))


__dir__ = _listing(__name__)
