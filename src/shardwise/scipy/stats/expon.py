"""The exponential distribution."""

from __future__ import annotations

import math
from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the exponential distribution, from `loc` on, with mean `loc + scale`.
    Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.expon.logpdf(0.5).round(3)
    Array(-0.5, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("expon.logpdf", x, loc, scale)
    return jnp.where(x < loc, -jnp.inf, -((x - loc) / scale + lax.log(scale)))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.expon.pdf(0.5).round(3)
    Array(0.607, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.expon.cdf(0.5).round(3)
    Array(0.393, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("expon.cdf", x, loc, scale)
    return jnp.where(x < loc, 0, -lax.expm1((loc - x) / scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.expon.logcdf(0.5).round(3)
    Array(-0.933, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("expon.logcdf", x, loc, scale)
    above = (x - loc) / scale
    near = above < math.log(2)  # there the survival function is close to 1
    inside = jnp.where(
        near, lax.log(-lax.expm1(-jnp.where(near, above, 1))), lax.log1p(-lax.exp(-jnp.where(near, 1, above)))
    )
    return jnp.where(x < loc, -jnp.inf, inside)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.expon.logsf(0.5).round(3)
    Array(-0.5, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("expon.logsf", x, loc, scale)
    return jnp.where(x < loc, 0, (loc - x) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.expon.sf(0.5).round(3)
    Array(0.607, dtype=float32, weak_type=True)
    """
    return lax.exp(logsf(x, loc, scale))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the distribution has probability `q`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.expon.ppf(0.25).round(3)
    Array(0.288, dtype=float32, weak_type=True)
    """
    q, loc, scale = real("expon.ppf", q, loc, scale)
    return jnp.where((q >= 0) & (q <= 1), loc - scale * lax.log1p(-q), jnp.nan)


__dir__ = _listing(__name__)
