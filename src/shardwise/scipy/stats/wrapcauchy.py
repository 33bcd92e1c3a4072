"""The Cauchy distribution wrapped around the circle, from 0 to 2 pi."""

from __future__ import annotations

from math import pi
from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats._arguments import real

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, c: Any) -> Array:
    """The log of the density at `x` of the wrapped Cauchy distribution with `c` between 0 and 1; NaN unless it is.
    Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.wrapcauchy.logpdf(0.5, 0.5).round(3)
    Array(-1.138, dtype=float32, weak_type=True)
    """
    x, c = real("wrapcauchy.logpdf", x, c)
    inside_value = jnp.log(1 - c * c) - jnp.log(2 * pi) - jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    return jnp.where((c > 0) & (c < 1), jnp.where((x >= 0) & (x <= 2 * pi), inside_value, -jnp.inf), jnp.nan)


def pdf(x: Any, c: Any) -> Array:
    """The density at `x`; `c` as for `logpdf`.

    >>> jax.scipy.stats.wrapcauchy.pdf(0.5, 0.5).round(3)
    Array(0.321, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, c))


__dir__ = _listing(__name__)
