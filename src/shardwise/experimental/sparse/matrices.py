"""`COO`, `CSR` and `CSC`: matrices as their elements and their places, without batch or dense dims.

In: a dense matrix, or the arrays that make up a sparse one. Out: trees of arrays, for jit, grad and vmap, with products by dense vectors
and matrices. All of them compute as the `BCOO` of the same elements.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import register_pytree_node
from shardwise.experimental.sparse.bcoo import BCOO
from shardwise.experimental.sparse.bcoo import eye as _eye
from shardwise.experimental.sparse.bcsr import BCSR
from shardwise.experimental.sparse.formats import JAXSparse
from shardwise.ir import Array

__all__ = [
    "COO", "CSC", "CSR", "coo_fromdense", "coo_matmat", "coo_matvec", "coo_todense", "csr_fromdense", "csr_matmat", "csr_matvec",
    "csr_todense",
]  # fmt: skip


class _Matrix(JAXSparse):
    """A matrix made of `data` and two arrays of places, whose names are `_places`."""

    __slots__ = ()
    _places: ClassVar[tuple[str, str]]

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Any) -> None:
        arrays = [jnp.asarray(x) for x in args]
        self.shape = tuple(shape)
        if len(self.shape) != 2:
            raise ValueError(f"{type(self).__name__} must have ndim=2; got shape={self.shape}.")
        for name, array in zip(("data", *self._places), arrays, strict=True):
            setattr(self, name, array)
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Raise ValueError unless the arrays' shapes fit."""

    @abstractmethod
    def _as_bcoo(self) -> BCOO:
        """The same elements as a BCOO."""

    def todense(self) -> Array:
        """The dense matrix; elements at one place add up."""
        return self._as_bcoo().todense()

    def __matmul__(self, other: Any) -> Array:
        if isinstance(other, JAXSparse):
            raise NotImplementedError(
                "matmul between two sparse objects: make one of them dense with todense(), or both BCOO."
            )
        dense = jnp.asarray(other)
        if dense.ndim not in (1, 2):
            raise NotImplementedError(
                f"matmul with object of shape {dense.shape}: a sparse matrix multiplies vectors and matrices; map it with vmap."
            )
        return self._as_bcoo() @ dense

    def __rmatmul__(self, other: Any) -> Array:
        return (self.T @ jnp.asarray(other).T).T

    @staticmethod
    def _no_axes(axes: Any) -> None:
        if axes is not None:
            raise NotImplementedError(f"axes={axes} of transpose(): leave it out; a matrix has one other order.")


class COO(_Matrix):
    """``COO((data, row, col), shape=(m, n))``: elements at rows and columns, all three of shape (nse,).

    `rows_sorted` and `cols_sorted` say whether the elements are known to be in that order.

    Raises:
        ValueError: the shapes do not fit.
    """

    __slots__ = ("_cols_sorted", "_rows_sorted", "col", "data", "row", "shape")
    _places = ("row", "col")
    row: Any
    col: Any

    def __init__(
        self, args: tuple[Any, Any, Any], *, shape: Any, rows_sorted: bool = False, cols_sorted: bool = False
    ) -> None:
        super().__init__(args, shape=shape)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted

    def _check(self) -> None:
        if not (self.data.ndim == 1 and self.data.shape == self.row.shape == self.col.shape):
            raise ValueError(
                f"COO has data, row and col of one shape (nse,), got {self.data.shape}, {self.row.shape} and {self.col.shape}."
            )

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> Self:
        """The nonzero elements of a dense matrix; `nse` says how many to keep, which a traced function needs."""
        new_matrix = BCOO.fromdense(_matrix("COO", mat), nse=nse, index_dtype=index_dtype)
        return cls(
            (new_matrix.data, new_matrix.indices[:, 0], new_matrix.indices[:, 1]),
            shape=new_matrix.shape,
            rows_sorted=True,
        )

    @classmethod
    def _from_bcoo(cls, arr: BCOO) -> Self:
        return cls((arr.data, arr.indices[:, 0], arr.indices[:, 1]), shape=arr.shape, rows_sorted=True)

    def _as_bcoo(self) -> BCOO:
        return BCOO((self.data, jnp.stack([self.row, self.col], axis=1)), shape=self.shape)

    def _sort_indices(self) -> COO:
        """The same elements in the order of rows, and of columns in each."""
        if self._rows_sorted:
            return self
        row, col, data = lax.sort((self.row, self.col, self.data), num_keys=2)
        return COO((data, row, col), shape=self.shape, rows_sorted=True)

    def transpose(self, axes: Any = None) -> COO:
        """The transposed matrix, with the same elements."""
        self._no_axes(axes)
        return COO(
            (self.data, self.col, self.row),
            shape=self.shape[::-1],
            rows_sorted=self._cols_sorted,
            cols_sorted=self._rows_sorted,
        )


class _CompressedMatrix(_Matrix):
    """A matrix whose elements lie row by row, or column by column: `indptr` says where each begins."""

    __slots__ = ("data", "indices", "indptr", "shape")
    _places = ("indices", "indptr")
    _pointed: ClassVar[int]  # the dim that `indptr` goes along
    indices: Any
    indptr: Any

    def _check(self) -> None:
        begins = (self.shape[self._pointed] + 1,)
        if not (self.data.ndim == 1 and self.data.shape == self.indices.shape and self.indptr.shape == begins):
            raise ValueError(
                f"{type(self).__name__} of shape {self.shape} has data and indices of one shape (nse,) and indptr of shape {begins}, got "
                f"{self.data.shape}, {self.indices.shape} and {self.indptr.shape}."
            )

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> Self:
        """The nonzero elements of a dense matrix; `nse` says how many to keep, which a traced function needs."""
        dense = _matrix(cls.__name__, mat)
        new_matrix = BCSR.fromdense(dense.T if cls._pointed else dense, nse=nse, index_dtype=index_dtype)
        return cls((new_matrix.data, new_matrix.indices, new_matrix.indptr), shape=dense.shape)

    @classmethod
    def _from_bcoo(cls, arr: BCOO) -> Self:
        rows = BCSR.from_bcoo(arr.transpose() if cls._pointed else arr)
        return cls((rows.data, rows.indices, rows.indptr), shape=arr.shape)

    def _as_bcoo(self) -> BCOO:
        shape = self.shape[::-1] if self._pointed else self.shape
        rows_matrix = BCSR((self.data, self.indices, self.indptr), shape=shape).to_bcoo()
        return rows_matrix.transpose() if self._pointed else rows_matrix


class CSR(_CompressedMatrix):
    """``CSR((data, indices, indptr), shape=(m, n))``: row `i` has ``data[indptr[i]:indptr[i + 1]]`` in columns `indices` of these.

    `data` and `indices` have shape (nse,), `indptr` has shape (m + 1,).

    Raises:
        ValueError: the shapes do not fit.
    """

    __slots__ = ()
    _pointed: ClassVar[int] = 0

    def transpose(self, axes: Any = None) -> CSC:
        """The transposed matrix, with the same elements."""
        self._no_axes(axes)
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])


class CSC(_CompressedMatrix):
    """``CSC((data, indices, indptr), shape=(m, n))``: column `j` has ``data[indptr[j]:indptr[j + 1]]`` in rows `indices` of these.

    `data` and `indices` have shape (nse,), `indptr` has shape (n + 1,).

    Raises:
        ValueError: the shapes do not fit.
    """

    __slots__ = ()
    _pointed: ClassVar[int] = 1

    def transpose(self, axes: Any = None) -> CSR:
        """The transposed matrix, with the same elements."""
        self._no_axes(axes)
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])


_FORMATS: dict[str, type[COO | CSR | CSC]] = {"coo": COO, "csr": CSR, "csc": CSC}


def _register(kind: Any) -> None:
    fields = ("data", *kind._places)
    aux_names = ("shape", "_rows_sorted", "_cols_sorted") if kind is COO else ("shape",)

    def unflatten(aux: tuple[Any, ...], children: Any) -> Any:
        self = object.__new__(kind)
        for name, value in zip((*fields, *aux_names), (*children, *aux), strict=True):
            setattr(self, name, value)
        return self

    register_pytree_node(
        kind, lambda m: (tuple(getattr(m, f) for f in fields), tuple(getattr(m, f) for f in aux_names)), unflatten
    )


for _kind in _FORMATS.values():
    _register(_kind)


def _matrix(name: str, mat: Any) -> Array:
    dense = jnp.asarray(mat)
    if dense.ndim != 2:
        raise ValueError(f"{name} must have ndim=2; got an array of shape {dense.shape}.")
    return dense


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """The nonzero elements of the dense matrix `mat` as a `COO`; `nse` says how many to keep, which a traced function
    needs.

    `index_dtype` is the dtype of the places.

    >>> jax.experimental.sparse.coo_fromdense(jnp.array([[0, 2], [3, 4]])).row
    Array([0, 1, 1], dtype=int32)
    """
    return COO.fromdense(mat, nse=nse, index_dtype=index_dtype)


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """The nonzero elements of the dense matrix `mat`, row by row, as a `CSR`; `nse` says how many to keep, which a
    traced function needs.

    `index_dtype` is the dtype of the places.

    >>> jax.experimental.sparse.csr_fromdense(jnp.array([[0, 2], [3, 4]])).indptr
    Array([0, 1, 3], dtype=int32)
    """
    return CSR.fromdense(mat, nse=nse, index_dtype=index_dtype)


def coo_todense(mat: COO) -> Array:
    """`mat` as a dense matrix.

    >>> jax.experimental.sparse.coo_todense(jax.experimental.sparse.coo_fromdense(jnp.array([[0, 2], [3, 4]])))
    Array([[0, 2],
           [3, 4]], dtype=int32)
    """
    return mat.todense()


def csr_todense(mat: CSR) -> Array:
    """`mat` as a dense matrix.

    >>> jax.experimental.sparse.csr_todense(jax.experimental.sparse.csr_fromdense(jnp.array([[0, 2], [3, 4]])))
    Array([[0, 2],
           [3, 4]], dtype=int32)
    """
    return mat.todense()


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Array:
    """The product of `mat` with a dense vector `v`: [m, n] and [n] -> [m]; of the transposed matrix if `transpose`.

    >>> m = jax.experimental.sparse.coo_fromdense(jnp.array([[0.0, 2.0], [3.0, 4.0]]))
    >>> jax.experimental.sparse.coo_matvec(m, jnp.array([1.0, 10.0]))
    Array([20., 43.], dtype=float32)
    """
    return _product("coo_matvec", mat, v, 1, transpose)


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Array:
    """The product of `mat` with a dense vector `v`: [m, n] and [n] -> [m]; of the transposed matrix if `transpose`.

    >>> m = jax.experimental.sparse.csr_fromdense(jnp.array([[0.0, 2.0], [3.0, 4.0]]))
    >>> jax.experimental.sparse.csr_matvec(m, jnp.array([1.0, 10.0]))
    Array([20., 43.], dtype=float32)
    """
    return _product("csr_matvec", mat, v, 1, transpose)


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Array:
    """The product of `mat` with a dense matrix `B`: [m, n] and [n, k] -> [m, k]; of the transposed matrix if
    `transpose`.

    >>> m = jax.experimental.sparse.coo_fromdense(jnp.array([[0.0, 2.0], [3.0, 4.0]]))
    >>> jax.experimental.sparse.coo_matmat(m, jnp.eye(2))
    Array([[0., 2.],
           [3., 4.]], dtype=float32)
    """
    return _product("coo_matmat", mat, B, 2, transpose)


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Array:
    """The product of `mat` with a dense matrix `B`: [m, n] and [n, k] -> [m, k]; of the transposed matrix if
    `transpose`.

    >>> m = jax.experimental.sparse.csr_fromdense(jnp.array([[0.0, 2.0], [3.0, 4.0]]))
    >>> jax.experimental.sparse.csr_matmat(m, jnp.eye(2))
    Array([[0., 2.],
           [3., 4.]], dtype=float32)
    """
    return _product("csr_matmat", mat, B, 2, transpose)


def _product(name: str, mat: Any, other: Any, ndim: int, transpose: bool) -> Array:
    if jnp.ndim(other) != ndim:
        raise ValueError(f"{name} takes an array of {ndim} dims beside the matrix, got shape {jnp.shape(other)}.")
    return (mat.T if transpose else mat) @ other


def empty(
    shape: Any, dtype: Any = None, index_dtype: Any = np.int32, sparse_format: str = "bcoo", **kwds: int
) -> JAXSparse:
    """Zeros: an array of that `shape` and `dtype` without elements, in the `sparse_format` "bcoo", "bcsr", "coo",
    "csr" or "csc".

    `index_dtype` is the dtype of the places. Of `kwds` the formats "bcoo" and "bcsr" take `nse`, a number of places to keep beyond the
    array, and "bcoo" the numbers of batch and dense dims, `n_batch` and `n_dense`.

    >>> jax.experimental.sparse.empty((2, 2)).todense()
    Array([[0., 0.],
           [0., 0.]], dtype=float32)
    """
    _check_options("empty", sparse_format, kwds, {"bcoo": {"nse", "n_batch", "n_dense"}, "bcsr": {"nse"}})
    return _in_format(_without_elements(tuple(shape), dtype, index_dtype, **kwds), sparse_format)


def _without_elements(
    sizes: tuple[int, ...], dtype: Any, index_dtype: Any, nse: int = 0, n_batch: int = 0, n_dense: int = 0
) -> BCOO:
    n_sparse = len(sizes) - n_batch - n_dense
    if min(n_sparse, n_batch, n_dense, nse) < 0:
        raise ValueError(f"Invalid inputs: {sizes=}, {n_dense=}, {n_batch=}, {nse=}")
    batch, sparse, dense = sizes[:n_batch], sizes[n_batch : n_batch + n_sparse], sizes[n_batch + n_sparse :]
    return BCOO(
        (
            jnp.zeros((*batch, nse, *dense), float if dtype is None else dtype),
            jnp.broadcast_to(jnp.asarray(sparse, index_dtype), (*batch, nse, n_sparse)),  # beyond the array
        ),
        shape=sizes,
        indices_sorted=True,
        unique_indices=True,
    )


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = np.int32,
    sparse_format: str = "bcoo",
    **kwds: int,
) -> JAXSparse:
    """Ones on the k-th diagonal of a matrix [N, M], of `dtype`, in the `sparse_format` "bcoo", "bcsr", "coo", "csr"
    or "csc".

    `index_dtype` is the dtype of the places. Of `kwds` the format "bcoo" takes `n_batch` and `n_dense`, numbers of batch and dense
    dims.

    >>> jax.experimental.sparse.eye(2).todense()
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    _check_options("eye", sparse_format, kwds, {"bcoo": {"n_batch", "n_dense"}})
    if kwds:
        return BCOO.fromdense(jnp.eye(N, M, k, dtype), index_dtype=index_dtype, **kwds)
    return _in_format(_eye(N, M, k, dtype, index_dtype), sparse_format)


def _check_options(name: str, sparse_format: str, given: dict[str, int], known: dict[str, set[str]]) -> None:
    """TypeError for options that the format does not take."""
    if unknown := sorted(given.keys() - known.get(sparse_format, set[str]())):
        raise TypeError(f"{name} in the format {sparse_format!r} got an unexpected keyword argument {unknown[0]!r}.")


def _in_format(arr: BCOO, sparse_format: str) -> JAXSparse:
    if sparse_format == "bcoo":
        return arr
    if sparse_format == "bcsr":
        return BCSR.from_bcoo(arr)
    if sparse_format not in _FORMATS:
        raise ValueError(f"sparse_format={sparse_format!r} not recognized; must be one of bcoo, bcsr, coo, csr, csc.")
    if arr.ndim != 2:
        raise ValueError(f"{sparse_format.upper()} must have ndim=2; got shape={arr.shape}.")
    return _FORMATS[sparse_format]._from_bcoo(arr)


__dir__ = _listing(__name__)
