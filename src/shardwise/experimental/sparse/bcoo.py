"""`BCOO`, an array as its nonzero elements and their places, and its functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.base.tree import register_pytree_node
from shardwise.experimental.sparse.formats import JAXSparse, only_sparse_dims
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.ops.rules.precision import canonicalize_precision

__all__ = ["BCOO", "bcoo_dot_general", "bcoo_fromdense", "bcoo_multiply_dense", "bcoo_reduce_sum", "bcoo_reshape",
           "bcoo_sort_indices", "bcoo_sum_duplicates", "bcoo_todense", "bcoo_transpose", "empty", "eye", "todense"]  # fmt: skip


class BCOO(JAXSparse):
    """``BCOO((data, indices), shape=shape)``: `data` of shape (n,) at `indices` of shape (n, ndim).

    Elements at one place add up, and those at places outside of the shape do not count. `indices_sorted` and `unique_indices` say
    what is known of the places.

    Raises:
        NotImplementedError: the elements are arrays, or have batch dims: map a matrix with vmap.
    """

    __slots__ = ("data", "indices", "indices_sorted", "shape", "unique_indices")

    def __init__(
        self, args: tuple[Any, Any], *, shape: Sequence[int], indices_sorted: bool = False, unique_indices: bool = False
    ) -> None:
        self.data, self.indices = map(jnp.asarray, args)
        self.shape = tuple(shape)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        if self.data.ndim != 1 or self.indices.shape != (*self.data.shape, len(self.shape)):
            raise NotImplementedError(
                f"BCOO has elements of shape (n,) at indices of shape (n, {len(self.shape)}), got {self.data.shape} and "
                f"{self.indices.shape}. Use vmap over matrices for batches of them."
            )

    n_sparse = property(lambda self: len(self.shape))

    # -- to and from other forms

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """The nonzero elements of a dense array; `nse` says how many to keep, which a traced function needs."""
        only_sparse_dims("BCOO.fromdense", n_dense, n_batch)
        dense = jnp.asarray(mat)
        places = jnp.nonzero(dense, size=nse, fill_value=None if nse is None else dense.shape)
        data = dense.at[places].get(mode="fill", fill_value=0)
        known = {"indices_sorted": True, "unique_indices": True}
        return cls((data, jnp.stack(places, axis=-1).astype(index_dtype)), shape=dense.shape, **known)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """The elements of a scipy.sparse matrix; indices are int32 unless said otherwise."""
        only_sparse_dims("BCOO.from_scipy_sparse", n_dense, n_batch)
        found = mat.tocoo()
        return cls(
            (found.data, np.stack([found.row, found.col], axis=-1).astype(index_dtype or np.int32)), shape=found.shape
        )

    def todense(self) -> Array:
        """The dense array."""
        places = tuple(self.indices[:, d] for d in range(self.ndim))
        return _sums(jnp.zeros(self.shape, self.dtype), places, self.data)

    def _like(self, data: Any) -> BCOO:
        """Other elements at the same places."""
        known = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices}
        return BCOO((data, self.indices), shape=self.shape, **known)

    def astype(self, dtype: Any) -> BCOO:
        """The elements cast to `dtype`."""
        return self._like(self.data.astype(dtype))

    def block_until_ready(self) -> BCOO:
        """Itself, once it is computed."""
        self.data.block_until_ready()
        self.indices.block_until_ready()
        return self

    # -- layouts

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Its dims in the order `axes`; reversed without them."""
        order = tuple(range(self.ndim))[::-1] if axes is None else tuple(axes)
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"axes {order} are no permutation of the dims of shape {self.shape}.")
        shape = tuple(self.shape[d] for d in order)
        return BCOO((self.data, self.indices[:, order]), shape=shape, unique_indices=self.unique_indices)

    def _inside(self) -> Any:
        """Which elements are at places inside of the shape."""
        return jnp.all(self.indices < np.asarray(self.shape, self.indices.dtype), axis=1)

    def reshape(self, *shape: Any) -> BCOO:
        """The elements in row-major order in an array of another shape of the same size.

        ValueError where numbers of elements of dims that are merged or cut do not fit an index.
        """
        wanted = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in wanted:
            wanted = tuple(self.size // -math.prod(wanted) if n == -1 else n for n in wanted)
        if math.prod(wanted) != self.size:
            raise TypeError(f"cannot reshape array of shape {self.shape} (size {self.size}) into shape {wanted}.")
        inside, columns = self._inside(), []
        for old, new in _matching_dims(self.shape, wanted) if self.size else ():
            size = math.prod(self.shape[d] for d in old)
            flat = jnp.zeros(self.nse, _index_type(size, self.shape, wanted))
            for d in old:
                flat = flat * self.shape[d] + self.indices[:, d].astype(flat.dtype)
            for d in new:
                size //= wanted[d]
                columns.append(flat // size)
                flat = flat % size
        if len(columns) != len(wanted):  # nothing is inside
            columns = [jnp.zeros(self.nse, self.indices.dtype) for _ in wanted]
        places = jnp.stack(columns, axis=-1) if columns else jnp.zeros((self.nse, 0), self.indices.dtype)
        places = jnp.where(inside[:, None], places, np.asarray(wanted, places.dtype))
        if places.dtype.itemsize < self.indices.dtype.itemsize:
            places = places.astype(self.indices.dtype)
        return BCOO(
            (self.data, places), shape=wanted, indices_sorted=self.indices_sorted, unique_indices=self.unique_indices
        )

    def _sorted(self, kept: Any) -> tuple[Any, Any]:
        """The places in row-major order, those that are not `kept` last and outside, and the elements' order."""
        places = jnp.where(kept[:, None], self.indices, np.asarray(self.shape, self.indices.dtype))
        keys = [jnp.logical_not(kept), *(places[:, d] for d in range(self.ndim))]
        _, *columns, order = lax.sort((*keys, jnp.arange(self.nse)), num_keys=len(keys))
        return (jnp.stack(columns, axis=-1) if columns else places), order

    def sort_indices(self) -> BCOO:
        """The elements in row-major order of their places."""
        _, order = self._sorted(self._inside())
        return BCOO(
            (self.data[order], self.indices[order]),
            shape=self.shape,
            indices_sorted=True,
            unique_indices=self.unique_indices,
        )

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """One element per place, in order; `nse` is the greatest number of them, which a traced function needs."""
        kept = self._inside()
        kept = jnp.logical_and(kept, self.data != 0) if remove_zeros else kept
        places, order = self._sorted(kept)
        kept = kept[order]
        new = jnp.concatenate([jnp.ones(min(self.nse, 1), bool), jnp.any(places[1:] != places[:-1], axis=1)])
        new = jnp.logical_and(new, kept)
        if nse is None:
            nse = int(jnp.sum(new))
        at = jnp.where(kept, jnp.cumsum(new) - 1, nse)
        data = _sums(jnp.zeros(nse, self.dtype), at, self.data[order])
        outside = jnp.broadcast_to(jnp.asarray(self.shape, self.indices.dtype), (nse, self.ndim))
        found = outside.at[at].set(places, mode="drop")
        return BCOO((data, found), shape=self.shape, indices_sorted=True, unique_indices=True)

    # -- arithmetic

    def sum(self, axis: int | Sequence[int] | None = None) -> Any:
        """The sums over `axis`, still sparse; over everything (the default) a dense scalar."""
        gone = range(self.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        gone = {d % self.ndim for d in gone}
        left = [d for d in range(self.ndim) if d not in gone]
        data = jnp.where(self._inside(), self.data, 0)
        if not left:
            return jnp.sum(data)
        return BCOO((data, self.indices[:, left]), shape=[self.shape[d] for d in left])

    def __neg__(self) -> BCOO:
        return self._like(-self.data)

    def __mul__(self, other: Any) -> BCOO:
        if isinstance(other, JAXSparse):
            raise NotImplementedError("BCOO * x takes a dense array or a number; use todense() of one of them.")
        dense = jnp.asarray(other)
        if dense.ndim > self.ndim or any(
            n not in (1, m) for n, m in zip(dense.shape[::-1], self.shape[::-1], strict=False)
        ):
            raise ValueError(
                f"an array of shape {dense.shape} does not broadcast to the sparse one's shape {self.shape}."
            )
        lost = self.ndim - dense.ndim
        places = tuple(self.indices[:, d + lost] if n != 1 else 0 for d, n in enumerate(dense.shape))
        return self._like(self.data * dense.at[places].get(mode="clip") if places else self.data * dense)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> BCOO:
        return self * (1 / jnp.asarray(other))

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, BCOO):
            raise NotImplementedError("BCOO + x takes another BCOO; use todense() for others, where the sum is dense.")
        if other.shape != self.shape:
            raise ValueError(
                f"arrays of shapes {self.shape} and {other.shape} are not added; they must have one shape."
            )
        both = jnp.concatenate([self.indices, other.indices.astype(self.indices.dtype)])
        return BCOO((jnp.concatenate([self.data, other.data]), both), shape=self.shape)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __matmul__(self, other: Any) -> Array:
        if self.ndim not in (1, 2) or isinstance(other, JAXSparse):
            raise NotImplementedError("BCOO @ x takes a sparse matrix and a dense array; use todense() for others.")
        if self.ndim == 1:
            return (self.reshape(1, -1) @ other)[..., 0, :] if jnp.ndim(other) > 1 else (self.reshape(1, -1) @ other)[0]
        dense = jnp.asarray(other)
        if dense.ndim == 1:
            return (self @ dense[:, None])[:, 0]
        if dense.shape[-2] != self.shape[1]:
            raise TypeError(f"a {self.shape} matrix cannot be multiplied by an array of shape {dense.shape}.")
        rows = self.data[:, None] * jnp.take(dense, self.indices[:, 1], axis=-2, mode="clip")
        out = jnp.zeros((*dense.shape[:-2], self.shape[0], dense.shape[-1]), rows.dtype)
        return _sums(out, (..., self.indices[:, 0], slice(None)), rows)

    def __rmatmul__(self, other: Any) -> Array:
        if isinstance(other, JAXSparse):
            raise NotImplementedError("x @ BCOO takes a dense array and a sparse matrix; use todense() for others.")
        dense = jnp.asarray(other)
        if dense.ndim == 1:
            return self.T @ dense
        return jnp.swapaxes(self.T @ jnp.swapaxes(dense, -1, -2), -1, -2)


def _sums(zeros: Array, places: Any, values: Any) -> Array:
    """`zeros` with the sums of the values at each place; bools add up by "or". Places outside do not count."""
    at = zeros.at[places]
    return (at.max if zeros.dtype == bool else at.add)(values, mode="drop")


def _matching_dims(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """Runs of dims of two shapes of one size, as short as may be, that hold equally many elements."""
    found, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        start, left, right = (i, j), 1, 1
        while i < len(old) or j < len(new):
            if i < len(old) and (left <= right or j == len(new)):
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
            if left == right and i > start[0] and j > start[1]:
                break
        found.append((range(start[0], i), range(start[1], j)))
    return found


def _index_type(size: int, old: Sequence[int], new: Sequence[int]) -> Any:
    """The type that counts so many elements."""
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
    return self


register_pytree_node(BCOO, lambda m: ((m.data, m.indices), (m.shape, m.indices_sorted, m.unique_indices)), _unflatten)


# -- the same as functions ---------------------------------------------------------------------------------------------------------


def _method(name: str) -> Callable[..., Any]:
    def function(mat: BCOO, *args: Any, **kwargs: Any) -> Any:
        return getattr(mat, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = f"bcoo_{name}"
    function.__doc__ = getattr(BCOO, name).__doc__
    return function


bcoo_todense = _method("todense")
bcoo_sort_indices = _method("sort_indices")


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """One element per place, in order, zeros included; `nse` is the greatest number of them, which a traced function needs."""
    return mat.sum_duplicates(nse, remove_zeros=False)


def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = np.int32
) -> BCOO:
    """The nonzero elements of a dense array; `nse` says how many to keep, which a traced function needs."""
    return BCOO.fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """Its dims in the order `permutation`."""
    return mat.transpose(permutation)


def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None) -> BCOO:
    """The elements, in the order of `dimensions`, in an array of another shape of the same size."""
    return (mat if dimensions is None else mat.transpose(dimensions)).reshape(tuple(new_sizes))


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sums over `axes`, still sparse."""
    return mat.sum(tuple(axes))


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> BCOO:
    """The elementwise product with a dense array that broadcasts to its shape, still sparse."""
    return sp_mat * v


def bcoo_dot_general(
    lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """`lax.dot_general` of a `BCOO` and a dense array, or the other way round: dense.

    Elements are multiplied and added in their type, or in that of `preferred_element_type` if that is wider, whatever the
    `lax.Precision`. NotImplementedError for batch dims and dot algorithms.
    """
    (left, right), batch = dimension_numbers
    if isinstance(canonicalize_precision(precision), (lax.DotAlgorithm, lax.DotAlgorithmPreset)):
        raise NotImplementedError(
            f"bcoo_dot_general has no dot algorithms, got precision={precision}; leave it out, or use todense()."
        )
    if any(map(len, batch)):
        raise NotImplementedError("bcoo_dot_general with batch dims; map it with vmap, or use todense().")
    if isinstance(rhs, BCOO):
        if isinstance(lhs, BCOO):
            raise NotImplementedError("bcoo_dot_general of two BCOO; use todense() of one of them.")
        swapped = bcoo_dot_general(
            rhs,
            lhs,
            dimension_numbers=((right, left), ((), ())),
            precision=precision,
            preferred_element_type=preferred_element_type,
        )
        kept = rhs.ndim - len(right)
        return jnp.moveaxis(swapped, range(kept), range(swapped.ndim - kept, swapped.ndim))
    dense = jnp.asarray(rhs)
    if preferred_element_type is not None:
        lhs = lhs.astype(jnp.promote_types(lhs.dtype, preferred_element_type))
    free = [d for d in range(lhs.ndim) if d not in left]
    others = [d for d in range(dense.ndim) if d not in right]
    sizes = [lhs.shape[d] for d in free]
    matrix = lhs.transpose((*free, *left)).reshape(math.prod(sizes), math.prod(lhs.shape[d] for d in left))
    columns = lax.reshape(
        lax.transpose(dense, (*right, *others)), (matrix.shape[1], math.prod(dense.shape[d] for d in others))
    )
    out = jnp.reshape(matrix @ columns, (*sizes, *(dense.shape[d] for d in others)))
    return out if preferred_element_type is None else out.astype(preferred_element_type)


def todense(arr: Any) -> Array:
    """The dense form of a `BCOO`; dense arrays as they are."""
    return arr.todense() if isinstance(arr, BCOO) else jnp.asarray(arr)


def empty(shape: Sequence[int], dtype: Any = None, index_dtype: Any = np.int32, sparse_format: str = "bcoo") -> BCOO:
    """Zeros: an array of that shape without elements."""
    _only_bcoo(sparse_format)
    places = jnp.zeros((0, len(tuple(shape))), index_dtype)
    return BCOO(
        (jnp.zeros(0, float if dtype is None else dtype), places), shape=shape, indices_sorted=True, unique_indices=True
    )


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = np.int32,
    sparse_format: str = "bcoo",
) -> BCOO:
    """Ones on the k-th diagonal of a matrix [N, M]."""
    _only_bcoo(sparse_format)
    columns = N if M is None else M
    start = max(0, -k)
    rows = np.arange(start, max(start, min(N, columns - k)))
    places = np.stack([rows, rows + k], axis=-1).astype(index_dtype)
    ones = jnp.ones(len(rows), float if dtype is None else dtype)
    return BCOO((ones, places), shape=(N, columns), indices_sorted=True, unique_indices=True)


def _only_bcoo(sparse_format: str) -> None:
    if sparse_format != "bcoo":
        raise NotImplementedError(f"sparse_format {sparse_format!r} is not here; use 'bcoo'.")
