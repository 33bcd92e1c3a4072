"""Von Mises' distribution of angles."""

from __future__ import annotations

from math import pi
from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import i0e
from shardwise.scipy.stats._arguments import real

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, kappa: Any) -> Array:
    """The log of the density at `x` of the von Mises distribution with concentration `kappa`; NaN unless that is
    positive. Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.vonmises.logpdf(0.5, 2.0).round(3)
    Array(-0.907, dtype=float32, weak_type=True)
    """
    x, kappa = real("vonmises.logpdf", x, kappa)
    return jnp.where(kappa > 0, kappa * (jnp.cos(x) - 1) - jnp.log(2 * pi * i0e(kappa)), jnp.nan)


def pdf(x: Any, kappa: Any) -> Array:
    """The density at `x`; `kappa` as for `logpdf`.

    >>> jax.scipy.stats.vonmises.pdf(0.5, 2.0).round(3)
    Array(0.404, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, kappa))


__dir__ = _listing(__name__)
