"""Structured matrices: made from vectors of entries or from blocks, or constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import canonicalize, check_requested, default_dtype, issubdtype
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    array,
    broadcast_to_shape,
    convert,
    is_complex,
    promote_dtypes,
    promote_inexact,
    strong,
)
from shardwise.numpy.indexing import take
from shardwise.ops.rules.convert import as_array
from shardwise.transforms.interpreters.vmap import vmap

__all__ = ["block_diag", "circulant", "companion", "convolution_matrix", "dft", "fiedler", "fiedler_companion", "hadamard", "hankel",
           "helmert", "hilbert", "invhilbert", "invpascal", "leslie", "pascal", "toeplitz"]  # fmt: skip


def _vectors(name: str, x: Any) -> Array:
    """`x` with at least one dim."""
    value = array(name, x)
    return lax.reshape(value, (1,)) if not value.ndim else value


def _by_index(values: Array, positions: np.ndarray[Any, Any]) -> Array:
    """Matrices of elements of the last dim: entry (i, j) is ``values[..., positions[i, j]]``."""
    flat = positions.reshape(-1, 1).astype(np.int32)
    batch = tuple(range(values.ndim - 1))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=batch, collapsed_slice_dims=(values.ndim - 1,), start_index_map=(values.ndim - 1,)
    )
    out = lax.gather(values, flat, numbers, slice_sizes=(*values.shape[:-1], 1))
    return lax.reshape(out, (*values.shape[:-1], *positions.shape))


def toeplitz(c: Any, r: Any = None) -> Array:
    """Matrices that are constant along diagonals, with first column c and first row r (default: the conjugate of c).

    >>> from shardwise.scipy import linalg
    >>> linalg.toeplitz(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 1, 2],
           [3, 2, 1]], dtype=int32)
    """
    column = _vectors("toeplitz", c)
    row = _vectors("toeplitz", r) if r is not None else lax.conj(column) if is_complex(column.dtype) else column
    column, row = map(strong, promote_dtypes(column, row))
    m, n = column.shape[-1], row.shape[-1]
    batch = np.broadcast_shapes(column.shape[:-1], row.shape[:-1])
    if not m or not n:
        return lax.full((*batch, m, n), 0, column.dtype)
    # The column upwards, then the row without its first element: entry (i, j) lies j - i from the column's first.
    parts = [
        lax.rev(broadcast_to_shape(column, (*batch, m)), (len(batch),)),
        lax.slice_in_dim(broadcast_to_shape(row, (*batch, n)), 1, n, axis=-1),
    ]
    return _by_index(strong(lax.concatenate(parts, len(batch))), m - 1 - np.arange(m)[:, None] + np.arange(n))


def hankel(c: Any, r: Any = None) -> Array:
    """Matrices that are constant along anti-diagonals, with first column c and last row r (default: zeros).

    Raises:
        ValueError: `c` or `r` is a scalar.

    >>> from shardwise.scipy import linalg
    >>> linalg.hankel(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 3, 0],
           [3, 0, 0]], dtype=int32)
    """
    column = array("hankel", c)
    row = lax.full_like(column, 0) if r is None else array("hankel", r)
    for name, x in (("c", column), ("r", row)):
        if not x.ndim:
            raise ValueError(f"hankel: {name} must be at least 1-dimensional, got a scalar.")
    column, row = map(strong, promote_dtypes(column, row))
    m, n = column.shape[-1], row.shape[-1]
    batch = np.broadcast_shapes(column.shape[:-1], row.shape[:-1])
    parts = [
        broadcast_to_shape(column, (*batch, m)),
        lax.slice_in_dim(broadcast_to_shape(row, (*batch, n)), min(1, n), n, axis=-1),
    ]
    return _by_index(lax.concatenate(parts, len(batch)), np.arange(m)[:, None] + np.arange(n))


def circulant(c: Any) -> Array:
    """Matrices whose columns are c turned further and further.

    >>> from shardwise.scipy import linalg
    >>> linalg.circulant(jnp.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int32)
    """
    x = _vectors("circulant", c)
    n = x.shape[-1]
    return _by_index(x, (np.arange(n)[:, None] - np.arange(n)) % max(n, 1))


def leslie(f: Any, s: Any) -> Array:
    """Matrices with first row f and s below the diagonal. ValueError unless f has one entry more than s, at least 2.

    >>> from shardwise.scipy import linalg
    >>> linalg.leslie(jnp.array([0.1, 2.0]), jnp.array([0.5]))
    Array([[0.1, 2. ],
           [0.5, 0. ]], dtype=float32)
    """
    first, below = _vectors("leslie", f), _vectors("leslie", s)
    n = first.shape[-1]
    if n < 2 or below.shape[-1] != n - 1:
        raise ValueError(
            f"leslie takes f with at least 2 entries and s with one less along the last axis, got shapes {first.shape} and "
            f"{below.shape}."
        )
    first, below = promote_dtypes(first, below)  # type: ignore[assignment]
    batch = np.broadcast_shapes(first.shape[:-1], below.shape[:-1])
    first, below = (broadcast_to_shape(x, (*batch, x.shape[-1])) for x in (first, below))
    return lax.add(_row(first, n), _below(below, n))


def companion(a: Any) -> Array:
    """Companion matrices of the polynomials `a`, f[..., n] -> f[..., n-1, n-1], highest coefficient first. ValueError
    for fewer than 2 coefficients.

    >>> from shardwise.scipy import linalg
    >>> linalg.companion(jnp.array([1.0, -3.0, 2.0]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float32)
    """
    (x,) = promote_inexact(_vectors("companion", a))
    n = x.shape[-1] - 1
    if n < 1:
        raise ValueError(f"The length of `a` along the last axis must be at least 2; got shape {x.shape}.")
    head = broadcast_to_shape(lax.slice_in_dim(x, 0, 1, axis=-1), (*x.shape[:-1], n))
    first = lax.neg(lax.div(lax.slice_in_dim(x, 1, n + 1, axis=-1), head))
    ones = lax.full((*x.shape[:-1], n - 1), 1, x.dtype)
    return lax.add(_row(first, n), _below(ones, n))


def _row(x: Any, n: int) -> Array:
    """Square matrices with first row x, zero elsewhere."""
    return lax.pad(
        lax.expand_dims(x, (x.ndim - 1,)), literal(0, x.dtype), [*[(0, 0, 0)] * (x.ndim - 1), (0, n - 1, 0), (0, 0, 0)]
    )


def _below(x: Any, n: int) -> Array:
    """Square matrices with x below the diagonal, zero elsewhere."""
    shape = (*x.shape, n - 1)
    inner = lax.mul(
        lax.broadcast_in_dim(x, shape, range(x.ndim)), broadcast_to_shape(as_array(np.eye(n - 1, dtype=x.dtype)), shape)
    )
    return lax.pad(inner, literal(0, x.dtype), [*[(0, 0, 0)] * (x.ndim - 1), (1, 0, 0), (0, 1, 0)])


def fiedler(a: Any) -> Array:
    """Matrices of the distances of the entries of a from each other.

    >>> from shardwise.scipy import linalg
    >>> linalg.fiedler(jnp.array([1, 4, 6]))
    Array([[0, 3, 5],
           [3, 0, 2],
           [5, 2, 0]], dtype=int32)
    """
    x = _vectors("fiedler", a)
    n = x.shape[-1]
    shape = (*x.shape, n)
    batch = tuple(range(x.ndim - 1))
    return lax.abs(
        lax.sub(lax.broadcast_in_dim(x, shape, (*batch, x.ndim - 1)), lax.broadcast_in_dim(x, shape, (*batch, x.ndim)))
    )


def fiedler_companion(a: Any) -> Array:
    """Five-diagonal matrices whose eigenvalues are the roots of the polynomials a [..., n], highest power first: [..., n-1, n-1].

    Raises:
        ValueError: `a` has no coefficients.

    >>> from shardwise.scipy import linalg
    >>> linalg.fiedler_companion(jnp.array([1.0, -3.0, 2.0]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float32)
    """
    x = as_array(promote_inexact(_vectors("fiedler_companion", a))[0])
    n = x.shape[-1] - 1
    if n < 0:
        raise ValueError(
            f"fiedler_companion requires the last axis of 'a' to have nonzero length, got shape {x.shape}."
        )
    # An entry is 0, 1, or minus a coefficient over the first one: `chosen` says which, the last being none.
    chosen, ones = np.full((n, n), n + 1), np.zeros((n, n), bool)
    for i in range(n):
        if i % 2:
            ones[i, max(i - 2, 0)] = True
            continue
        chosen[i, max(i - 1, 0)] = i + 1
        chosen[i, i + 1 : i + 2] = i + 2
        ones[i, i + 2 : i + 3] = True
    first = lax.slice_in_dim(x, 0, 1, axis=-1)
    over = lax.neg(lax.div(x, lax.broadcast_in_dim(first, x.shape, range(x.ndim))))
    padded_values = lax.concatenate([over, lax.full_like(first, 0)], x.ndim - 1)
    entries = lax.reshape(take(padded_values, chosen.reshape(-1), axis=-1), (*x.shape[:-1], n, n))
    result = lax.add(entries, as_array(np.broadcast_to(ones.astype(x.dtype), entries.shape)))
    return as_array(convert(result, x.dtype, x.weak_type and not n))


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Array:
    """The matrix that convolves vectors of n entries with a, as ``numpy.convolve(a, v, mode)`` does; f[*batch, m] gives one each.

    Raises:
        ValueError: `n` is not positive, `a` is empty or a scalar, or `mode` is not 'full', 'same' or 'valid'.

    >>> from shardwise.scipy import linalg
    >>> linalg.convolution_matrix(jnp.array([1, 2]), 2)
    Array([[1, 0],
           [2, 1],
           [0, 2]], dtype=int32)
    """
    if n <= 0:
        raise ValueError(f"n must be a positive integer, got {n}.")
    x = array("convolution_matrix", a)
    if not x.ndim or not x.shape[-1]:
        raise ValueError(f"convolution_matrix takes vectors that are not empty, got shape {x.shape}.")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"'mode' argument must be one of ('full', 'valid', 'same'), got {mode!r}.")
    if x.ndim > 1:
        return vmap(lambda row: convolution_matrix(row, n, mode))(x)
    m = x.shape[0]
    zeros = lax.full((n - 1,), 0, x.dtype)
    column = lax.concatenate([x, zeros], 0)
    row = lax.concatenate([lax.slice_in_dim(x, 0, 1), zeros], 0)
    full = toeplitz(column, row)
    if mode == "full":
        return full
    size = max(m, n) if mode == "same" else max(m, n) - min(m, n) + 1
    start = (full.shape[0] - size) // 2 if mode == "same" else min(m, n) - 1
    return lax.slice_in_dim(full, start, start + size, axis=0)


# -- constants -------------------------------------------------------------------------------------------------------------------


def _constant(value: np.ndarray[Any, Any], dtype: Any = None) -> Array:
    return as_array(value.astype(default_dtype("f") if dtype is None else dtype))


def hilbert(n: int) -> Array:
    """The matrix f[n, n] (`n`) with entries 1 / (i + j + 1).

    >>> from shardwise.scipy import linalg
    >>> linalg.hilbert(2).round(3)
    Array([[1.   , 0.5  ],
           [0.5  , 0.333]], dtype=float32)
    """
    i = np.arange(n)
    return _constant(1 / (i[:, None] + i + 1))


def invhilbert(n: int) -> Array:
    """The inverse of `hilbert` of size `n`.

    >>> from shardwise.scipy import linalg
    >>> linalg.invhilbert(2)
    Array([[ 4., -6.],
           [-6., 12.]], dtype=float32)
    """
    from scipy.linalg import invhilbert as exact

    return _constant(np.asarray(exact(n)))


def _binomials(n: int) -> np.ndarray[Any, Any]:
    out = np.zeros((n, n))
    for i in range(n):
        out[i, 0] = 1
        out[i, 1 : i + 1] = out[i - 1, :i] + out[i - 1, 1 : i + 1] if i else 0
    return out


def _of_kind(name: str, lower: np.ndarray[Any, Any], kind: str | None, product: Any) -> np.ndarray[Any, Any]:
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ValueError(f"{name}: Expected kind to be one of ['symmetric', 'lower', 'upper']; got {kind}")
    return lower if kind == "lower" else lower.T if kind == "upper" else product(lower)


def pascal(n: int, kind: str | None = None) -> Array:
    """Pascal's triangle f[n, n] (`n`) as a 'lower', 'upper' or (default) 'symmetric' matrix, by `kind`.

    >>> from shardwise.scipy import linalg
    >>> linalg.pascal(3)
    Array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    return _constant(_of_kind("pascal", _binomials(n), kind, lambda x: x @ x.T), np.float32)


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of `pascal` of size `n` and that `kind`.

    >>> from shardwise.scipy import linalg
    >>> linalg.invpascal(2)
    Array([[ 2., -1.],
           [-1.,  1.]], dtype=float32)
    """
    i = np.arange(n)
    signs = (-1.0) ** (i[:, None] + i)
    return _constant(_of_kind("invpascal", _binomials(n) * signs, kind, lambda x: x.T @ x))


def helmert(n: int, full: bool = False) -> Array:
    """Helmert contrasts: n - 1 orthonormal rows that sum to 0, and with `full` the constant row in front.

    Raises:
        ValueError: `n` is below 1.

    >>> from shardwise.scipy import linalg
    >>> jnp.abs(linalg.helmert(2)).round(3)
    Array([[0.707, 0.707]], dtype=float32)
    """
    if n < 1:
        raise ValueError(f"n must be a positive integer; got {n}.")
    i, j = np.arange(n - 1)[:, None], np.arange(n)
    k = i + 1.0
    rows = np.where(j <= i, 1 / np.sqrt(k * (k + 1)), np.where(j == k, -k / np.sqrt(k * (k + 1)), 0))
    return _constant(np.concatenate([np.full((1, n), 1 / np.sqrt(n)), rows]) if full else rows)


def hadamard(n: int, dtype: Any = int) -> Array:
    """The Hadamard matrix of size n, a power of 2, with entries 1 and -1.

    Raises:
        ValueError: `n` is no power of 2.

    >>> from shardwise.scipy import linalg
    >>> linalg.hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be a positive power of 2; got {n}.")
    out = np.ones((1, 1))
    while out.shape[0] < n:
        out = np.block([[out, out], [out, -out]])
    return _constant(out, check_requested(dtype, "hadamard"))


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Array:
    """The matrix of the discrete Fourier transform, divided by n or its root (`scale` 'n' or 'sqrtn'), if wanted.

    Raises:
        ValueError: `scale` is another word, or `dtype` not complex.

    >>> from shardwise.scipy import linalg
    >>> linalg.dft(2).real.round(3)
    Array([[ 1.,  1.],
           [ 1., -1.]], dtype=float32)
    """
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.")
    result_dtype = default_dtype("c") if dtype is None else check_requested(dtype, "dft")
    if not issubdtype(result_dtype, np.complexfloating):
        raise ValueError(f"dtype must be a complex floating-point type; got {result_dtype}.")
    i = np.arange(n)
    out = np.exp(-2j * np.pi * (i[:, None] * i % max(n, 1)) / max(n, 1))
    return _constant(out / {None: 1, "sqrtn": np.sqrt(max(n, 1)), "n": max(n, 1)}[scale], canonicalize(result_dtype))


def block_diag(*arrs: Any) -> Array:
    """The arrays `arrs`, of at most two dims, as blocks on the diagonal of one matrix.

    Raises:
        ValueError: an array has more dims.

    >>> from shardwise.scipy import linalg
    >>> linalg.block_diag(jnp.array([[1, 2]]), jnp.array([[3]]))
    Array([[1, 2, 0],
           [0, 0, 3]], dtype=int32)
    """
    values = [array("block_diag", x, i) for i, x in enumerate(arrs)] or [array("block_diag", np.zeros((1, 0), "f"))]
    for i, x in enumerate(values):
        if x.ndim > 2:
            raise ValueError(
                f"Arguments to block_diag must have at most 2 dimensions, got shape {x.shape} at argument {i}."
            )
    blocks = [lax.reshape(x, (1,) * (2 - x.ndim) + x.shape) for x in promote_dtypes(*values)]
    width, column, rows = sum(b.shape[1] for b in blocks), 0, []
    keeps_weak = len(blocks) == 1 and config.dialect.functions.block_diag_of_one_is_weak
    for b in blocks:
        fill = literal(0, b.dtype, b.aval.weak_type and keeps_weak)
        rows.append(lax.pad(b, fill, [(0, 0, 0), (column, width - b.shape[1] - column, 0)]))
        column += b.shape[1]
    return lax.concatenate(rows, 0)
