"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats import gamma
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the chi-square distribution with `df` degrees of freedom, from `loc` on, in
    units of `scale`. Arguments are real numbers or arrays that broadcast, the result is a float array of their
    shape.

    >>> jax.scipy.stats.chi2.logpdf(0.5, 2.0).round(3)
    Array(-0.943, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = real("chi2.logpdf", x, df, loc, scale)
    return gamma.logpdf(x, df / 2, loc, 2 * scale)


def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `df`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.chi2.pdf(0.5, 2.0).round(3)
    Array(0.389, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, df, loc, scale))


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `df`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.chi2.cdf(0.5, 2.0).round(3)
    Array(0.221, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = real("chi2.cdf", x, df, loc, scale)
    return gamma.cdf(x, df / 2, loc, 2 * scale)


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `df`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.chi2.sf(0.5, 2.0).round(3)
    Array(0.779, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = real("chi2.sf", x, df, loc, scale)
    return gamma.sf(x, df / 2, loc, 2 * scale)


def logcdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `df`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.chi2.logcdf(0.5, 2.0).round(3)
    Array(-1.509, dtype=float32, weak_type=True)
    """
    return lax.log(cdf(x, df, loc, scale))


def logsf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `df`, `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.chi2.logsf(0.5, 2.0).round(3)
    Array(-0.25, dtype=float32, weak_type=True)
    """
    return lax.log(sf(x, df, loc, scale))


__dir__ = _listing(__name__)
