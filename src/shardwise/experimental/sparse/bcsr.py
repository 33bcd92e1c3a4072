"""`BCSR`, a matrix as its elements row by row: their columns, and where each row begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import register_pytree_node
from shardwise.experimental.sparse.bcoo import BCOO
from shardwise.experimental.sparse.formats import JAXSparse, only_sparse_dims
from shardwise.ir import Array


class BCSR(JAXSparse):
    """``BCSR((data, indices, indptr), shape=(m, n))``: row `i` has ``data[indptr[i]:indptr[i + 1]]`` in columns `indices` of these.

    `data` and `indices` have shape (nse,), `indptr` has shape (m + 1,). Elements at one place add up; elements from ``indptr[m]``
    on and in columns outside of the shape do not count.

    Raises:
        ValueError: the shapes do not fit.
        NotImplementedError: the elements are arrays, or have batch dims: map a matrix with vmap.
    """

    __slots__ = ("data", "indices", "indices_sorted", "indptr", "shape", "unique_indices")

    n_sparse = 2

    def __init__(
        self,
        args: tuple[Any, Any, Any],
        *,
        shape: Any,
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        self.shape = tuple(shape)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        if len(self.shape) != 2 or self.data.ndim != 1:
            raise NotImplementedError(
                f"BCSR is a matrix with elements of shape (n,), got data {self.data.shape} of an array of shape {self.shape}. Use "
                "vmap over matrices for batches of them."
            )
        if self.indices.shape != self.data.shape or self.indptr.shape != (self.shape[0] + 1,):
            raise ValueError(
                f"BCSR of shape {self.shape} with {self.data.shape[0]} elements has indices of shape {self.data.shape} and indptr of "
                f"shape ({self.shape[0] + 1},), got {self.indices.shape} and {self.indptr.shape}."
            )

    # -- to and from other forms

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """The nonzero elements of a dense matrix; `nse` says how many to keep, which a traced function needs."""
        only_sparse_dims("BCSR.fromdense", n_dense, n_batch)
        if jnp.ndim(mat) != 2:
            raise ValueError(f"BCSR.fromdense takes a matrix, got an array of shape {jnp.shape(mat)}.")
        return cls.from_bcoo(BCOO.fromdense(mat, nse=nse, index_dtype=index_dtype))

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """The elements of a scipy.sparse matrix; indices are int32 unless said otherwise."""
        only_sparse_dims("BCSR.from_scipy_sparse", n_dense, n_batch)
        rows = mat.tocsr()
        wanted = index_dtype or np.int32
        return cls((rows.data, rows.indices.astype(wanted), rows.indptr.astype(wanted)), shape=rows.shape)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """A sparse matrix, its elements sorted by place."""
        if arr.ndim != 2:
            raise NotImplementedError(f"BCSR.from_bcoo takes a matrix, got an array of shape {arr.shape}; reshape it.")
        arr = arr.all_sparse()
        sorted_arr = arr if arr.indices_sorted else arr.sort_indices()
        rows, columns = sorted_arr.indices[:, 0], sorted_arr.indices[:, 1]
        begins = jnp.searchsorted(rows, jnp.arange(arr.shape[0] + 1, dtype=rows.dtype))
        return cls((sorted_arr.data, columns, begins.astype(rows.dtype)), shape=arr.shape)

    def to_bcoo(self) -> BCOO:
        """The same elements with the row and the column of each."""
        numbers = jnp.arange(self.nse, dtype=self.indptr.dtype)
        rows = jnp.searchsorted(self.indptr, numbers, side="right") - 1
        return BCOO((self.data, jnp.stack([rows.astype(self.indices.dtype), self.indices], axis=1)), shape=self.shape)

    def todense(self) -> Array:
        """The dense matrix."""
        return self.to_bcoo().todense()

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """One element per place, in order; `nse` is the greatest number of them, which a traced function needs."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse, remove_zeros))

    def transpose(self, axes: Any = None) -> BCSR:
        """NotImplementedError, as in JAX: ``BCSR.from_bcoo(m.to_bcoo().T)`` is the transposed matrix."""
        raise NotImplementedError(
            f"BCSR.transpose({'' if axes is None else axes}) is not implemented; use BCSR.from_bcoo(m.to_bcoo().T)."
        )

    def __matmul__(self, other: Any) -> Array:
        return self.to_bcoo() @ other

    def __rmatmul__(self, other: Any) -> Array:
        return other @ self.to_bcoo()


def _flatten(mat: BCSR) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (mat.data, mat.indices, mat.indptr), (mat.shape, mat.indices_sorted, mat.unique_indices)


def _unflatten(aux: tuple[Any, ...], children: Any) -> BCSR:
    self = object.__new__(BCSR)
    self.shape, self.indices_sorted, self.unique_indices = aux
    self.data, self.indices, self.indptr = children
    return self


register_pytree_node(BCSR, _flatten, _unflatten)


def bcsr_todense(mat: BCSR) -> Array:
    """`mat` as a dense matrix.

    >>> jax.experimental.sparse.bcsr_todense(jax.experimental.sparse.BCSR.fromdense(jnp.array([[0, 2], [3, 4]])))
    Array([[0, 2],
           [3, 4]], dtype=int32)
    """
    return mat.todense()


def bcsr_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCSR:
    """The nonzero elements of the dense matrix `mat` as a `BCSR`; `nse` says how many to keep, which a traced
    function needs.

    Args:
        n_batch: the leading dims that are batch dims; NotImplementedError for any.
        n_dense: the trailing dims that are dense; likewise.
        index_dtype: the dtype of the places.

    >>> jax.experimental.sparse.bcsr_fromdense(jnp.array([[0, 2], [3, 4]])).indptr
    Array([0, 1, 3], dtype=int32)
    """
    return BCSR.fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)


__dir__ = _listing(__name__)
