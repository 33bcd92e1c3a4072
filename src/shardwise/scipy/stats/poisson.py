"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import strong
from shardwise.scipy.special import gammaincc, gammaln, xlogy
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "entropy", "logpmf", "pmf"]

# Below this mean the entropy is a sum over the first counts, beyond which there is no mass; above it a series in 1 / mu.
_MANY, _TERMS = 100, 220


def logpmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The log of the probability of `k` in the Poisson distribution with mean `mu`, counted from `loc`. Arguments are
    real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.poisson.logpmf(1, 2.0).round(3)
    Array(-1.307, dtype=float32, weak_type=True)
    """
    k, mu, loc = real("poisson.logpmf", k, mu, loc)
    n = k - loc
    inside = (n >= 0) & (n == jnp.floor(n))
    safe = jnp.where(inside, n, 0)
    return jnp.where(inside, xlogy(safe, mu) - gammaln(safe + 1) - mu, -jnp.inf)


def pmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of `k`; `mu` and `loc` as for `logpmf`.

    >>> jax.scipy.stats.poisson.pmf(1, 2.0).round(3)
    Array(0.271, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, mu, loc))


def entropy(mu: Any, loc: Any = 0) -> Array:
    """The entropy in nats of the Poisson distribution with mean `mu`, an array of one shape with `loc`, which does
    not change it. NaN for a negative `mu`.

    >>> jax.scipy.stats.poisson.entropy(2.0).round(3)
    Array(1.705, dtype=float32)
    """
    mu, _ = map(strong, real("poisson.entropy", mu, loc))
    small = mu < _MANY
    few = jnp.where(small & (mu > 0), mu, 1)[..., None]
    counts = lax.convert_element_type(np.arange(_TERMS), mu.dtype)
    logs = xlogy(counts, few) - gammaln(counts + 1) - few
    total = -jnp.sum(lax.exp(logs) * logs, -1)
    many = jnp.where(small, 1, mu)
    series = 0.5 * lax.log(2 * np.pi * np.e * many) - (1 / 12 + (1 / 24 + 19 / 360 / many) / many) / many
    value = jnp.where(mu == 0, 0, jnp.where(small, total, series))
    return jnp.where(mu >= 0, value, jnp.nan)


def cdf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of values up to `k`; `mu` and `loc` as for `logpmf`.

    >>> jax.scipy.stats.poisson.cdf(1, 2.0).round(3)
    Array(0.406, dtype=float32, weak_type=True)
    """
    k, mu, loc = real("poisson.cdf", k, mu, loc)
    n = jnp.floor(k - loc)
    return jnp.where(n < 0, 0, gammaincc(jnp.maximum(n, 0) + 1, mu))


__dir__ = _listing(__name__)
