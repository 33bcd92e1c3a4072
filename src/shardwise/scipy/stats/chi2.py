"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.scipy.stats import gamma

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    return gamma.logpdf(x, jnp.asarray(df) / 2, loc, 2 * jnp.asarray(scale))


def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, df, loc, scale))


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    return gamma.cdf(x, jnp.asarray(df) / 2, loc, 2 * jnp.asarray(scale))


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    return gamma.sf(x, jnp.asarray(df) / 2, loc, 2 * jnp.asarray(scale))


def logcdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return lax.log(cdf(x, df, loc, scale))


def logsf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    return lax.log(sf(x, df, loc, scale))
