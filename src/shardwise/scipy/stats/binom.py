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
    """The log of the probability of `k`."""
    k, n, p, loc = real("binom.logpmf", k, n, p, loc)
    m = k - loc
    outside = (m < 0) | (m > n)
    safe = jnp.where(outside, 0, m)
    ways = gammaln(n + 1) - gammaln(safe + 1) - gammaln(n - safe + 1)
    return jnp.where(outside, -jnp.inf, at_integers(m, ways + xlogy(safe, p) + xlog1py(n - safe, -p)))


def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of `k`."""
    return lax.exp(logpmf(k, n, p, loc))


__dir__ = _listing(__name__)
