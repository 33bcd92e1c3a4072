"""The cross product of vectors."""

from __future__ import annotations

from typing import Any

from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import promote_dtypes, strong
from shardwise.numpy.shapes import moveaxis

__all__ = ["cross"]


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    """The cross products of the vectors in `a` and `b`, of size 2 or 3 along `axisa` and `axisb`, along `axisc`;
    other dims broadcast.

    `axis` stands for all three. Two vectors of size 2 give a number; else a missing third part is 0. ValueError for
    other sizes.

    >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    first, second = moveaxis(checked("cross", a), axisa, -1), moveaxis(checked("cross", b, 1), axisb, -1)
    if first.shape[-1] not in (2, 3) or second.shape[-1] not in (2, 3):
        raise ValueError(
            f"cross: Dimension must be either 2 or 3 for cross product, got {first.shape[-1]} and {second.shape[-1]}."
        )
    first, second = promote_dtypes(first, second)
    if not first.shape[-1] == second.shape[-1] == 2:
        first, second = strong(first), strong(second)
    x, y = lax.unstack(first, -1), lax.unstack(second, -1)
    z = x[0] * y[1] - x[1] * y[0]
    if len(x) == len(y) == 2:
        return z
    # Products with a missing third part drop out.
    if len(x) == 2:
        parts = [x[1] * y[2], -(x[0] * y[2]), z]
    elif len(y) == 2:
        parts = [-(x[2] * y[1]), x[2] * y[0], z]
    else:
        parts = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], z]
    return moveaxis(lax.concatenate([lax.expand_dims(part, (part.ndim,)) for part in parts], z.ndim), -1, axisc)
