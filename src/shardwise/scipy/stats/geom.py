"""The geometric distribution: trials up to the first success."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import xlog1py
from shardwise.scipy.stats._arguments import at_integers, real

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The log of the probability of `k` in the number of the first success in trials of probability `p`, counted from
    `loc`. Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.geom.logpmf(1, 0.5).round(3)
    Array(-0.693, dtype=float32, weak_type=True)
    """
    k, p, loc = real("geom.logpmf", k, p, loc)
    n = k - loc
    outside = n <= 0
    value = xlog1py(jnp.where(outside, 1, n) - 1, -p) + lax.log(p)
    return jnp.where(outside, -jnp.inf, at_integers(n, value))


def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of `k`; `p` and `loc` as for `logpmf`.

    >>> jax.scipy.stats.geom.pmf(1, 0.5).round(3)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, p, loc))


__dir__ = _listing(__name__)
