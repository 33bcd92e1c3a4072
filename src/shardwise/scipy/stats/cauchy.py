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
    """The log of the density at `x` of the Cauchy distribution, around `loc` with half width `scale`. Arguments are
    real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.cauchy.logpdf(0.5).round(3)
    Array(-1.368, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("cauchy.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return -lax.log1p(z * z) - lax.log(pi * scale)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.cauchy.pdf(0.5).round(3)
    Array(0.255, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.cauchy.cdf(0.5).round(3)
    Array(0.648, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("cauchy.cdf", x, loc, scale)
    return jnp.arctan2(1, (loc - x) / scale) / pi


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.cauchy.logcdf(0.5).round(3)
    Array(-0.435, dtype=float32, weak_type=True)
    """
    return lax.log(cdf(x, loc, scale))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.cauchy.sf(0.5).round(3)
    Array(0.352, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("cauchy.sf", x, loc, scale)
    return jnp.arctan2(1, (x - loc) / scale) / pi


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.cauchy.logsf(0.5).round(3)
    Array(-1.043, dtype=float32, weak_type=True)
    """
    return lax.log(sf(x, loc, scale))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the distribution has probability `q`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.cauchy.ppf(0.25).round(3)
    Array(-1., dtype=float32, weak_type=True)
    """
    q, loc, scale = real("cauchy.ppf", q, loc, scale)
    return loc + scale * jnp.tan(pi * q - pi / 2)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value above which the distribution has probability `q`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.cauchy.isf(0.25).round(3)
    Array(1., dtype=float32, weak_type=True)
    """
    q, loc, scale = real("cauchy.isf", q, loc, scale)
    return loc + scale * jnp.tan(pi / 2 - pi * q)


__dir__ = _listing(__name__)
