"""The generalized normal distribution: its log falls with the power beta of the distance from 0."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import gammainc, gammaln
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: Any, beta: Any) -> Array:
    """The log of the density at `x` of the density proportional to ``exp(-abs(x) ** beta)`` (`beta`). Arguments are
    real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.gennorm.logpdf(0.5, 2.0).round(3)
    Array(-0.822, dtype=float32, weak_type=True)
    """
    x, beta = real("gennorm.logpdf", x, beta)
    return jnp.log(0.5 * beta) - gammaln(1 / beta) - jnp.abs(x) ** beta


def pdf(x: Any, beta: Any) -> Array:
    """The density at `x`; `beta` as for `logpdf`.

    >>> jax.scipy.stats.gennorm.pdf(0.5, 2.0).round(3)
    Array(0.439, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, beta))


def cdf(x: Any, beta: Any) -> Array:
    """The probability of values up to `x`; `beta` as for `logpdf`.

    >>> jax.scipy.stats.gennorm.cdf(0.5, 2.0).round(3)
    Array(0.76, dtype=float32, weak_type=True)
    """
    x, beta = real("gennorm.cdf", x, beta)
    return 0.5 * (1 + jnp.sign(x) * gammainc(1 / beta, jnp.abs(x) ** beta))


__dir__ = _listing(__name__)
