"""`shardwise.numpy.linalg`: linear algebra with NumPy's names, on matrices in the last two dims."""

from __future__ import annotations

import operator
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, broadcast_to_shape, canonical_axis, is_complex, strong
from shardwise.numpy.diagonals import diagonal as _diagonal
from shardwise.numpy.diagonals import eye
from shardwise.numpy.diagonals import trace as _trace
from shardwise.numpy.matrix_products import cross as cross
from shardwise.numpy.matrix_products import matmul as matmul
from shardwise.numpy.matrix_products import multi_dot as multi_dot
from shardwise.numpy.matrix_products import outer as outer
from shardwise.numpy.matrix_products import tensordot as tensordot
from shardwise.numpy.matrix_products import vecdot as vecdot
from shardwise.numpy.norms import matrix_norm as matrix_norm
from shardwise.numpy.norms import norm as norm
from shardwise.numpy.norms import not_a_number
from shardwise.numpy.norms import vector_norm as vector_norm
from shardwise.numpy.reductions import sum as total
from shardwise.numpy.singular_values import inexact as _inexact
from shardwise.numpy.singular_values import lstsq as lstsq
from shardwise.numpy.singular_values import matrix_rank as matrix_rank
from shardwise.numpy.singular_values import pinv as pinv
from shardwise.numpy.singular_values import svd as svd
from shardwise.numpy.singular_values import svdvals as svdvals
from shardwise.ops.linalg import decompositions as ops
from shardwise.ops.linalg import spectral
from shardwise.ops.linalg.reflectors import geqrf
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
           "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr",
           "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot",
           "vector_norm"]  # fmt: skip


class EighResult(NamedTuple):
    """Ascending eigenvalues, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """Eigenvalues in no order, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """An orthonormal and an upper triangular factor."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the magnitude of a determinant."""

    sign: Array
    logabsdet: Array


def _matrices(name: str, a: Any) -> Array:
    """`a` as floating square matrices; ValueError unless they are."""
    (x,) = _inexact(name, a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"Argument to {name} must have shape [..., n, n], got {x.shape}.")
    return x


# -- decompositions ----------------------------------------------------------------------------------------------------------


@shown_call("upper symmetrize_input")
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """The lower (or `upper`) triangular factor of the Hermitian positive definite matrices `a`, [..., n, n]; NaN
    where they are not definite.

    With `symmetrize_input`, `a` is replaced by the mean of itself and its conjugate transpose first. ValueError
    unless square.

    >>> jnp.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 3.0]])).round(3)
    Array([[2.   , 0.   ],
           [1.   , 1.414]], dtype=float32)
    """
    (x,) = _inexact("cholesky", a)
    factor = ops.cholesky(x, symmetrize_input=symmetrize_input)
    return ops.adjoint(factor) if upper else factor


def eig(a: Any) -> EigResult:
    """Eigenvalues and right eigenvectors of the general matrices `a`: [..., n, n] -> complex [..., n] and [..., n,
    n]. ValueError unless square.

    >>> jnp.linalg.eig(jnp.array([[2.0, 0.0], [0.0, 3.0]])).eigenvalues
    Array([2.+0.j, 3.+0.j], dtype=complex64)
    """
    (x,) = _inexact("eig", a)
    return EigResult(*spectral.eig(x, compute_left_eigenvectors=False))


@shown_call()
def eigvals(a: Any) -> Array:
    """Eigenvalues of the general matrices `a`: [..., n, n] -> complex [..., n]. ValueError unless square.

    >>> jnp.linalg.eigvals(jnp.array([[0.0, -1.0], [1.0, 0.0]])).round(4)
    Array([0.+1.j, 0.-1.j], dtype=complex64)
    """
    (x,) = _inexact("eigvals", a)
    return spectral.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


@shown_call("UPLO symmetrize_input")
def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Ascending eigenvalues and eigenvectors of the Hermitian matrices `a`: [..., n, n] -> real [..., n] and [..., n,
    n].

    Without `symmetrize_input` only the lower (`UPLO` 'L', the default) or upper ('U') triangle counts.

    Raises:
        ValueError: `a` is not square, or `UPLO` is another value.

    >>> jnp.linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.round(4)
    Array([1., 3.], dtype=float32)
    """
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    (x,) = _inexact("eigh", a)
    vectors, w = spectral.eigh(x, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, vectors)


@shown_call("UPLO symmetrize_input")
def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Ascending eigenvalues of the Hermitian matrices `a`: [..., n, n] -> real [..., n]. `UPLO` and
    `symmetrize_input` as for `eigh`.

    >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 1.0], [1.0, 2.0]])).round(4)
    Array([1., 3.], dtype=float32)
    """
    return eigh(a, UPLO, symmetrize_input=symmetrize_input).eigenvalues


@shown_call("mode")
def qr(a: Any, mode: str = "reduced") -> Any:
    """q and r with a = q r, for `a` of [..., m, n], by `mode`: 'reduced' (q has min(m, n) columns), 'complete' (q is
    square), 'r' (r alone).

    'raw' returns the form that `lax.linalg.ormqr` takes: the transposed packed factors and the factors of their
    reflectors, without derivative. ValueError for other modes.

    >>> q, r = jnp.linalg.qr(jnp.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> jnp.allclose(q @ r, jnp.array([[3.0, 1.0], [4.0, 2.0]]), atol=1e-5)
    Array(True, dtype=bool)
    """
    (x,) = _inexact("qr", a)
    if mode == "raw":
        packed_factors, taus = geqrf(x)
        return QRResult(matrix_transpose(packed_factors), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'; expected 'reduced', 'complete', 'r' or 'raw'.")
    q, r = ops.qr(x, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


# -- systems and inverses ------------------------------------------------------------------------------------------------------


@shown_call()
def solve(a: Any, b: Any) -> Array:
    """x with a x = b: a [..., m, m] with b [m] or [..., m, k], batch dims broadcasting. NaN where a is singular.

    ValueError for shapes that do not fit.

    >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 8.0])).round(3)
    Array([1., 2.], dtype=float32)
    """
    x, y = _inexact("solve", a, b)
    if x.ndim < 2:
        raise ValueError(f"left hand array must be at least two dimensional; got a.shape={x.shape}")
    if y.ndim > 1 and x.ndim == y.ndim + 1 and x.shape[-1] == y.shape[-1] != y.shape[-2]:
        raise ValueError(
            f"Invalid shapes for solve: {x.shape}, {y.shape}. For vectors in a batch use "
            "solve(a, b[..., None]).squeeze(-1)."
        )
    vector = y.ndim == 1
    if vector:
        y = lax.expand_dims(y, (1,))
    if y.ndim < 1 or x.shape[-1] != x.shape[-2] or y.shape[-2] != x.shape[-1]:
        raise ValueError(f"solve takes a [..., m, m] and b [m] or [..., m, k], got shapes {x.shape} and {np.shape(b)}.")
    rank = max(x.ndim, y.ndim)
    x = lax.expand_dims(x, range(rank - x.ndim)) if x.ndim < rank else x
    y = lax.expand_dims(y, range(rank - y.ndim)) if y.ndim < rank else y
    out = ops.solve(x, y)
    return lax.squeeze(out, (out.ndim - 1,)) if vector else out


@shown_call()
def inv(a: Any) -> Array:
    """The inverses of the matrices `a`, [..., n, n]; NaN where singular. ValueError unless square.

    >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    x = _matrices("inv", a)
    return solve(x, eye(x.shape[-1], dtype=x.dtype))


def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse of `a` as a map from its last dims to its first `ind` ones. ValueError unless both count equally much.

    >>> jnp.linalg.tensorinv(jnp.eye(4).reshape(2, 2, 2, 2)).shape
    (2, 2, 2, 2)
    """
    x = array("tensorinv", a)
    ind = operator.index(ind)
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={ind}")
    front, back = x.shape[:ind], x.shape[ind:]
    if prod(front) != prod(back):
        raise ValueError(
            "tensorinv is only possible when the product of the first `ind` dimensions equals that of the remaining "
            f"dimensions. got arr.shape={x.shape} with ind={ind}."
        )
    return lax.reshape(inv(lax.reshape(x, (prod(front), prod(back)))), (*back, *front))


def tensorsolve(a: Any, b: Any, axes: tuple[int, ...] | None = None) -> Array:
    """x with ``tensordot(a, x, x.ndim) == b``, the dims `axes` of `a` moved to its end first.

    Raises:
        ValueError: the shapes of `a` and `b` do not fit.

    >>> jnp.linalg.tensorsolve(jnp.eye(4).reshape(2, 2, 2, 2), jnp.ones((2, 2))).round(4)
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    x, y = array("tensorsolve", a, 0), array("tensorsolve", b, 1)
    if axes is not None:
        order = list(range(x.ndim))
        for axis in axes:
            axis = canonical_axis(axis, x.ndim)
            order.remove(axis)
            order.append(axis)
        x = lax.transpose(x, order)
    out = x.shape[y.ndim :]
    if x.shape[: y.ndim] != y.shape:
        raise ValueError(
            "After moving axes to end, leading shape of a must match shape of b. got "
            f"a.shape={x.shape}, b.shape={y.shape}"
        )
    if y.size != prod(out):
        raise ValueError(
            f"Input arrays must have prod(a.shape[:b.ndim]) == prod(a.shape[b.ndim:]); got a.shape={x.shape}, "
            f"b.ndim={y.ndim}."
        )
    flat = solve(lax.reshape(x, (y.size, prod(out))), lax.reshape(y, (y.size,)))
    return lax.reshape(flat, out)


# -- numbers that describe matrices ------------------------------------------------------------------------------------------------


@shown_call()
def det(a: Any) -> Array:
    """The determinants of the matrices `a`: [..., n, n] -> [...]. ValueError unless square.

    >>> jnp.linalg.det(jnp.array([[4.0, 2.0], [2.0, 3.0]])).round(3)
    Array(8., dtype=float32)
    """
    return ops.det(_matrices("det", a))


@shown_call("method")
def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """Sign and logarithm of the magnitude of the determinants of `a`, [..., n, n] -> [...] and [...]: 0 and -inf
    where singular. ValueError unless square.

    `method`: 'lu' (default) or 'qr', the factors that they are read from.

    >>> jnp.linalg.slogdet(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    SlogdetResult(sign=Array(-1., dtype=float32), logabsdet=Array(0., dtype=float32))
    """
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (None) and 'qr'.")
    x = _matrices("slogdet", a)
    if method != "qr":
        return SlogdetResult(*map(strong, ops.slogdet(x)))
    # The reflections of QR give signs, its diagonal the magnitude.
    q, r = ops.qr(x)
    diagonal_r = _diagonal(r, 0, -2, -1)
    size = lax.abs(diagonal_r)
    logs = total(lax.log(size), axis=-1)
    signs = lax.mul(ops.det(q), lax.reduce_prod(lax.sign(diagonal_r), (diagonal_r.ndim - 1,)))
    return SlogdetResult(strong(signs if is_complex(x.dtype) else lax.sign(signs)), strong(logs))


@shown_call("p")
def cond(x: Any, p: Any = None) -> Array:
    """The condition number: by default the largest singular value over the smallest; else norm(x, p) norm(inv(x), p).

    Raises:
        ValueError: `x` has fewer than two dims or no elements, or is not square where `p` needs an inverse.

    >>> jnp.linalg.cond(jnp.array([[10.0, 0.0], [0.0, 1.0]]))
    Array(10., dtype=float32)
    """
    (value,) = _inexact("cond", x)
    if value.ndim < 2:
        raise ValueError(f"jnp.linalg.cond: input array must be at least 2D; got arr.shape={value.shape}")
    if not value.shape[-1] * value.shape[-2]:
        raise ValueError(f"jnp.linalg.cond: input array must not be empty; got arr.shape={value.shape}")
    if p in (None, 2, -2):
        s = svdvals(value)
        last = s.ndim - 1
        first, least = (lax.squeeze(lax.slice_in_dim(s, i, i + 1, axis=last), (last,)) for i in (0, s.shape[-1] - 1))
        if p != -2:
            return lax.div(first, least)
        ratio = lax.div(least, first)
    else:
        if value.shape[-1] != value.shape[-2]:
            raise ValueError(f"jnp.linalg.cond: for p={p!r}, array must be square; got arr.shape={value.shape}")
        ratio = lax.mul(norm(value, p, (-2, -1)), norm(inv(value), p, (-2, -1)))
    # A singular matrix gives NaN, which here means infinity, unless the matrix had NaNs itself.
    singular = lax.bitwise_and(lax.ne(ratio, ratio), lax.bitwise_not(not_a_number(value, (-2, -1))))
    return lax.select(singular, lax.full_like(ratio, inf), ratio)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of `x` in its last two dims, `offset` to the right of the main one: [..., n, m] ->
    [...].

    >>> jnp.linalg.trace(jnp.array([[4.0, 2.0], [2.0, 3.0]]))
    Array(7., dtype=float32)
    """
    return _trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """The diagonals of `x` in its last two dims, `offset` to the right of the main one: [..., n, m] -> [..., k].

    >>> jnp.linalg.diagonal(jnp.array([[4.0, 2.0], [2.0, 3.0]]))
    Array([4., 3.], dtype=float32)
    """
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1)


# -- transposes and powers ---------------------------------------------------------------------------------------------------------


def matrix_transpose(x: Any, /) -> Array:
    """`x` with its last two dims swapped. ValueError for fewer dims.

    >>> jnp.linalg.matrix_transpose(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    value = array("jnp.linalg.matrix_transpose", x)
    if value.ndim < 2:
        raise ValueError(f"matrix_transpose requires at least 2 dimensions; got ndim={value.ndim}")
    return lax.transpose(value, (*range(value.ndim - 2), value.ndim - 1, value.ndim - 2))


@shown_call("n")
def matrix_power(a: Any, n: int) -> Array:
    """`a` multiplied with itself n times; its inverse for negative n, the identity for 0. TypeError unless square.

    >>> jnp.linalg.matrix_power(jnp.array([[1.0, 1.0], [0.0, 1.0]]), 3)
    Array([[1., 3.],
           [0., 1.]], dtype=float32)
    """
    x = array("jnp.linalg.matrix_power", a)
    if x.ndim < 2:
        raise TypeError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    if x.shape[-1] != x.shape[-2]:
        raise TypeError(f"Last 2 dimensions of the array must be square, got shape {x.shape}")
    try:
        n = operator.index(n)
    except TypeError as error:
        raise TypeError(f"exponent must be an integer, got {n}") from error
    if n == 0:
        return broadcast_to_shape(eye(x.shape[-1], dtype=x.dtype), x.shape)
    if n < 0:
        x, n = inv(x), -n
    power, result = x, None
    while n:  # by squaring, over the bits of n
        if n & 1:
            result = power if result is None else matmul(result, power)
        n >>= 1
        if n:
            power = matmul(power, power)
    assert result is not None
    return result


__dir__ = _listing(__name__)
