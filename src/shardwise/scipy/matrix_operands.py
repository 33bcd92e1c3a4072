"""Operands of `scipy.linalg` as arrays of a common inexact dtype."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, broadcast_to_shape, promote_inexact


def inexact(name: str, *xs: Any) -> list[Any]:
    """Arguments that are arrays or scalars."""
    return promote_inexact(*(array(f"jax.scipy.linalg.{name}", x, i) for i, x in enumerate(xs)))


def inexact_like(*xs: Any) -> list[Any]:
    """Arguments that may be nested lists, too."""
    return promote_inexact(*map(jnp.asarray, xs))


def system(name: str, a: Array, b: Array) -> tuple[Array, Array, bool]:
    """Matrices and right sides of one batch shape, and whether the right sides were vectors."""
    vector = b.ndim == 1
    if not vector and a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1]:
        warnings.warn(
            f"jax.scipy.linalg.{name}: batches of vectors as right sides will be read as matrices in future. Give "
            "b[..., None] and squeeze the result.",
            FutureWarning,
            stacklevel=3,
        )
        vector = True
    if vector:
        b = lax.expand_dims(b, (b.ndim,))
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != a.shape[-2] or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"{name} takes matrices [..., n, n] and right sides [n] or [..., n, k], got shapes {a.shape} and {b.shape}."
        )
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return broadcast_to_shape(a, (*batch, *a.shape[-2:])), broadcast_to_shape(b, (*batch, *b.shape[-2:])), vector
