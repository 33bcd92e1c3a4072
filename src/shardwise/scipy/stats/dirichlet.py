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
    """The log of the density at points of the simplex, along the first dim; the last part may be left out."""
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
    """The density."""
    return lax.exp(logpdf(x, alpha))


__dir__ = _listing(__name__)
