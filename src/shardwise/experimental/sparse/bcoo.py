"""`BCOO`, an array as its nonzero elements and their places, and its functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import register_pytree_node
from shardwise.experimental.sparse.batches import (
    add_at,
    are_inside,
    batch_dims,
    check_elements,
    count_places,
    nonzero_elements,
    over_batches,
    sorted_elements,
    spread_elements,
    summed_elements,
)
from shardwise.experimental.sparse.formats import JAXSparse, only_sparse_dims
from shardwise.ir import Array
from shardwise.lax import adaptive as lax

__all__ = ["BCOO", "bcoo_fromdense", "bcoo_multiply_dense", "bcoo_reduce_sum", "bcoo_reshape",
           "bcoo_sort_indices", "bcoo_sum_duplicates", "bcoo_todense", "bcoo_transpose", "bcoo_update_layout", "todense"]  # fmt: skip


class BCOO(JAXSparse):
    """``BCOO((data, indices), shape=shape)``: `data` of shape (n,) at `indices` of shape (n, ndim).

    With batch dims in front and dense dims behind, data is [*batch, n, *dense] at indices [*batch, n, n_sparse] of a shape
    [*batch, *sparse, *dense]. Batch dims of data or indices may be 1. `n_batch`, `n_sparse` and `n_dense` say how many there are.

    Elements at one place add up, and those at places outside of the shape do not count. `indices_sorted` and `unique_indices` say
    what is known of the places. Negation, casts, powers, products with numbers, sorting, sums of duplicates, cuts, joins and
    new dims around the sparse ones keep batch and dense dims; other functions give arrays all of whose dims are sparse.

    Raises:
        ValueError: the shapes do not fit.
    """

    __slots__ = ("data", "indices", "indices_sorted", "shape", "unique_indices")

    def __init__(
        self, args: tuple[Any, Any], *, shape: Sequence[int], indices_sorted: bool = False, unique_indices: bool = False
    ) -> None:
        self.data, self.indices = map(jnp.asarray, args)
        self.shape = tuple(shape)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        check_elements(self.data, self.indices, self.shape)

    @property
    def nse(self) -> int:
        """How many elements are kept, of each batch."""
        return self.indices.shape[-2]

    if (
        TYPE_CHECKING
    ):  # by `sparsify`, which gives a program of dense arrays its sparse form, by `products` and `pieces`

        def __getitem__(self, index: Any) -> BCOO: ...
        def __iter__(self) -> Iterator[BCOO]: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __rmatmul__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> BCOO: ...
        def __rmul__(self, other: Any) -> BCOO: ...

    n_batch = property(lambda self: batch_dims(self.indices))
    n_sparse = property(lambda self: self.indices.shape[-1])
    n_dense = property(lambda self: self.data.ndim - self.indices.ndim + 1)

    def _sparse_shape(self) -> tuple[int, ...]:
        return self.shape[self.n_batch : self.n_batch + self.n_sparse]

    def all_sparse(self) -> BCOO:
        """The same array without batch and dense dims."""
        return self.update_layout(n_batch=0, n_dense=0)

    def update_layout(
        self, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
    ) -> BCOO:
        """The same array with fewer batch and dense dims, which become sparse; None leaves their number.

        `on_inefficient` is for layouts with more zeros; there are none here.

        Raises:
            ValueError: `on_inefficient` is not "error", "warn" or None.
            NotImplementedError: there are fewer batch or dense dims than asked for.
        """
        if on_inefficient not in ("error", "warn", None):
            raise ValueError(f"on_inefficient is 'error', 'warn' or None, got {on_inefficient!r}.")
        batch = self.n_batch if n_batch is None else n_batch
        dense = self.n_dense if n_dense is None else n_dense
        if not 0 <= batch <= self.n_batch or not 0 <= dense <= self.n_dense:
            raise NotImplementedError(
                f"update_layout of {self} to n_batch={batch} and n_dense={dense}: sparse dims become no others; use fromdense."
            )
        flags = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices}
        return BCOO(spread_elements(self.data, self.indices, self.shape, batch, dense), shape=self.shape, **flags)

    # -- to and from other forms

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """The nonzero elements of a dense array; `nse` says how many to keep, which a traced function needs."""
        dense = jnp.asarray(mat)
        flags = {"indices_sorted": True, "unique_indices": True}
        return cls(nonzero_elements(dense, nse, n_batch, n_dense, index_dtype), shape=dense.shape, **flags)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """The elements of a scipy.sparse matrix; indices are int32 unless said otherwise."""
        only_sparse_dims("BCOO.from_scipy_sparse", n_dense, n_batch)
        coo = mat.tocoo()
        return cls((coo.data, np.stack([coo.row, coo.col], axis=-1).astype(index_dtype or np.int32)), shape=coo.shape)

    def todense(self) -> Array:
        """The dense array."""
        data, indices = spread_elements(self.data, self.indices, self.shape)
        return add_at(jnp.zeros(self.shape, self.dtype), tuple(indices[:, d] for d in range(self.ndim)), data)

    def _like(self, data: Any) -> BCOO:
        """Other elements at the same places."""
        flags = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices}
        return BCOO((data, self.indices), shape=self.shape, **flags)

    def astype(self, dtype: Any) -> BCOO:
        """The array cast to `dtype`. Elements at one place are added before a cast that loses a part of them."""
        keeps_zeros = self.dtype != np.bool_ and np.can_cast(self.dtype, jnp.dtype(dtype))
        single = self if keeps_zeros or self.unique_indices else self.sum_duplicates(self.nse, remove_zeros=False)
        return single._like(single.data.astype(dtype))

    # -- layouts

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Its dims in the order `axes`; reversed without them."""
        order = tuple(range(self.ndim))[::-1] if axes is None else tuple(axes)
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"axes {order} are no permutation of the dims of shape {self.shape}.")
        shape = tuple(self.shape[d] for d in order)
        start, end = self.n_batch, self.n_batch + self.n_sparse
        batch, sparse, dense = order[:start], order[start:end], order[end:]
        if sorted(batch + dense) != [*range(start), *range(end, self.ndim)] or set(batch) != set(range(start)):
            return self.all_sparse().transpose(order)
        data = lax.transpose(self.data, (*batch, start, *(d - end + start + 1 for d in dense)))
        indices = lax.transpose(self.indices, (*batch, start, start + 1))[..., [d - start for d in sparse]]
        flags = {
            "unique_indices": self.unique_indices,
            "indices_sorted": self.indices_sorted and sparse == tuple(sorted(sparse)),
        }
        return BCOO((data, indices), shape=shape, **flags)

    def reshape(self, *shape: Any) -> BCOO:
        """The elements in row-major order in an array of another shape of the same size.

        ValueError where numbers of elements of dims that are merged or cut do not fit an index.
        """
        if self.n_sparse != self.ndim:
            return self.all_sparse().reshape(*shape)
        new_shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in new_shape:
            new_shape = tuple(self.size // -math.prod(new_shape) if n == -1 else n for n in new_shape)
        if math.prod(new_shape) != self.size:
            raise TypeError(f"cannot reshape array of shape {self.shape} (size {self.size}) into shape {new_shape}.")
        inside, columns = are_inside(self.indices, self.shape), []
        for old, new in _matching_dims(self.shape, new_shape) if self.size else ():
            size = math.prod(self.shape[d] for d in old)
            flat = jnp.zeros(self.nse, _index_type(size, self.shape, new_shape))
            for d in old:
                flat = flat * self.shape[d] + self.indices[:, d].astype(flat.dtype)
            for d in new:
                size //= new_shape[d]
                columns.append(flat // size)
                flat = flat % size
        if len(columns) != len(new_shape):  # nothing is inside
            columns = [jnp.zeros(self.nse, self.indices.dtype) for _ in new_shape]
        places = jnp.stack(columns, axis=-1) if columns else jnp.zeros((self.nse, 0), self.indices.dtype)
        places = jnp.where(inside[:, None], places, np.asarray(new_shape, places.dtype))
        if places.dtype.itemsize < self.indices.dtype.itemsize:
            places = places.astype(self.indices.dtype)
        return BCOO(
            (self.data, places), shape=new_shape, indices_sorted=self.indices_sorted, unique_indices=self.unique_indices
        )

    def sort_indices(self) -> BCOO:
        """The elements, of each batch, in row-major order of their places."""
        shape = self._sparse_shape()
        of_one = lambda data, indices: sorted_elements(data, indices, shape)  # noqa: E731
        sorted_arrays = over_batches(of_one, self.shape, self.n_batch, self.data, self.indices)
        return BCOO(sorted_arrays, shape=self.shape, indices_sorted=True, unique_indices=self.unique_indices)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """One element per place, of each batch, in order; `nse` is the greatest number of them, which a traced function needs."""
        shape = self._sparse_shape()
        if nse is None:
            count = lambda data, indices: count_places(data, indices, shape, remove_zeros)  # noqa: E731
            nse = int(jnp.max(over_batches(count, self.shape, self.n_batch, self.data, self.indices), initial=0))
        size = nse
        of_one = lambda data, indices: summed_elements(data, indices, shape, size, remove_zeros)  # noqa: E731
        summed_arrays = over_batches(of_one, self.shape, self.n_batch, self.data, self.indices)
        return BCOO(summed_arrays, shape=self.shape, indices_sorted=True, unique_indices=True)

    # -- arithmetic

    def sum(self, axis: int | Sequence[int] | None = None) -> Any:
        """The sums over `axis`, still sparse; over everything (the default) a dense scalar."""
        if self.n_sparse != self.ndim:
            return self.all_sparse().sum(axis)
        summed_dims = range(self.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        summed_dims = {d % self.ndim for d in summed_dims}
        left = [d for d in range(self.ndim) if d not in summed_dims]
        data = jnp.where(are_inside(self.indices, self.shape), self.data, 0)
        if not left:
            return jnp.sum(data)
        return BCOO((data, self.indices[:, left]), shape=[self.shape[d] for d in left])

    def __neg__(self) -> BCOO:
        return self._like(-self.data)

    def __abs__(self) -> BCOO:
        single = self if self.unique_indices else self.sum_duplicates(self.nse, remove_zeros=False)
        return single._like(abs(single.data))

    def __pow__(self, exponent: Any) -> BCOO:
        if type(exponent) is not int or exponent < 1:  # others make something of zeros
            raise NotImplementedError(f"BCOO ** n takes a positive int, got {exponent!r}; use todense() for others.")
        single = self if self.unique_indices else self.sum_duplicates(self.nse, remove_zeros=False)
        return single._like(single.data**exponent)

    def __truediv__(self, other: Any) -> BCOO:
        return self.beside(operator.truediv, "/", other)

    def beside(self, op: Callable[[Any, Any], Any], symbol: str, other: Any) -> BCOO:
        """`op` of each element and of the element at its place of a dense array, which broadcasts to this one's shape."""
        if isinstance(other, JAXSparse):
            raise NotImplementedError(
                f"BCOO {symbol} x takes a dense array or a number; use todense() of one of them, or sparse.bcoo_multiply_sparse."
            )
        dense = jnp.asarray(other)
        if dense.ndim > self.ndim or any(
            n not in (1, m) for n, m in zip(dense.shape[::-1], self.shape[::-1], strict=False)
        ):
            raise ValueError(
                f"an array of shape {dense.shape} does not broadcast to the sparse one's shape {self.shape}."
            )
        if dense.ndim and self.n_sparse != self.ndim:
            return self.all_sparse().beside(op, symbol, dense)
        missing_rank = self.ndim - dense.ndim
        places = tuple(self.indices[:, d + missing_rank] if n != 1 else 0 for d, n in enumerate(dense.shape))
        return self._like(op(self.data, dense.at[places].get(mode="clip") if places else dense))

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, BCOO):
            raise NotImplementedError("BCOO + x takes another BCOO; use todense() for others, where the sum is dense.")
        if other.shape != self.shape:
            raise ValueError(
                f"arrays of shapes {self.shape} and {other.shape} are not added; they must have one shape."
            )
        left, right = self.all_sparse(), other.all_sparse()
        both = jnp.concatenate([left.indices, right.indices.astype(left.indices.dtype)])
        return BCOO((jnp.concatenate([left.data, right.data]), both), shape=self.shape)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def times(self, dense: Array) -> Array:
        """The product of this matrix or vector with a dense array."""
        if self.n_sparse != self.ndim:
            return self.all_sparse().times(dense)
        if self.ndim == 1:
            rows = self.reshape(1, -1).times(dense)
            return rows[..., 0, :] if dense.ndim > 1 else rows[0]
        if dense.ndim == 1:
            return self.times(dense[:, None])[:, 0]
        if dense.shape[-2] != self.shape[1]:
            raise TypeError(f"a {self.shape} matrix cannot be multiplied by an array of shape {dense.shape}.")
        data = jnp.where(self.indices[:, 1] < self.shape[1], self.data, jnp.zeros((), self.dtype))
        factors = data.reshape((1,) * (dense.ndim - 2) + (data.size, 1))
        rows = factors * jnp.take(dense, self.indices[:, 1], axis=-2, mode="clip")
        out = jnp.zeros((*dense.shape[:-2], self.shape[0], dense.shape[-1]), rows.dtype)
        return add_at(out, (..., self.indices[:, 0], slice(None)), rows)


def _matching_dims(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """Runs of dims of two shapes of one size, as short as may be, that hold equally many elements."""
    matches, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        start, left, right = (i, j), 1, 1
        while i < len(old) or j < len(new):
            if i < len(old) and (left <= right or j == len(new)):
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
            if left == right and i > start[0] and j > start[1]:
                break
        matches.append((range(start[0], i), range(start[1], j)))
    return matches


def _index_type(size: int, old: Sequence[int], new: Sequence[int]) -> Any:
    """The type that counts `size` elements."""
    wide = np.int64 if config.jax_enable_x64 else np.int32
    if size - 1 > np.iinfo(wide).max:
        raise ValueError(
            f"reshape of a BCOO {tuple(old)} to {tuple(new)} merges or cuts dims of {size} elements, more than an index "
            f"of type {np.dtype(wide).name} counts. Keep these dims, or enable x64."
        )
    return wide if size - 1 > np.iinfo(np.int32).max else np.int32


def _unflatten(aux: tuple[tuple[int, ...], bool, bool], children: Any) -> BCOO:
    self = object.__new__(BCOO)
    self.shape, self.indices_sorted, self.unique_indices = aux
    self.data, self.indices = children
    if getattr(self.indices, "ndim", 0) >= 2 and getattr(self.data, "ndim", 0) >= self.indices.ndim - 1:
        tail_rank = self.n_sparse + self.n_dense
        if self.n_batch + tail_rank != self.ndim >= tail_rank:  # vmap took a batch dim away, or puts one in front
            batch = np.broadcast_shapes(self.data.shape[: self.n_batch], self.indices.shape[: self.n_batch])
            self.shape = (*batch, *self.shape[self.ndim - tail_rank :])
    return self


register_pytree_node(BCOO, lambda m: ((m.data, m.indices), (m.shape, m.indices_sorted, m.unique_indices)), _unflatten)


# -- the same as functions ---------------------------------------------------------------------------------------------------------


def bcoo_todense(mat: BCOO) -> Array:
    """`mat` as a dense array.

    >>> m = jax.experimental.sparse.BCOO((jnp.array([1, 2]), jnp.array([[0], [3]])), shape=(4,))
    >>> jax.experimental.sparse.bcoo_todense(m)
    Array([1, 0, 0, 2], dtype=int32)
    """
    return mat.todense()


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The elements of `mat`, of each batch, in row-major order of their places.

    >>> m = jax.experimental.sparse.BCOO((jnp.array([1, 2]), jnp.array([[3], [0]])), shape=(4,))
    >>> jax.experimental.sparse.bcoo_sort_indices(m).data
    Array([2, 1], dtype=int32)
    """
    return mat.sort_indices()


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """`mat` with one element per place, in order, zeros included; `nse` is the greatest number of them, which a
    traced function needs.

    >>> m = jax.experimental.sparse.BCOO((jnp.array([1, 2]), jnp.array([[0], [0]])), shape=(4,))
    >>> jax.experimental.sparse.bcoo_sum_duplicates(m).data
    Array([3], dtype=int32)
    """
    return mat.sum_duplicates(nse, remove_zeros=False)


def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCOO:
    """The nonzero elements of the dense array `mat` as a `BCOO`; `nse` says how many to keep, which a traced function
    needs.

    Args:
        n_batch: the leading dims that are batch dims.
        n_dense: the trailing dims that are dense: elements are arrays of these.
        index_dtype: the dtype of the places.

    >>> jax.experimental.sparse.bcoo_fromdense(jnp.array([[0, 2], [3, 0]])).indices
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    return BCOO.fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)


def bcoo_update_layout(
    mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
) -> BCOO:
    """`mat` with `n_batch` batch and `n_dense` dense dims, fewer than now; `on_inefficient` says what to do where
    that takes more memory; see `BCOO.update_layout`.

    >>> m = jax.experimental.sparse.BCOO.fromdense(jnp.array([[0, 2], [3, 4]]), n_batch=1)
    >>> jax.experimental.sparse.bcoo_update_layout(m, n_batch=0).n_batch
    0
    """
    return mat.update_layout(n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """`mat` with its dims in the order `permutation`.

    >>> m = jax.experimental.sparse.BCOO.fromdense(jnp.array([[0, 2], [3, 4]]))
    >>> jax.experimental.sparse.bcoo_transpose(m, permutation=(1, 0)).todense()
    Array([[0, 3],
           [2, 4]], dtype=int32)
    """
    return mat.transpose(permutation)


def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> BCOO:
    """The elements of `mat`, in the order of `dimensions`, in an array of the shape `new_sizes`, of the same size.

    >>> m = jax.experimental.sparse.BCOO.fromdense(jnp.array([[0, 2], [3, 4]]))
    >>> jax.experimental.sparse.bcoo_reshape(m, new_sizes=(4,)).todense()
    Array([0, 2, 3, 4], dtype=int32)
    """
    return (mat if dimensions is None else mat.transpose(dimensions)).reshape(tuple(new_sizes))


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sums of `mat` over `axes`, still sparse.

    >>> m = jax.experimental.sparse.BCOO.fromdense(jnp.array([[0, 2], [3, 4]]))
    >>> jax.experimental.sparse.bcoo_reduce_sum(m, axes=(0,)).todense()
    Array([3, 6], dtype=int32)
    """
    return mat.sum(tuple(axes))


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Array:
    """The elements of the product of `sp_mat` with a dense array `v` that broadcasts to its shape, at the places of `sp_mat`.

    NotImplementedError for batch and dense dims, but for numbers `v`.

    >>> m = jax.experimental.sparse.BCOO.fromdense(jnp.array([[0, 2], [3, 0]]))
    >>> jax.experimental.sparse.bcoo_multiply_dense(m, jnp.array([10, 100]))
    Array([200,  30], dtype=int32)
    """
    if jnp.ndim(v):
        only_sparse_dims("bcoo_multiply_dense", sp_mat.n_dense, sp_mat.n_batch)
    return (sp_mat * v).data


def todense(arr: Any) -> Array:
    """The dense form of the sparse array `arr`; dense arrays as they are.

    >>> jax.experimental.sparse.todense(jax.experimental.sparse.eye(2))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return arr.todense() if isinstance(arr, JAXSparse) else jnp.asarray(arr)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = np.int32,
) -> BCOO:
    """Ones on the k-th diagonal of a matrix [N, M]."""
    columns = N if M is None else M
    start = max(0, -k)
    rows = np.arange(start, max(start, min(N, columns - k)))
    places = np.stack([rows, rows + k], axis=-1).astype(index_dtype)
    ones = jnp.ones(len(rows), float if dtype is None else dtype)
    return BCOO((ones, places), shape=(N, columns), indices_sorted=True, unique_indices=True)


__dir__ = _listing(__name__)
