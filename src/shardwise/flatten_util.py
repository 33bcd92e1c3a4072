"""`shardwise.flatten_util`: a tree of arrays as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import result_type
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.lax import adaptive as lax

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All entries of a tree's leaves, one leaf after the other, and the way back.

    Args:
        pytree: arrays and scalars; the vector's dtype is the one to which theirs promote.

    Returns:
        The vector, and a function from such a vector to a tree like `pytree`, each leaf of which has its own shape and
        dtype. It raises ValueError for another shape than the vector's, and TypeError for another dtype, unless all
        leaves have the same: then any will do.

    >>> flat, unravel = jax.flatten_util.ravel_pytree({'a': 1.0, 'b': jnp.ones(2)})
    >>> unravel(2 * flat)
    {'a': Array(2., dtype=float32), 'b': Array([2., 2.], dtype=float32)}
    """
    leaves, structure = tree_flatten(pytree)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    common = result_type(*leaves) if leaves else jnp.zeros(0).dtype
    mixed = any(a.dtype != common for a in arrays)
    places: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]] = []
    total = 0
    for a in arrays:
        places.append((total, total + math.prod(a.shape), a.shape, a.dtype))
        total += math.prod(a.shape)

    def unravel(vector: Any) -> Any:
        vector = jnp.asarray(vector)
        if vector.shape != (total,):
            raise ValueError(f"unravel takes a vector of shape {(total,)}, got one of shape {vector.shape}.")
        if mixed and vector.dtype != common:
            raise TypeError(f"unravel takes a vector of dtype {common}, got {vector.dtype}; cast it first.")
        parts = [lax.slice(vector, (begin,), (end,)).reshape(shape) for begin, end, shape, _ in places]
        if mixed:
            parts = [_as(part, dtype) for part, (*_, dtype) in zip(parts, places, strict=True)]
        return tree_unflatten(structure, parts)

    if not arrays:
        return jnp.zeros(0), unravel
    return jnp.concatenate([jnp.ravel(a).astype(common) for a in arrays]), unravel


def _as(x: Any, dtype: Any) -> Any:
    return (x if jnp.issubdtype(dtype, jnp.complexfloating) else x.real).astype(dtype)


__dir__ = _listing(__name__)
