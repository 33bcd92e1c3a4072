"""The uniform distribution on [loc, loc + scale]."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.ops.elementwise.casts import strong
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logpdf", "pdf", "ppf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the uniform distribution, on `loc` to `loc + scale`. Arguments are real
    numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.uniform.logpdf(0.5).round(3)
    Array(-0., dtype=float32, weak_type=True)
    """
    x, loc, scale = real("uniform.logpdf", x, loc, scale)
    outside = (x < loc) | (x > loc + scale)
    return jnp.where(outside, -jnp.inf, -lax.log(scale))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.uniform.pdf(0.5).round(3)
    Array(1., dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.uniform.cdf(0.5).round(3)
    Array(0.5, dtype=float32)
    """
    x, loc, scale = real("uniform.cdf", x, loc, scale)
    return strong(jnp.where(x < loc, 0, jnp.where(x > loc + scale, 1, (x - loc) / scale)))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the distribution has probability `q`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.uniform.ppf(0.25).round(3)
    Array(0.25, dtype=float32, weak_type=True)
    """
    q, loc, scale = real("uniform.ppf", q, loc, scale)
    return jnp.where((q >= 0) & (q <= 1), loc + q * scale, jnp.nan)


__dir__ = _listing(__name__)
