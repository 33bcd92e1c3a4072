"""`shardwise.experimental.sparse`: `BCOO`, a matrix as its nonzero elements and their places, to be multiplied by dense arrays.

In: a dense or a scipy.sparse matrix. Out: a tree of two arrays, for jit, grad and vmap, with ``@``, ``T`` and `todense`. The other
formats and the sparse versions of lax are not here; scipy.sparse works on concrete values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.tree import register_pytree_node
from shardwise.ir import Array

__all__ = ["BCOO"]


class BCOO:
    """``BCOO((data, indices), shape=shape)``: `data` of shape (n,) at `indices` of shape (n, ndim). Places given twice add up.

    Raises:
        NotImplementedError: the elements are arrays, or have batch dims: map a matrix with vmap.
    """

    __slots__ = ("data", "indices", "shape")

    def __init__(self, args: tuple[Any, Any], *, shape: tuple[int, ...]) -> None:
        self.data, self.indices = map(jnp.asarray, args)
        self.shape = tuple(shape)
        if self.data.ndim != 1 or self.indices.shape != (*self.data.shape, len(self.shape)):
            raise NotImplementedError(
                f"BCOO has elements of shape (n,) at indices of shape (n, {len(self.shape)}), got {self.data.shape} and "
                f"{self.indices.shape}. Use vmap over matrices for batches of them."
            )

    dtype = property(lambda self: self.data.dtype)
    ndim = property(lambda self: len(self.shape))
    nse = property(lambda self: self.data.shape[0], doc="How many elements are kept.")

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None) -> BCOO:
        """The nonzero elements of a dense array; `nse` says how many to keep, which a traced function needs."""
        dense = jnp.asarray(mat)
        places = jnp.nonzero(dense, size=nse, fill_value=None if nse is None else dense.shape)
        data = dense.at[places].get(mode="fill", fill_value=0)
        return cls((data, jnp.stack(places, axis=-1)), shape=dense.shape)

    @classmethod
    def from_scipy_sparse(cls, mat: Any) -> BCOO:
        """The elements of a scipy.sparse matrix."""
        found = mat.tocoo()
        return cls((found.data, np.stack([found.row, found.col], axis=-1).astype(np.int32)), shape=found.shape)

    def todense(self) -> Array:
        """The dense array."""
        places = tuple(self.indices[:, d] for d in range(self.ndim))
        return jnp.zeros(self.shape, self.dtype).at[places].add(self.data, mode="drop")

    @property
    def T(self) -> BCOO:
        """The transposed matrix."""
        return BCOO((self.data, self.indices[:, ::-1]), shape=self.shape[::-1])

    def __matmul__(self, other: Any) -> Array:
        if self.ndim != 2 or isinstance(other, BCOO):
            raise NotImplementedError("BCOO @ x takes a sparse matrix and a dense array; use todense() for others.")
        dense = jnp.asarray(other)
        if dense.ndim == 1:
            return (self @ dense[:, None])[:, 0]
        if dense.shape[-2] != self.shape[1]:
            raise TypeError(f"a {self.shape} matrix cannot be multiplied by an array of shape {dense.shape}.")
        rows = self.data[:, None] * jnp.take(dense, self.indices[:, 1], axis=-2, mode="clip")
        out = jnp.zeros((*dense.shape[:-2], self.shape[0], dense.shape[-1]), rows.dtype)
        return out.at[..., self.indices[:, 0], :].add(rows, mode="drop")

    def __rmatmul__(self, other: Any) -> Array:
        dense = jnp.asarray(other)
        if dense.ndim == 1:
            return self.T @ dense
        return jnp.swapaxes(self.T @ jnp.swapaxes(dense, -1, -2), -1, -2)

    def __repr__(self) -> str:
        return f"BCOO({self.dtype.name}{list(self.shape)}, nse={self.nse})"


def _unflatten(shape: tuple[int, ...], children: Any) -> BCOO:
    self = object.__new__(BCOO)
    self.shape = shape
    self.data, self.indices = children
    return self


register_pytree_node(BCOO, lambda m: ((m.data, m.indices), m.shape), _unflatten)
