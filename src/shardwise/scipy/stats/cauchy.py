"""The Cauchy distribution."""

from __future__ import annotations

from math import pi
from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    x, loc, scale = real("cauchy.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return -lax.log1p(z * z) - lax.log(pi * scale)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    x, loc, scale = real("cauchy.cdf", x, loc, scale)
    return jnp.arctan2(1, (loc - x) / scale) / pi


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return lax.log(cdf(x, loc, scale))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    x, loc, scale = real("cauchy.sf", x, loc, scale)
    return jnp.arctan2(1, (x - loc) / scale) / pi


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    return lax.log(sf(x, loc, scale))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value `x` with ``cdf(x) == q``."""
    q, loc, scale = real("cauchy.ppf", q, loc, scale)
    return loc + scale * jnp.tan(pi * q - pi / 2)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value `x` with ``sf(x) == q``."""
    q, loc, scale = real("cauchy.isf", q, loc, scale)
    return loc + scale * jnp.tan(pi / 2 - pi * q)


__dir__ = _listing(__name__)
