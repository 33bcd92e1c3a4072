"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the Laplace distribution, around `loc` with mean distance `scale`. Arguments
    are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.laplace.logpdf(0.5).round(3)
    Array(-1.193, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("laplace.logpdf", x, loc, scale)
    return -lax.abs(x - loc) / scale - lax.log(2 * scale)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.laplace.pdf(0.5).round(3)
    Array(0.303, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.laplace.cdf(0.5).round(3)
    Array(0.697, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("laplace.cdf", x, loc, scale)
    z = (x - loc) / scale
    left = z <= 0
    # Each side gets its own values only, so that an overflow on the other side does not reach the derivative.
    return jnp.where(left, 0.5 * lax.exp(jnp.where(left, z, 0)), 1 - 0.5 * lax.exp(jnp.where(left, 0, -z)))


__dir__ = _listing(__name__)
