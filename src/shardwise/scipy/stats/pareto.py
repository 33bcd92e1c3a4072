"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    x, b, loc, scale = real("pareto.logpdf", x, b, loc, scale)
    z = (x - loc) / scale
    return jnp.where(z >= 1, lax.log(b) - (b + 1) * lax.log(jnp.maximum(z, 1)) - lax.log(scale), -jnp.inf)


def pdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, b, loc, scale))


def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `sf`."""
    x, b, loc, scale = real("pareto.logsf", x, b, loc, scale)
    return -b * lax.log(jnp.maximum((x - loc) / scale, 1))


def sf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    return lax.exp(logsf(x, b, loc, scale))


def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    return -jnp.expm1(logsf(x, b, loc, scale))


def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of `cdf`."""
    return lax.log(cdf(x, b, loc, scale))


def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the probability is `q`."""
    q, b, loc, scale = real("pareto.ppf", q, b, loc, scale)
    return jnp.where((q >= 0) & (q <= 1), loc + scale * lax.exp(-lax.log1p(-q) / b), jnp.nan)
