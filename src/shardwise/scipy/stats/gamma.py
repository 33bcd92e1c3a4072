"""The gamma distribution."""

from __future__ import annotations

from typing import Any

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.scipy.special import gammainc, gammaincc, gammaln, xlogy
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    x, a, loc, scale = real("gamma.logpdf", x, a, loc, scale)
    z = (x - loc) / scale
    inside = z >= 0
    safe = jnp.where(inside, z, 1)
    return jnp.where(inside, xlogy(a - 1, safe) - safe - gammaln(a) - lax.log(scale), -jnp.inf)


def pdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, a, loc, scale))


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    x, a, loc, scale = real("gamma.cdf", x, a, loc, scale)
    return gammainc(a, jnp.maximum((x - loc) / scale, 0))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    x, a, loc, scale = real("gamma.sf", x, a, loc, scale)
    return gammaincc(a, jnp.maximum((x - loc) / scale, 0))


def logcdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return lax.log(cdf(x, a, loc, scale))


def logsf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    return lax.log(sf(x, a, loc, scale))
