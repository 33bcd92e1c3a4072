"""`BCSR`, a matrix as its elements row by row: their columns, and where each row begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import register_pytree_node
from shardwise.experimental.sparse.batches import over_batches
from shardwise.experimental.sparse.bcoo import BCOO
from shardwise.experimental.sparse.formats import JAXSparse, only_sparse_dims
from shardwise.experimental.sparse.pieces import bcoo_broadcast_in_dim, bcoo_concatenate
from shardwise.experimental.sparse.products import bcoo_dot_general
from shardwise.ir import Array


class BCSR(JAXSparse):
    """``BCSR((data, indices, indptr), shape=(m, n))``: row `i` has ``data[indptr[i]:indptr[i + 1]]`` in columns `indices` of these.

    `data` and `indices` have shape (nse,), `indptr` has shape (m + 1,). With batch dims in front and dense dims behind, of a shape
    [*batch, m, n, *dense], they are [*batch, nse, *dense], [*batch, nse] and [*batch, m + 1]; batch dims of each may be 1. Elements at one
    place add up; elements from ``indptr[m]`` on and in columns outside of the shape do not count.

    Raises:
        ValueError: the shapes do not fit.
    """

    __slots__ = ("data", "indices", "indices_sorted", "indptr", "shape", "unique_indices")

    n_sparse = 2
    n_batch = property(lambda self: self.indices.ndim - 1)
    n_dense = property(lambda self: self.data.ndim - self.indices.ndim)

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
        n = self.n_batch
        fits = n >= 0 and self.n_dense >= 0 and len(self.shape) == n + 2 + self.n_dense
        fits = fits and self.data.shape[n + 1 :] == self.shape[n + 2 :] and self.indptr.ndim == n + 1
        fits = fits and self.data.shape[n] == self.indices.shape[n] and self.indptr.shape[n] == self.shape[n] + 1
        for part in (self.data, self.indices, self.indptr):
            fits = fits and all(size in (1, whole) for size, whole in zip(part.shape[:n], self.shape, strict=False))
        if not fits:
            raise ValueError(
                f"BCSR of shape {self.shape} has data of shape (*batch, nse, *dense), indices of shape (*batch, nse) and indptr of shape "
                f"(*batch, rows + 1), where batch dims may be 1; got {self.data.shape}, {self.indices.shape} and {self.indptr.shape}."
            )

    @property
    def nse(self) -> int:
        """How many elements are kept, of each batch."""
        return self.indices.shape[-1]

    # -- to and from other forms

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """The nonzero elements of a dense array; `nse` says how many to keep, of each batch, which a traced function needs."""
        if jnp.ndim(mat) != 2 + n_dense + n_batch:
            raise ValueError(
                f"BCSR.fromdense takes an array of two dims beside n_batch={n_batch} and n_dense={n_dense}, got one of shape "
                f"{jnp.shape(mat)}."
            )
        return cls.from_bcoo(BCOO.fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch))

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """The elements of a scipy.sparse matrix; indices are int32 unless said otherwise."""
        only_sparse_dims("BCSR.from_scipy_sparse", n_dense, n_batch)
        rows = mat.tocsr()
        position_dtype = index_dtype or np.int32
        return cls(
            (rows.data, rows.indices.astype(position_dtype), rows.indptr.astype(position_dtype)), shape=rows.shape
        )

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """An array with two sparse dims, or a matrix: its elements sorted by place. NotImplementedError for others."""
        if arr.ndim == 2:
            arr = arr.all_sparse()
        if arr.n_sparse != 2:
            raise NotImplementedError(
                f"BCSR.from_bcoo takes an array with two sparse dims, got {arr.n_sparse} of shape {arr.shape}; use update_layout."
            )
        sorted_matrix = arr if arr.indices_sorted else arr.sort_indices()
        height = arr.shape[arr.n_batch]

        def begins(places: Array) -> Array:
            rows = places[:, 0]
            return jnp.searchsorted(rows, jnp.arange(height + 1, dtype=rows.dtype)).astype(rows.dtype)

        lead = sorted_matrix.indices.shape[: arr.n_batch]
        indptr = over_batches(begins, lead, arr.n_batch, sorted_matrix.indices)
        flags = {"indices_sorted": True, "unique_indices": sorted_matrix.unique_indices}
        return cls((sorted_matrix.data, sorted_matrix.indices[..., 1], indptr), shape=arr.shape, **flags)

    def to_bcoo(self) -> BCOO:
        """The same elements with the row and the column of each."""

        def rows_of(indptr: Array, columns: Array) -> Array:
            numbers = jnp.arange(columns.shape[0], dtype=indptr.dtype)
            rows = jnp.searchsorted(indptr, numbers, side="right") - 1
            return jnp.stack([rows.astype(columns.dtype), columns], axis=1)

        lead = np.broadcast_shapes(self.indptr.shape[:-1], self.indices.shape[:-1])
        places = over_batches(rows_of, lead, self.n_batch, self.indptr, self.indices)
        flags = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices}
        return BCOO((self.data, places), shape=self.shape, **flags)

    def _like(self, data: Any) -> BCSR:
        """Other elements at the same places."""
        flags = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices}
        return BCSR((data, self.indices, self.indptr), shape=self.shape, **flags)

    def todense(self) -> Array:
        """The dense array."""
        return self.to_bcoo().todense()

    def __getitem__(self, index: Any) -> BCSR:
        """``m[index]``, where two sparse dims are left, as of a new dim in front; NotImplementedError where not."""
        return BCSR.from_bcoo(self.to_bcoo()[index])

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
    sizes = [getattr(x, "ndim", 0) for x in children]
    if min(sizes) >= 1 and sizes[0] >= sizes[1] == sizes[2]:
        tail_rank = 2 + self.n_dense
        if self.n_batch + tail_rank != self.ndim >= tail_rank:  # vmap took a batch dim away, or puts one in front
            batch = np.broadcast_shapes(*[x.shape[: self.n_batch] for x in children])
            self.shape = (*batch, *self.shape[self.ndim - tail_rank :])
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
    """The nonzero elements of the dense array `mat` as a `BCSR`; `nse` says how many to keep, of each batch, which a traced
    function needs.

    Args:
        n_batch: the leading dims that are batch dims.
        n_dense: the trailing dims that are dense: elements are arrays of these.
        index_dtype: the dtype of the places.

    >>> jax.experimental.sparse.bcsr_fromdense(jnp.array([[0, 2], [3, 4]])).indptr
    Array([0, 1, 3], dtype=int32)
    """
    return BCSR.fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """One element of `mat` per place, in order, zeros included; `nse` is the greatest number, which a traced function needs.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcsr_sum_duplicates(m)
    BCSR(float32[2, 2], nse=3)
    """
    return mat.sum_duplicates(nse, remove_zeros=False)


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Array:
    """The elements of a dense array `mat` at the places of the rows `indices` and `indptr`: f[*batch, nse, *dense].

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcsr_extract(m.indices, m.indptr, jnp.array([[4.0, 5.0], [6.0, 7.0]]))
    Array([4., 6., 7.], dtype=float32)
    """
    columns, dense = jnp.asarray(indices), jnp.asarray(mat)
    n = columns.ndim - 1
    elements = jnp.zeros((*columns.shape, *dense.shape[n + 2 :]), dense.dtype)
    places = BCSR((elements, columns, indptr), shape=dense.shape).to_bcoo().indices
    of_one = lambda x, at: x.at[at[:, 0], at[:, 1]].get(mode="fill", fill_value=0)  # noqa: E731
    return over_batches(of_one, dense.shape, n, dense, places)


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """`mat` repeated along dims of a matrix of `shape`; see `bcoo_broadcast_in_dim`, also for `broadcast_dimensions` and `sharding`.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.array([[1.0, 0.0]]))
    >>> sparse.bcsr_broadcast_in_dim(m, shape=(2, 2), broadcast_dimensions=(0, 1)).todense()
    Array([[1., 0.],
           [1., 0.]], dtype=float32)
    """
    wide = bcoo_broadcast_in_dim(
        mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions, sharding=sharding
    )
    return BCSR.from_bcoo(wide)


def bcsr_dot_general(
    lhs: BCSR, rhs: Any, *, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """`lax.dot_general` of a `BCSR` `lhs` and a dense array `rhs`: dense.

    `dimension_numbers`, `precision` and `preferred_element_type` are as in `bcoo_dot_general`.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcsr_dot_general(m, jnp.ones(2), dimension_numbers=(((1,), (0,)), ((), ())))
    Array([1., 5.], dtype=float32)
    """
    return bcoo_dot_general(
        lhs.to_bcoo(),
        rhs,
        dimension_numbers=dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """The matrices `operands` one after the other along `dimension`; see `bcoo_concatenate`.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcsr_concatenate([m, m], dimension=1).todense()
    Array([[1., 0., 1., 0.],
           [2., 3., 2., 3.]], dtype=float32)
    """
    return BCSR.from_bcoo(bcoo_concatenate([m.to_bcoo() for m in operands], dimension=dimension))


__dir__ = _listing(__name__)
