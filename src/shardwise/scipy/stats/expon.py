"""The exponential distribution."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    x, loc, scale = real("expon.logpdf", x, loc, scale)
    return jnp.where(x < loc, -jnp.inf, -((x - loc) / scale + lax.log(scale)))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    x, loc, scale = real("expon.cdf", x, loc, scale)
    return jnp.where(x < loc, 0, -lax.expm1((loc - x) / scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return lax.log1p(-sf(x, loc, scale))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    x, loc, scale = real("expon.logsf", x, loc, scale)
    return jnp.where(x < loc, 0, (loc - x) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    return lax.exp(logsf(x, loc, scale))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value `x` with ``cdf(x) == q``."""
    q, loc, scale = real("expon.ppf", q, loc, scale)
    return jnp.where((q >= 0) & (q <= 1), loc - scale * lax.log1p(-q), jnp.nan)


__dir__ = _listing(__name__)
