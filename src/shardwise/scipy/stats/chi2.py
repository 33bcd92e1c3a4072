"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from shardwise import lax
from shardwise.ir import Array
from shardwise.numpy._promote import array
from shardwise.numpy._ufunc_forms import weak_if_scalar
from shardwise.scipy.stats import gamma

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    return gamma.logpdf(x, array("chi2.logpdf", df, 1) / 2, loc, 2 * array("chi2.logpdf", scale, 3))


def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, df, loc, scale))


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    return gamma.cdf(x, array("chi2.cdf", df, 1) / 2, loc, 2 * array("chi2.cdf", scale, 3))


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    return weak_if_scalar(gamma.sf(x, array("chi2.sf", df, 1) / 2, loc, 2 * array("chi2.sf", scale, 3)))


def logcdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return lax.log(cdf(x, df, loc, scale))


def logsf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    return lax.log(sf(x, df, loc, scale))
