"""Gumbel's distribution of largest values."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._ufunc_forms import weak_if_scalar
from shardwise.scipy.stats._arguments import real

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _standard(name: str, x: Any, loc: Any, scale: Any) -> tuple[Any, Any]:
    """`x` in units of the standard distribution, NaN where the scale is not positive; and the scale."""
    x, loc, scale = real(f"gumbel_r.{name}", x, loc, scale)
    return jnp.where(scale > 0, (x - loc) / scale, jnp.nan), scale


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of the right-skewed Gumbel distribution, with mode `loc` and width `scale`.
    Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.gumbel_r.logpdf(0.5).round(3)
    Array(-1.107, dtype=float32, weak_type=True)
    """
    z, scale = _standard("logpdf", x, loc, scale)
    return -jnp.log(scale) - (z + jnp.exp(-z))


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_r.pdf(0.5).round(3)
    Array(0.331, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, loc, scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_r.logcdf(0.5).round(3)
    Array(-0.607, dtype=float32, weak_type=True)
    """
    return -jnp.exp(-_standard("logcdf", x, loc, scale)[0])


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values up to `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_r.cdf(0.5).round(3)
    Array(0.545, dtype=float32, weak_type=True)
    """
    return lax.exp(logcdf(x, loc, scale))


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value up to which the right-skewed Gumbel distribution, with mode `loc` and width `scale` has probability
    `p`. Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.gumbel_r.ppf(0.25).round(3)
    Array(-0.327, dtype=float32, weak_type=True)
    """
    p, loc, scale = real("gumbel_r.ppf", p, loc, scale)
    inside = (p > 0) & (p < 1)
    return jnp.where(inside, loc - scale * jnp.log(-jnp.log(jnp.where(inside, p, 0.5))), jnp.nan)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_r.sf(0.5).round(3)
    Array(0.455, dtype=float32, weak_type=True)
    """
    return weak_if_scalar(-jnp.expm1(logcdf(x, loc, scale)))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the probability of values above `x`; `loc` and `scale` as for `logpdf`.

    >>> jax.scipy.stats.gumbel_r.logsf(0.5).round(3)
    Array(-0.788, dtype=float32, weak_type=True)
    """
    below = logcdf(x, loc, scale)
    # log(1 - exp(below)), by the form that loses no digits on each side of log(1/2).
    near = below > -0.6931
    return jnp.where(
        near, jnp.log(-jnp.expm1(jnp.where(near, below, -1))), jnp.log1p(-jnp.exp(jnp.where(near, -1, below)))
    )


__dir__ = _listing(__name__)
