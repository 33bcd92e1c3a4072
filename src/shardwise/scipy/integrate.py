"""`shardwise.scipy.integrate`: the trapezoidal rule."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["trapezoid"]


@shown_call("dx axis")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """The integral of samples `y` at `x`, or `dx` apart, along `axis`.

    >>> jax.scipy.integrate.trapezoid(jnp.array([0.0, 1.0, 4.0]), dx=0.5)
    Array(1.5, dtype=float32)
    """
    return jnp.trapezoid(y, x, dx, axis)


__dir__ = _listing(__name__)
