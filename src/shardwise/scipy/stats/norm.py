"""The normal distribution."""

from __future__ import annotations

from math import pi
from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import log_ndtr, ndtr, ndtri
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    x, loc, scale = real("norm.logpdf", x, loc, scale)
    variance = lax.square(scale)
    return -0.5 * (lax.log(2 * pi * variance) + lax.square(x - loc) / variance)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    x, loc, scale = real("norm.cdf", x, loc, scale)
    return ndtr((x - loc) / scale)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`, exact far out too."""
    x, loc, scale = real("norm.logcdf", x, loc, scale)
    return log_ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    x, loc, scale = real("norm.sf", x, loc, scale)
    return ndtr((loc - x) / scale)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`, exact far out too."""
    x, loc, scale = real("norm.logsf", x, loc, scale)
    return log_ndtr((loc - x) / scale)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value `x` with ``cdf(x) == q``."""
    q, loc, scale = real("norm.ppf", q, loc, scale)
    return ndtri(q) * scale + loc


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value `x` with ``sf(x) == q``."""
    q, loc, scale = real("norm.isf", q, loc, scale)
    return -ndtri(q) * scale + loc


__dir__ = _listing(__name__)
