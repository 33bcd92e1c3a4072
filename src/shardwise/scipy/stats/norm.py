"""The normal distribution."""

from __future__ import annotations

from math import pi
from typing import Any

from shardwise.base.dtypes import default_dtype, dtype_of
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import is_float
from shardwise.scipy.special import log_ndtr, ndtr, ndtri
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the normal distribution, with mean `loc` and standard deviation `scale`.
    Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.norm.logpdf(0.5).round(3)
    Array(-1.044, dtype=float32, weak_type=True)
    """
    x, loc, scale = real("norm.logpdf", x, loc, scale)
    variance = lax.square(scale)
    return -0.5 * (lax.log(2 * pi * variance) + lax.square(x - loc) / variance)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.norm.pdf(0.5).round(3)
    Array(0.352, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.norm.cdf(0.5).round(3)
    Array(0.691, dtype=float32)
    """
    x, loc, scale = real("norm.cdf", x, loc, scale)
    return ndtr((x - loc) / scale)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`, exact far out, too; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.norm.logcdf(0.5).round(3)
    Array(-0.369, dtype=float32)
    """
    x, loc, scale = real("norm.logcdf", x, loc, scale)
    return log_ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.norm.sf(0.5).round(3)
    Array(0.309, dtype=float32)
    """
    x, loc, scale = real("norm.sf", x, loc, scale)
    return ndtr((loc - x) / scale)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`, exact far out, too; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.norm.logsf(0.5).round(3)
    Array(-1.176, dtype=float32)
    """
    x, loc, scale = real("norm.logsf", x, loc, scale)
    return log_ndtr((loc - x) / scale)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the distribution has probability `q`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.norm.ppf(0.25).round(3)
    Array(-0.674, dtype=float32)
    """
    return _at_quantile("norm.ppf", q, loc, scale, 1)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value above which the distribution has probability `q`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.norm.isf(0.25).round(3)
    Array(0.674, dtype=float32)
    """
    return _at_quantile("norm.isf", q, loc, scale, -1)


def _at_quantile(name: str, q: Any, loc: Any, scale: Any, sign: int) -> Array:
    """A quantile, from that of the standard distribution. As in JAX it has the widest float type there is."""
    (probability,) = real(name, q)
    if not is_float(dtype_of(q)):
        raise TypeError(f"{name} takes a probability that is a float, got {dtype_of(q).name}.")
    center, width = real(name, loc, scale)
    return (sign * ndtri(probability) * width + center).astype(default_dtype("f"))


__dir__ = _listing(__name__)
