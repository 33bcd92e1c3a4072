"""`shardwise.flatten_util`: a tree of arrays as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import result_type
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_unflatten
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
    has_mixed_dtypes = any(a.dtype != common for a in arrays)
    places: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]] = []
    total = 0
    for a in arrays:
        places.append((total, total + math.prod(a.shape), a.shape, a.dtype))
        total += math.prod(a.shape)
    unravel = _Unravel(structure, tuple(places), total, common if has_mixed_dtypes else None)
    if not arrays:
        return jnp.zeros(0), unravel
    return jnp.concatenate([jnp.ravel(a).astype(common) for a in arrays]), unravel


@dataclass(frozen=True)
class _Unravel:
    """The way back from a vector; equal for trees of one structure and equal types, so that it does as a static argument.

    Attributes:
        structure: of the tree.
        places: first and last entry, shape and dtype of each leaf.
        total: the size of the vector.
        common: the dtype of the vector, where the leaves have several.
    """

    structure: PyTreeDef
    places: tuple[tuple[int, int, tuple[int, ...], np.dtype[Any]], ...]
    total: int
    common: Any

    def __call__(self, vector: Any) -> Any:
        vector = jnp.asarray(vector)
        if vector.shape != (self.total,):
            raise ValueError(f"unravel takes a vector of shape {(self.total,)}, got one of shape {vector.shape}.")
        if self.common is not None and vector.dtype != self.common:
            raise TypeError(f"unravel takes a vector of dtype {self.common}, got {vector.dtype}; cast it first.")
        parts = [lax.slice(vector, (begin,), (end,)).reshape(shape) for begin, end, shape, _ in self.places]
        if self.common is not None:
            parts = [_as(part, dtype) for part, (*_, dtype) in zip(parts, self.places, strict=True)]
        return tree_unflatten(self.structure, parts)


def _as(x: Any, dtype: Any) -> Any:
    return (x if jnp.issubdtype(dtype, jnp.complexfloating) else x.real).astype(dtype)


__dir__ = _listing(__name__)
