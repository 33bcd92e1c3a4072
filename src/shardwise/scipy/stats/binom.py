"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import gammaln, xlog1py, xlogy
from shardwise.scipy.stats._arguments import at_integers, real

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The log of the probability of `k` in the number of successes in `n` trials of probability `p`, counted from
    `loc`. Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.binom.logpmf(1, 4, 0.5).round(3)
    Array(-1.386, dtype=float32, weak_type=True)
    """
    k, n, p, loc = real("binom.logpmf", k, n, p, loc)
    m = k - loc
    outside = (m < 0) | (m > n)
    safe = jnp.where(outside, 0, m)
    ways = gammaln(n + 1) - gammaln(safe + 1) - gammaln(n - safe + 1)
    return jnp.where(outside, -jnp.inf, at_integers(m, ways + xlogy(safe, p) + xlog1py(n - safe, -p)))


def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of `k`; `n`, `p` and `loc` as for `logpmf`.

    >>> jax.scipy.stats.binom.pmf(1, 4, 0.5).round(3)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, n, p, loc))


__dir__ = _listing(__name__)
