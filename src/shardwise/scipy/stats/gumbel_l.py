"""Gumbel's distribution of smallest values: that of largest ones, mirrored."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.stats import gumbel_r
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _mirror_arguments(name: str, x: Any, loc: Any, scale: Any) -> tuple[Array, Array, Array]:
    x, loc, scale = real(f"gumbel_l.{name}", x, loc, scale)
    return -x, -loc, scale


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the left-skewed Gumbel distribution, with mode `loc` and width `scale`.
    Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.gumbel_l.logpdf(0.5).round(3)
    Array(-1.149, dtype=float32, weak_type=True)
    """
    return gumbel_r.logpdf(*_mirror_arguments("logpdf", x, loc, scale))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_l.pdf(0.5).round(3)
    Array(0.317, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_l.logcdf(0.5).round(3)
    Array(-0.214, dtype=float32, weak_type=True)
    """
    return gumbel_r.logsf(*_mirror_arguments("logcdf", x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_l.cdf(0.5).round(3)
    Array(0.808, dtype=float32, weak_type=True)
    """
    return -jnp.expm1(gumbel_r.logcdf(*_mirror_arguments("cdf", x, loc, scale)))


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the left-skewed Gumbel distribution, with mode `loc` and width `scale` has probability
    `p`. Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.gumbel_l.ppf(0.25).round(3)
    Array(-1.246, dtype=float32, weak_type=True)
    """
    p, loc, scale = real("gumbel_l.ppf", p, loc, scale)
    inside = (p > 0) & (p < 1)
    return jnp.where(inside, loc + scale * jnp.log(-jnp.log1p(-jnp.where(inside, p, 0.5))), jnp.nan)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_l.sf(0.5).round(3)
    Array(0.192, dtype=float32, weak_type=True)
    """
    return gumbel_r.cdf(*_mirror_arguments("sf", x, loc, scale))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_l.logsf(0.5).round(3)
    Array(-1.649, dtype=float32, weak_type=True)
    """
    return gumbel_r.logcdf(*_mirror_arguments("logsf", x, loc, scale))


__dir__ = _listing(__name__)
