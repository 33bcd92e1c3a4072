"""The normal distribution of vectors."""

from __future__ import annotations

from math import log, pi
from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import promote_inexact

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Array:
    """The log of the density of the normal distribution with `mean` f[n] and covariance `cov` f[n, n] (a scalar is a
    multiple of the identity) at the points `x` f[..., n] -> f[...]. `allow_singular` can only be None;
    NotImplementedError otherwise.

    >>> jax.scipy.stats.multivariate_normal.logpdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2)).round(3)
    Array(-1.838, dtype=float32)
    """
    if allow_singular is not None:
        raise NotImplementedError(
            "allow_singular argument of multivariate_normal.logpdf; add a small multiple of the identity to cov."
        )
    x, mean, cov = promote_inexact(*map(jnp.asarray, (x, mean, cov)))
    if not mean.shape:
        return -0.5 * jnp.square(x - mean) / cov - 0.5 * (log(2 * pi) + jnp.log(cov))
    n = mean.shape[-1]
    if not cov.shape:
        offset = x - mean
        return -0.5 * jnp.einsum("...i,...i->...", offset, offset) / cov - n / 2 * (log(2 * pi) + jnp.log(cov))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError(f"multivariate_normal.logpdf got incompatible shapes: mean {mean.shape} and cov {cov.shape}.")
    factor = lax.linalg.cholesky(cov)
    offset = x - mean
    full = jnp.broadcast_shapes(offset.shape[:-1], cov.shape[:-2])
    y = lax.linalg.triangular_solve(
        jnp.broadcast_to(factor, (*full, n, n)),
        jnp.broadcast_to(offset, (*full, n))[..., None],
        left_side=True,
        lower=True,
    )[..., 0]
    size = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-1, axis2=-2)), -1)
    return -0.5 * jnp.sum(y * y, -1) - n / 2 * log(2 * pi) - size


def pdf(x: Any, mean: Any, cov: Any) -> Array:
    """The density of the normal distribution with `mean` f[n] and covariance `cov` f[n, n] (a scalar is a multiple of
    the identity) at the points `x` f[..., n] -> f[...].

    >>> jax.scipy.stats.multivariate_normal.pdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2)).round(3)
    Array(0.159, dtype=float32)
    """
    return lax.exp(logpdf(x, mean, cov))


__dir__ = _listing(__name__)
