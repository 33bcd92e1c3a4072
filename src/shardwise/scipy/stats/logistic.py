"""The logistic distribution."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import expit, logit
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the logistic distribution, around `loc` with width `scale`. Arguments are real
    numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.logistic.logpdf(0.5).round(3)
    Array(-1.448, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("logistic.logpdf", x, loc, scale)
    z = (x - loc) / scale
    half = z / 2
    return -2 * jnp.logaddexp(half, -half) - lax.log(scale)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.logistic.pdf(0.5).round(3)
    Array(0.235, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.logistic.cdf(0.5).round(3)
    Array(0.622, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("logistic.cdf", x, loc, scale)
    return expit((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.logistic.sf(0.5).round(3)
    Array(0.378, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("logistic.sf", x, loc, scale)
    return expit((loc - x) / scale)


def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the logistic distribution, around `loc` with width `scale` has probability `x`. Arguments
    are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.logistic.ppf(0.5).round(3)
    Array(0., dtype=float32, weak_type=True)
    """
    x, loc, scale = real("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value above which the logistic distribution, around `loc` with width `scale` has probability `x`. Arguments
    are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.logistic.isf(0.5).round(3)
    Array(0., dtype=float32, weak_type=True)
    """
    x, loc, scale = real("logistic.isf", x, loc, scale)
    return -logit(x) * scale + loc


__dir__ = _listing(__name__)
