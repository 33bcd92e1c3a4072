"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats import gamma
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    x, df, loc, scale = real("chi2.logpdf", x, df, loc, scale)
    return gamma.logpdf(x, df / 2, loc, 2 * scale)


def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, df, loc, scale))


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    x, df, loc, scale = real("chi2.cdf", x, df, loc, scale)
    return gamma.cdf(x, df / 2, loc, 2 * scale)


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    x, df, loc, scale = real("chi2.sf", x, df, loc, scale)
    return gamma.sf(x, df / 2, loc, 2 * scale)


def logcdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return lax.log(cdf(x, df, loc, scale))


def logsf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    return lax.log(sf(x, df, loc, scale))


__dir__ = _listing(__name__)
