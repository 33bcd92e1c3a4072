"""Diagonals and triangles: matrices made from them, parts taken out, and the indices where they lie.

In: sizes, offsets, arrays. Out: arrays; masks are never stored larger than one matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype
from shardwise.engine.device_put import place_created
from shardwise.ir import Array, literal
from shardwise.ir.showing import SHOWING
from shardwise.lax import adaptive as lax
from shardwise.numpy import reductions
from shardwise.numpy._promote import (
    Value,
    array,
    as_array,
    astype,
    broadcast_together,
    canonical_axes,
    concrete_int,
    is_inexact,
    is_integer,
    no_out,
    requested_dtype,
    strong,
    value,
    zero_like,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.binary import power
from shardwise.numpy.creation import asarray, ones
from shardwise.numpy.indexing import getitem
from shardwise.numpy.selection import nonzero
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call

_INT32 = np.dtype(np.int32)


def _numbers(n: int, m: int, dim: int, dtype: Any = _INT32) -> Array:
    """Row numbers as a column (`dim` 0), column numbers as a row (1); in programs that are shown of the whole matrix, as JAX's."""
    size = (n, m) if SHOWING.get() else (1, m) if dim else (n, 1)
    return lax.broadcasted_iota(dtype, size, dim)


def _rows_and_columns(n: int, m: int) -> tuple[Array, Array]:
    """Row numbers as a column, column numbers as a row."""
    return _numbers(n, m, 0), _numbers(n, m, 1)


def _offset(k: Any, n: int, m: int) -> Value:
    """The offset of a diagonal of an n x m matrix; beyond its corners all are alike."""
    k = max(-n, min(k, m)) if type(k) is int else k
    v = value("offset", k)
    if v.ndim or not is_integer(v.dtype):
        raise TypeError(f"the offset k of a diagonal must be an integer, got {k!r}.")
    if v.dtype.itemsize >= 4 and v.dtype != _INT32:  # whose upper bits int32 would lose
        v = lax.clamp(np.array(0 if v.dtype.kind == "u" else -n, v.dtype), v, np.array(m, v.dtype))
    return astype(v, _INT32)


def _triangle(n: int, m: int, k: Any) -> Array:
    """bool[n, m]: at and below the k-th diagonal."""
    rows = lax.add(_numbers(n, m, 0), _offset(k, n, m))
    return lax.ge(rows, _numbers(n, m, 1))


def _diagonal_mask(n: int, m: int, k: Any) -> Array:
    """bool[n, m]: on the k-th diagonal."""
    rows, columns = _rows_and_columns(n, m)
    return lax.eq(lax.add(rows, _offset(k, n, m)), columns)


# -- matrices --------------------------------------------------------------------------------------------------


def eye(N: int, M: int | None = None, k: Any = 0, dtype: Any = None, *, device: Any = None) -> Array:
    """An N x M matrix (square unless `M` is given) with ones on the k-th diagonal and zeros elsewhere.

    Args:
        device: where the result lives: a Device or Sharding.

    >>> jnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    result_dtype = requested_dtype("eye", dtype) or default_dtype("f")
    n, m = _sizes("eye", N, M)
    return place_created(as_array(astype(_diagonal_mask(n, m, k), result_dtype)), device)


def _sizes(name: str, N: Any, M: Any) -> tuple[int, int]:
    n = concrete_int(N, f"N of {name}")
    m = n if M is None else concrete_int(M, f"M of {name}")
    if n < 0 or m < 0:
        raise ValueError(f"negative dimensions are not allowed, got {n} and {m}")
    return n, m


def identity(n: int, dtype: Any = None) -> Array:
    """The n x n identity matrix.

    >>> jnp.identity(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: Any = 0, dtype: Any = None) -> Array:
    """An N x M matrix with ones at and below the k-th diagonal and zeros above; float32 (as JAX has it, with x64, too) unless `dtype`
    says otherwise.

    >>> jnp.tri(2)
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    result_dtype = requested_dtype("tri", dtype) or np.dtype(np.float32)
    return as_array(astype(_triangle(*_sizes("tri", N, M), k), result_dtype))


@composed_function(1)
@shown_call("k")
def tril(m: Any, k: Any = 0) -> Array:
    """The matrices `m` (the last two dims) with zeros above the k-th diagonal. ValueError below two dims.

    >>> jnp.tril(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 0],
           [3, 4]], dtype=int32)
    """
    x = _matrices("tril", m)
    return where_(_mask_for(x, _triangle(x.shape[-2], x.shape[-1], concrete_int(k, "k of tril"))), x, zero_like(x))


@composed_function(1)
@shown_call("k")
def triu(m: Any, k: Any = 0) -> Array:
    """The matrices `m` (the last two dims) with zeros below the k-th diagonal. ValueError below two dims.

    >>> jnp.triu(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 2],
           [0, 4]], dtype=int32)
    """
    x = _matrices("triu", m)
    return where_(_mask_for(x, _triangle(x.shape[-2], x.shape[-1], concrete_int(k, "k of triu") - 1)), zero_like(x), x)


def _mask_for(x: Array, mask: Array) -> Array:
    """A mask of matrices with the rank of `x`, and the split of `x` over Explicit axes."""
    if any(x.aval.spec):
        return lax.broadcast_in_dim(mask, x.shape, (x.ndim - 2, x.ndim - 1), out_sharding=x.aval.sharding)
    return lax.expand_dims(mask, range(x.ndim - 2))


def _matrices(name: str, m: Any) -> Array:
    x = array(name, m)
    if x.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D, got shape {x.shape}.")
    return x


@shown_call("N increasing")
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """The powers 0 to N - 1 of the 1-d `x` as columns, the highest first unless `increasing`.

    Raises:
        ValueError: `x` has other than one dim, or `N` is negative.

    >>> jnp.vander(jnp.array([2, 3]), 3)
    Array([[4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    v = array("vander", x)
    if v.ndim != 1:
        raise ValueError(f"x must be a one-dimensional array, got shape {v.shape}.")
    n = v.shape[0] if N is None else concrete_int(N, "N of vander")
    if n < 0:
        raise ValueError(f"N must be nonnegative, got {n}.")
    powers = lax.broadcasted_iota(_INT32, (1, n), 1)
    if not increasing:
        powers = lax.sub(literal(n - 1, _INT32), powers)
    out = power(lax.expand_dims(v, (1,)), astype(powers, v.dtype) if is_inexact(v.dtype) else powers)
    return as_array(astype(out, v.dtype))


# -- parts -----------------------------------------------------------------------------------------------------


@shown_call("offset axis1 axis2")
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonals of `a` in the plane of `axis1` and `axis2`, along a new last dim: [n, m, ...] -> [..., min(n,
    m)].

    Args:
        offset: how far the diagonal stands to the right of the main one, along `axis2`.

    >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    k = concrete_int(offset, "offset of diagonal")
    return strong(_diagonal(_plane_last("diagonal", a, axis1, axis2), k))


def _plane_last(name: str, a: Any, axis1: int, axis2: int) -> Array:
    """`a` with the dims of a plane as its last two."""
    x = array(name, a)
    if x.ndim < 2:
        raise ValueError(f"{name} requires an array of at least two dimensions, got shape {x.shape}.")
    first, second = canonical_axes((axis1, axis2), x.ndim)
    return lax.transpose(x, [*[d for d in range(x.ndim) if d not in (first, second)], first, second])


def _diagonal(x: Array, k: int) -> Array:
    """The k-th diagonals of matrices: [..., n, m] -> [..., count]."""
    n, m = x.shape[-2:]
    count = max(0, min(n, m - k) if k >= 0 else min(n + k, m))
    along = lax.iota(_INT32, count)
    rows = lax.add(along, literal(max(-k, 0), _INT32))
    columns = lax.add(along, literal(max(k, 0), _INT32))
    return strong(getitem(x, (..., rows, columns)))


@shown_call("k", name="_diag")
def diag(v: Any, k: int = 0) -> Array:
    """The k-th diagonal of a matrix, or the matrix with the 1-d `v` on its k-th diagonal. ValueError for other ranks.

    >>> jnp.diag(jnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    >>> jnp.diag(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    x = array("diag", v)
    k = concrete_int(k, "k of diag")
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError(f"diag input must be 1d or 2d, got shape {x.shape}")
    n = x.shape[0] + abs(k)
    column = lax.expand_dims(lax.pad(x, zero_like(x), [(max(-k, 0), max(k, 0), 0)]), (1,))
    return where_(*broadcast_together("diag", _diagonal_mask(n, n, k), column, zero_like(x)))


def diagflat(v: Any, k: int = 0) -> Array:
    """The matrix with the elements of `v`, of any shape, on its k-th diagonal.

    >>> jnp.diagflat(jnp.array([1, 2]), 1)
    Array([[0, 1, 0],
           [0, 0, 2],
           [0, 0, 0]], dtype=int32)
    """
    x = array("diagflat", v)
    return strong(diag(lax.reshape(x, (x.size,)), k))


@shown_call("offset axis1 axis2 dtype out")
def trace(a: Any, offset: Any = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Array:
    """The sums of the diagonals of `a` in the plane of `axis1` and `axis2`: [n, m, ...] -> [...].

    Args:
        offset: how far the diagonal stands to the right of the main one, along `axis2`.
        dtype: the result's.
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    no_out("trace", out)
    result_dtype = requested_dtype("trace", dtype)
    k = concrete_int(offset, "offset of trace")
    x = _plane_last("trace", a, axis1, axis2)
    if x.aval.mesh is None:
        return reductions.sum(_diagonal(x, k), axis=-1, dtype=result_dtype)
    # A diagonal of split dims has no sharding of its own, their sum has.
    diagonal_part = where_(_mask_for(x, _diagonal_mask(x.shape[-2], x.shape[-1], k)), x, zero_like(x))
    return reductions.sum(diagonal_part, axis=(-2, -1), dtype=result_dtype)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Array:
    """`a` with `val` (a scalar, or an array repeated as needed) on its main diagonal. Needs ``inplace=False``.

    ValueError below two dims, and for more dims of unequal sizes. `wrap`: in a tall matrix begin again below the square.

    Raises:
        NotImplementedError: `inplace` is true.

    >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 5.0, inplace=False)
    Array([[5., 0.],
           [0., 5.]], dtype=float32)
    """
    if inplace:
        raise NotImplementedError("fill_diagonal: arrays are immutable; pass inplace=False and use the result.")
    x, fill_values = array("fill_diagonal", a), array("fill_diagonal", val, 1)
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ValueError(f"All dimensions of input must be of equal length, got shape {x.shape}.")
    columns = x.shape[-1]
    step = 1 + sum(columns**i for i in range(1, x.ndim)) if x.ndim > 2 else columns + 1
    end = x.size if wrap or x.ndim > 2 else min(x.size, columns * columns)
    places = np.arange(0, end, step)
    if not places.size:
        return asarray(x)
    flat = lax.reshape(as_array(astype(fill_values, x.dtype)), (fill_values.size,))
    if fill_values.size != 1:
        rounds = -(-len(places) // fill_values.size)
        flat = lax.slice_in_dim(lax.concatenate([flat] * rounds, 0), 0, len(places), axis=0)
    else:
        flat = lax.reshape(flat, ())
    mask = np.zeros(x.size, bool)
    mask[places] = True
    if flat.ndim:
        # Element i of the filling goes to places[i]: spread it with gaps of step - 1 zeros.
        flat = lax.pad(flat, zero_like(flat), [(0, x.size - ((len(places) - 1) * step + 1), step - 1)])
        flat = lax.reshape(flat, x.shape)
    return where_(asarray(mask.reshape(x.shape)), flat, x)


# -- indices ---------------------------------------------------------------------------------------------------


def _index_arrays(found: tuple[np.ndarray[Any, Any], ...]) -> tuple[Array, ...]:
    return tuple(asarray(i.astype(default_dtype("i"))) for i in found)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The row and column indices at and below the k-th diagonal of an n x m matrix.

    >>> jnp.tril_indices(2)
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    n, m = _sizes("tril_indices", n, m)
    return _index_arrays(np.tril_indices(n, concrete_int(k, "k"), m))  # type: ignore[return-value]


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The row and column indices at and above the k-th diagonal of an n x m matrix.

    >>> jnp.triu_indices(2)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    n, m = _sizes("triu_indices", n, m)
    return _index_arrays(np.triu_indices(n, concrete_int(k, "k"), m))  # type: ignore[return-value]


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Array, Array]:
    """`tril_indices` for the shape of the matrix `arr`, on and below the diagonal `k`. ValueError unless it has two
    dims.

    >>> jnp.tril_indices_from(jnp.ones((2, 2)))
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return tril_indices(*_two_sizes("tril_indices_from", arr, k))  # type: ignore[arg-type]


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Array, Array]:
    """`triu_indices` for the shape of the matrix `arr`, on and above the diagonal `k`. ValueError unless it has two
    dims.

    >>> jnp.triu_indices_from(jnp.ones((2, 2)))
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return triu_indices(*_two_sizes("triu_indices_from", arr, k))  # type: ignore[arg-type]


def _two_sizes(name: str, arr: Any, k: int) -> tuple[int, int, int]:
    shape = array(name, arr).shape
    if len(shape) != 2:
        raise ValueError(f"Only 2-D inputs are accepted, got shape {shape}.")
    return shape[0], k, shape[1]


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the main diagonal of an array with `ndim` dims of size `n`.

    Raises:
        ValueError: `n` or `ndim` is negative.

    >>> jnp.diag_indices(3)
    (Array([0, 1, 2], dtype=int32), Array([0, 1, 2], dtype=int32))
    """
    n, ndim = concrete_int(n, "n of diag_indices"), concrete_int(ndim, "ndim of diag_indices")
    if n < 0 or ndim < 0:
        raise ValueError(f"n and ndim of diag_indices must be nonnegative, got {n} and {ndim}.")
    return (lax.iota(default_dtype("i"), n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    """`diag_indices` for the array `arr`. ValueError unless it has two or more dims of one size.

    >>> jnp.diag_indices_from(jnp.ones((2, 2)))
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    shape = array("diag_indices_from", arr).shape
    if len(shape) < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(shape)) != 1:
        raise ValueError(f"All dimensions of input must be of equal length, got shape {shape}.")
    return diag_indices(shape[0], len(shape))


def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None) -> tuple[Array, Array]:
    """The indices of the nonzero elements of ``mask_func(ones((n, n)), k)``, `mask_func` being for example `triu`.

    Args:
        size: the number of indices, needed under transformations.

    >>> jnp.mask_indices(2, jnp.triu)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """

    n = concrete_int(n, "n of mask_indices")
    return nonzero(mask_func(ones((n, n)), k), size=size)  # type: ignore[return-value]


__all__ = [
    "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal", "eye", "fill_diagonal", "identity", "mask_indices",
    "trace", "tri", "tril", "tril_indices", "tril_indices_from", "triu", "triu_indices", "triu_indices_from", "vander",
]  # fmt: skip
