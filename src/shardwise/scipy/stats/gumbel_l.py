"""Gumbel's distribution of smallest values: that of largest ones, mirrored."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats import gumbel_r
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _mirrored(name: str, x: Any, loc: Any, scale: Any) -> tuple[Array, Array, Array]:
    x, loc, scale = real(f"gumbel_l.{name}", x, loc, scale)
    return -x, -loc, scale


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    return gumbel_r.logpdf(*_mirrored("logpdf", x, loc, scale))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, loc, scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return gumbel_r.logsf(*_mirrored("logcdf", x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    return -jnp.expm1(gumbel_r.logcdf(*_mirrored("cdf", x, loc, scale)))


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that a share `p` of all lie below: the inverse of `cdf`."""
    p, loc, scale = real("gumbel_l.ppf", p, loc, scale)
    inside = (p > 0) & (p < 1)
    return jnp.where(inside, loc + scale * jnp.log(-jnp.log1p(-jnp.where(inside, p, 0.5))), jnp.nan)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    return gumbel_r.cdf(*_mirrored("sf", x, loc, scale))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    return gumbel_r.logcdf(*_mirrored("logsf", x, loc, scale))


__dir__ = _listing(__name__)
