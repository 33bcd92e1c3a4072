"""The beta-binomial distribution: successes in n trials whose probability is beta distributed."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import betaln
from shardwise.scipy.stats._arguments import real

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Array:
    """The log of the probability of `k` in the number of successes in `n` trials, whose probability is beta
    distributed with `a` and `b`, counted from `loc`. Arguments are real numbers or arrays that broadcast, the
    result is a float array of their shape.

    >>> jax.scipy.stats.betabinom.logpmf(1, 4, 2.0, 3.0).round(3)
    Array(-1.253, dtype=float32, weak_type=True)
    """
    k, n, a, b, loc = real("betabinom.logpmf", k, n, a, b, loc)
    y = jnp.floor(k) - loc
    outside = (y < 0) | (y > n)
    safe = jnp.where(outside, 0, y)
    ways = -jnp.log1p(n) - betaln(n - safe + 1, safe + 1)
    inside_value = jnp.where(outside, -jnp.inf, ways + betaln(safe + a, n - safe + b) - betaln(a, b))
    return jnp.where((n >= 0) & (a > 0) & (b > 0), inside_value, jnp.nan)


def pmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Array:
    """The probability of `k`; `n`, `a`, `b` and `loc` as for `logpmf`.

    >>> jax.scipy.stats.betabinom.pmf(1, 4, 2.0, 3.0).round(3)
    Array(0.286, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, n, a, b, loc))


__dir__ = _listing(__name__)
