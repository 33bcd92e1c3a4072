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
    """The log of the density."""
    x, a, loc, scale = real("gamma.logpdf", x, a, loc, scale)
    outside = x < loc
    z = jnp.where(outside, 1, (x - loc) / scale)
    return jnp.where(outside, -jnp.inf, xlogy(a - 1, z) - z - gammaln(a) - lax.log(scale))


def pdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, a, loc, scale))


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    x, a, loc, scale = real("gamma.cdf", x, a, loc, scale)
    return _of_positive(a, gammainc(a, lax.clamp(0.0, (x - loc) / scale, jnp.inf)))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    x, a, loc, scale = real("gamma.sf", x, a, loc, scale)
    return _of_positive(a, gammaincc(a, lax.clamp(0.0, (x - loc) / scale, jnp.inf)))


def logcdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return lax.log(cdf(x, a, loc, scale))


def logsf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    return lax.log(sf(x, a, loc, scale))


__dir__ = _listing(__name__)
