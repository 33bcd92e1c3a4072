"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import promote_inexact
from shardwise.scipy.special import gammaln, xlogy

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, alpha: Any) -> Array:
    """The log of the density of the Dirichlet distribution with parameters `alpha` f[n] at `x` f[n, ...] -> f[...],
    points of the simplex along the first dim, whose last part may be left out. ValueError where sizes do not fit.

    >>> jax.scipy.stats.dirichlet.logpdf(jnp.array([0.3, 0.7]), jnp.array([2.0, 1.0])).round(3)
    Array(-0.511, dtype=float32)
    """
    x, alpha = promote_inexact(*map(jnp.asarray, (x, alpha)))
    if alpha.ndim != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={alpha.shape}")
    if x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ValueError(
            "`x` must have either the same number of entries as `alpha` or one entry fewer; "
            f"got x.shape={x.shape}, alpha.shape={alpha.shape}"
        )
    if x.shape[0] != alpha.shape[0]:
        x = jnp.concatenate([x, 1 - jnp.sum(x, 0, keepdims=True)])
    powers = alpha.reshape(alpha.shape + (1,) * (x.ndim - 1)) - 1
    constant = jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))
    inside = jnp.all(x > 0, 0) & (jnp.abs(jnp.sum(x, 0) - 1) < 1e-6)
    return jnp.where(inside, jnp.sum(xlogy(powers, x), 0) - constant, -jnp.inf)


def pdf(x: Any, alpha: Any) -> Array:
    """The density of the Dirichlet distribution with parameters `alpha` f[n] at `x` f[n, ...] -> f[...]; see
    `logpdf`.

    >>> jax.scipy.stats.dirichlet.pdf(jnp.array([0.3, 0.7]), jnp.array([2.0, 1.0])).round(3)
    Array(0.6, dtype=float32)
    """
    return lax.exp(logpdf(x, alpha))


__dir__ = _listing(__name__)
