"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _standard(x: Array, loc: Array, scale: Array) -> tuple[Array, Array]:
    """A mask of `x` below all values, and `x` in units of the scale, 1 there."""
    outside = x < loc + scale
    return outside, jnp.where(outside, 1, (x - loc) / scale)


def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the Pareto distribution with shape parameter `b`, from `loc + scale` on.
    Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.pareto.logpdf(2.0, 2.0).round(3)
    Array(-1.386, dtype=float32, weak_type=True)
    """
    x, b, loc, scale = real("pareto.logpdf", x, b, loc, scale)
    outside, z = _standard(x, loc, scale)
    return jnp.where(outside, -jnp.inf, lax.log(b) - (b + 1) * lax.log(z) - lax.log(scale))


def pdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.pareto.pdf(2.0, 2.0).round(3)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, b, loc, scale))


def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.pareto.logsf(2.0, 2.0).round(3)
    Array(-1.386, dtype=float32, weak_type=True)
    """
    x, b, loc, scale = real("pareto.logsf", x, b, loc, scale)
    outside, z = _standard(x, loc, scale)
    return jnp.where(outside, 0, -b * lax.log(z))


def sf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.pareto.sf(2.0, 2.0).round(3)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return lax.exp(logsf(x, b, loc, scale))


def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.pareto.cdf(2.0, 2.0).round(3)
    Array(0.75, dtype=float32, weak_type=True)
    """
    return 0 - jnp.expm1(logsf(x, b, loc, scale))


def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.pareto.logcdf(2.0, 2.0).round(3)
    Array(-0.288, dtype=float32, weak_type=True)
    """
    x, b, loc, scale = real("pareto.logcdf", x, b, loc, scale)
    outside, z = _standard(x, loc, scale)
    above = jnp.where(outside, -1, -b * lax.log(z))
    return jnp.where(outside, -jnp.inf, lax.log(-jnp.expm1(above)))


def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the distribution has probability `q`; `b`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.pareto.ppf(0.25, 2.0).round(3)
    Array(1.155, dtype=float32, weak_type=True)
    """
    q, b, loc, scale = real("pareto.ppf", q, b, loc, scale)
    return jnp.where((q >= 0) & (q <= 1), loc + scale * lax.exp(-lax.log1p(-q) / b), jnp.nan)


__dir__ = _listing(__name__)
