"""The multinomial distribution: the counts of each outcome in n trials, along the last dim."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import issubdtype
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import as_array, values
from shardwise.scipy.special import gammaln, xlogy
from shardwise.scipy.stats._arguments import real

__all__ = ["logpmf", "pmf"]


def logpmf(x: Any, n: Any, p: Any) -> Array:
    """The log of the probability of the counts `x` [..., outcomes] in `n` trials whose outcomes have the
    probabilities `p`. ValueError unless `x` and `n` are integers.

    >>> jax.scipy.stats.multinomial.logpmf(jnp.array([1, 2]), 3, jnp.array([0.5, 0.5])).round(3)
    Array(-0.981, dtype=float32)
    """
    counts, trials = map(as_array, values("multinomial.logpmf", x, n))
    if not issubdtype(jnp.result_type(counts, trials), np.integer):
        raise ValueError(f"x and n must be of integer type; got x.dtype={counts.dtype}, n.dtype={trials.dtype}")
    (p,) = real("multinomial.logpmf", p)
    whole = jnp.sum(counts) == trials
    x, n = counts.astype(p.dtype), trials.astype(p.dtype)
    return jnp.where(whole, gammaln(n + 1) + jnp.sum(xlogy(x, p) - gammaln(x + 1), -1), -jnp.inf)


def pmf(x: Any, n: Any, p: Any) -> Array:
    """The probability of the counts `x` [..., outcomes] in `n` trials whose outcomes have the probabilities `p`; see
    `logpmf`.

    >>> jax.scipy.stats.multinomial.pmf(jnp.array([1, 2]), 3, jnp.array([0.5, 0.5])).round(3)
    Array(0.375, dtype=float32)
    """
    return lax.exp(logpmf(x, n, p))


__dir__ = _listing(__name__)
