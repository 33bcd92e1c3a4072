"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.scipy.special import gammaincc, gammaln, xlogy
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logpmf", "pmf"]


def logpmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The log of the probability of `k`."""
    k, mu, loc = real("poisson.logpmf", k, mu, loc)
    n = k - loc
    inside = (n >= 0) & (n == jnp.floor(n))
    safe = jnp.where(inside, n, 0)
    return jnp.where(inside, xlogy(safe, mu) - gammaln(safe + 1) - mu, -jnp.inf)


def pmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of `k`."""
    return lax.exp(logpmf(k, mu, loc))


def cdf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of values up to `k`."""
    k, mu, loc = real("poisson.cdf", k, mu, loc)
    n = jnp.floor(k - loc)
    return jnp.where(n < 0, 0, gammaincc(jnp.maximum(n, 0) + 1, mu))
