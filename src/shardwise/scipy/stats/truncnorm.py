"""The normal distribution between two bounds, given in units of the scale."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import log_ndtr, ndtr
from shardwise.scipy.stats import norm
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _log_difference(x: Any, y: Any) -> Any:
    """log(exp(x) - exp(y)) for x >= y."""
    none = x <= y
    return jnp.where(none, -jnp.inf, x + jnp.log(-jnp.expm1(jnp.where(none, -1, y - x))))


def _log_mass(a: Any, b: Any) -> Any:
    """The log of the standard normal distribution's probability between a and b; in the tail where digits are kept."""
    right = a > 0
    low, high = jnp.where(right, -b, a), jnp.where(right, -a, b)
    across = (a <= 0) & (b > 0)
    return jnp.where(across, jnp.log1p(-ndtr(a) - ndtr(-b)), _log_difference(log_ndtr(high), log_ndtr(low)))


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the normal distribution with mean `loc` and standard deviation `scale`, cut
    off at `a` and `b` standard deviations from the mean. Arguments are real numbers or arrays that broadcast, the
    result is a float array of their shape.

    >>> jax.scipy.stats.truncnorm.logpdf(0.5, -1.0, 2.0).round(3)
    Array(-0.844, dtype=float32)
    """
    x, a, b, loc, scale = real("truncnorm.logpdf", x, a, b, loc, scale)
    z = (x - loc) / scale
    outside = (z < a) | (z > b)
    inside_value = jnp.where(outside, -jnp.inf, norm.logpdf(jnp.where(outside, loc, x), loc, scale) - _log_mass(a, b))
    return jnp.where(a < b, inside_value, jnp.nan)


def pdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.truncnorm.pdf(0.5, -1.0, 2.0).round(3)
    Array(0.43, dtype=float32)
    """
    return lax.exp(logpdf(x, a, b, loc, scale))


def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.truncnorm.logcdf(0.5, -1.0, 2.0).round(3)
    Array(-0.429, dtype=float32)
    """
    x, a, b, loc, scale = real("truncnorm.logcdf", x, a, b, loc, scale)
    z = (x - loc) / scale
    low, high = z <= a, z >= b
    outside = low | high  # there nothing moves; numbers inside, for the derivative
    left, at, right = jnp.where(outside, -1, a), jnp.where(outside, 0, z), jnp.where(outside, 1, b)
    whole = _log_mass(left, right)
    below, above = _log_mass(left, at) - whole, _log_mass(at, right) - whole
    # Near 1 the other side keeps its digits.
    inside_value = jnp.where(below > -0.1, jnp.log1p(-jnp.exp(above)), below)
    inside_value = jnp.where(high, 0, jnp.where(low, -jnp.inf, inside_value))
    return jnp.where(a < b, inside_value, jnp.nan)


def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.truncnorm.cdf(0.5, -1.0, 2.0).round(3)
    Array(0.651, dtype=float32)
    """
    return lax.exp(logcdf(x, a, b, loc, scale))


def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.truncnorm.logsf(0.5, -1.0, 2.0).round(3)
    Array(-1.052, dtype=float32)
    """
    x, a, b, loc, scale = real("truncnorm.logsf", x, a, b, loc, scale)
    return logcdf(-x, -b, -a, -loc, scale)


def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `a`, `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.truncnorm.sf(0.5, -1.0, 2.0).round(3)
    Array(0.349, dtype=float32)
    """
    return lax.exp(logsf(x, a, b, loc, scale))


__dir__ = _listing(__name__)
