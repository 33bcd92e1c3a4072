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
    """The log of the density; NaN unless the concentration `kappa` is positive."""
    x, kappa = real("vonmises.logpdf", x, kappa)
    return jnp.where(kappa > 0, kappa * (jnp.cos(x) - 1) - jnp.log(2 * pi * i0e(kappa)), jnp.nan)


def pdf(x: Any, kappa: Any) -> Array:
    """The density."""
    return lax.exp(logpdf(x, kappa))


__dir__ = _listing(__name__)
