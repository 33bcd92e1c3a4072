"""The logistic distribution."""

from __future__ import annotations

from typing import Any

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.scipy.special import expit, logit
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density."""
    x, loc, scale = real("logistic.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return -z - 2 * jnp.logaddexp(0, -z) - lax.log(scale)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`."""
    x, loc, scale = real("logistic.cdf", x, loc, scale)
    return expit((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`."""
    x, loc, scale = real("logistic.sf", x, loc, scale)
    return expit((loc - x) / scale)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the probability is `q`."""
    q, loc, scale = real("logistic.ppf", q, loc, scale)
    return logit(q) * scale + loc


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value above which the probability is `q`."""
    q, loc, scale = real("logistic.isf", q, loc, scale)
    return -logit(q) * scale + loc
