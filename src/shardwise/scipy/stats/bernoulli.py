"""The distribution of one trial."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import xlog1py, xlogy
from shardwise.scipy.stats._arguments import at_integers, real

__all__ = ["cdf", "logpmf", "pmf", "ppf"]


def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The log of the probability of `k` in one trial that succeeds with probability `p`, counted from `loc`.
    Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.bernoulli.logpmf(1, 0.25).round(3)
    Array(-1.386, dtype=float32, weak_type=True)
    """
    k, p, loc = real("bernoulli.logpmf", k, p, loc)
    n = k - loc
    value = xlogy(n, p) + xlog1py(1 - n, -p)
    return jnp.where((n < 0) | (n > 1), -jnp.inf, at_integers(n, value))


def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of `k` in one trial that succeeds with probability `p`, counted from `loc`. Arguments are real
    numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.bernoulli.pmf(1, 0.25).round(3)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return lax.exp(logpmf(k, p, loc))


def cdf(k: Any, p: Any) -> Array:
    """The probability of values up to `k` in one trial that succeeds with probability `p`. Arguments are real numbers
    or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.bernoulli.cdf(1, 0.25).round(3)
    Array(1., dtype=float32, weak_type=True)
    """
    n, p = real("bernoulli.cdf", k, p)
    value = jnp.where(n < 0, 0.0, jnp.where(n < 1, 1 - p, 1.0))
    return jnp.where((p >= 0) & (p <= 1) & ~jnp.isnan(n), value, jnp.nan)


def ppf(q: Any, p: Any) -> Array:
    """The value up to which one trial that succeeds with probability `p` has probability `q`. Arguments are real
    numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.bernoulli.ppf(0.25, 0.25).round(3)
    Array(0., dtype=float32, weak_type=True)
    """
    q, p = real("bernoulli.ppf", q, p)
    value = jnp.where(q <= 1 - p, jnp.zeros_like(q), 1.0)
    return jnp.where((q >= 0) & (q <= 1) & (p >= 0) & (p <= 1), value, jnp.nan)


__dir__ = _listing(__name__)
