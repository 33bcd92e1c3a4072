"""Functions based on singular values: `svd`, pseudo-inverses, least squares, ranks."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.dtypes import finfo, float0, to_floating
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, broadcast_to_shape, convert, is_complex, promote_inexact
from shardwise.numpy.indexing import take_along_axis
from shardwise.numpy.norms import real_scalar
from shardwise.numpy.products import matmul
from shardwise.numpy.reductions import sum as total
from shardwise.ops.linalg import decompositions as ops
from shardwise.ops.linalg import spectral
from shardwise.transforms.derivatives.custom_derivatives import custom_jvp
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["SVDResult", "lstsq", "matrix_rank", "pinv", "svd", "svdvals"]


def inexact(name: str, *xs: Any) -> list[Any]:
    """Arguments of ``jnp.linalg`` that are arrays or scalars, of one inexact dtype."""
    return promote_inexact(*(array(f"jnp.linalg.{name}", x, i) for i, x in enumerate(xs)))


class SVDResult(NamedTuple):
    """Left singular vectors, singular values, conjugate transposed right singular vectors."""

    U: Array
    S: Array
    Vh: Array


@shown_call("full_matrices compute_uv hermitian subset_by_index")
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """Singular values s (descending) and vectors: a = u s vh. Without `compute_uv` the values alone.

    `hermitian` uses the eigenvalues of Hermitian matrices. `subset_by_index` keeps a range of the values.
    `full_matrices`: u and vh are square, else they have min(m, n) columns and rows.

    >>> jnp.linalg.svd(jnp.array([[3.0, 0.0], [0.0, 4.0]])).S.round(4)
    Array([4., 3.], dtype=float32)
    """
    (x,) = inexact("svd", a)
    if hermitian:
        return _hermitian_svd(x, compute_uv, subset_by_index)
    factors = spectral.svd(x, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
    return SVDResult(*factors) if compute_uv else factors


def _hermitian_svd(x: Array, compute_uv: bool, subset: tuple[int, int] | None) -> Any:
    vectors, w = spectral.eigh(x, subset_by_index=subset)
    size, last = lax.abs(w), w.ndim - 1
    reverse = lambda v: lax.rev(v, (last,))  # noqa: E731
    if not compute_uv:
        return reverse(lax.sort(size, last))
    places = lax.broadcasted_iota(np.dtype(np.int32), w.shape, last)
    s, order, signs = map(reverse, lax.sort((size, places, lax.sign(w)), last, num_keys=1))
    u = take_along_axis(vectors, lax.expand_dims(order, (last,)), axis=-1)
    signs = lax.broadcast_in_dim(convert(signs, u.dtype), u.shape, (*range(last), last + 1))
    return SVDResult(u, s, ops.adjoint(lax.mul(u, signs)))


def svdvals(x: Any, /) -> Array:
    """The singular values of the matrices `x`, descending: [..., n, m] -> [..., min(n, m)].

    >>> jnp.linalg.svdvals(jnp.array([[3.0, 0.0], [0.0, 4.0]])).round(4)
    Array([4., 3.], dtype=float32)
    """
    return svd(x, compute_uv=False, hermitian=False)


@composed_function(1)
def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Array:
    """The Moore-Penrose inverses of the matrices `a`: [..., n, m] -> [..., m, n]; singular values up to `rtol`
    (default 10 max(m, n) eps) times the largest count as 0.

    Args:
        hermitian: the matrices are Hermitian, and eigenvalues serve.
        rcond: an older name of `rtol`.

    Raises:
        ValueError: both `rtol` and `rcond` are given.

    >>> jnp.linalg.pinv(jnp.array([[2.0, 0.0], [0.0, 0.0]])).round(4)
    Array([[0.5, 0. ],
           [0. , 0. ]], dtype=float32)
    """
    if rcond is not None:
        if rtol is not None:
            raise ValueError("pinv: only one of rtol and rcond may be specified.")
        rtol = rcond
    return _pinv(*inexact("pinv", a), rtol, hermitian)


@partial(custom_jvp, nondiff_argnums=(2,))
def _pinv(x: Array, rtol: Any, hermitian: bool) -> Array:
    m, n = x.shape[-2:]
    if not m * n:
        return lax.full((*x.shape[:-2], n, m), 0, x.dtype)
    u, s, vh = svd(x, full_matrices=False, hermitian=hermitian)
    if rtol is None:
        rtol = 10.0 * max(m, n) * float(finfo(x.dtype).eps)
    rtol = real_scalar(rtol, s.dtype)
    rtol = lax.expand_dims(rtol, (*range(s.ndim - 1 - rtol.ndim), s.ndim - 1))
    cutoff = lax.mul(rtol, lax.slice_in_dim(s, 0, 1, axis=s.ndim - 1))
    is_kept = lax.gt(s, broadcast_to_shape(cutoff, s.shape))
    divisors = lax.expand_dims(convert(lax.select(is_kept, s, lax.full_like(s, inf)), x.dtype), (s.ndim,))
    rows = ops.adjoint(u)
    return matmul(ops.adjoint(vh), lax.div(rows, broadcast_to_shape(divisors, rows.shape)))


@_pinv.defjvp
def _pinv_jvp(hermitian: bool, primals: tuple[Array, Any], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    """Golub and Pereyra's formula, which needs no singular vectors and holds while the rank stays as it is."""
    (a, _), (t, _) = primals, tangents
    p = _pinv(*primals, hermitian)
    if hermitian:  # only its symmetric part counts
        a, t = ops.symmetrize(a), ops.symmetrize(t)
    back, forth = ops.adjoint(t), ops.adjoint(p)
    if a.shape[-2] >= a.shape[-1]:  # the order of the factors that makes small matrices
        rows, columns = matmul(matmul(p, forth), back), matmul(matmul(back, forth), p)
        direct, twice, once = matmul(matmul(p, t), p), matmul(matmul(rows, a), p), matmul(matmul(p, a), columns)
    else:
        rows, columns = matmul(p, matmul(forth, back)), matmul(back, matmul(forth, p))
        direct, twice, once = matmul(p, matmul(t, p)), matmul(rows, matmul(a, p)), matmul(p, matmul(a, columns))
    return p, lax.add(lax.sub(lax.sub(rows, direct), twice), lax.sub(columns, once))


def lstsq(a: Any, b: Any, rcond: Any = None, *, numpy_resid: bool = False) -> tuple[Array, Array, Array, Array]:
    """Least squares solution x of a x = b, squared residuals, rank and singular values of a: f[m, n], f[m] or f[m, k].

    Singular values up to `rcond` (default eps max(m, n)) times the largest count as 0. With `numpy_resid` residuals are empty
    where NumPy leaves them out, which needs concrete values.

    >>> jnp.linalg.lstsq(jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), jnp.array([1.0, 3.0, 5.0]))[0].round(3)
    Array([1., 2.], dtype=float32)
    """
    if not numpy_resid:
        return _lstsq(a, b, rcond)
    x, _, rank, s = solution = _lstsq(a, b, rcond)
    m, n = np.shape(a)
    return (x, lax.full((0,), 0, s.dtype), rank, s) if int(np.asarray(rank)) < n or m <= n else solution


@composed_function(2)
def _lstsq(a: Any, b: Any, rcond: Any) -> tuple[Array, Array, Array, Array]:
    x, y = inexact("lstsq", a, b)
    if not x.ndim or not y.ndim or x.shape[0] != y.shape[0]:
        raise ValueError(f"Leading dimensions of input arrays must match, got shapes {x.shape} and {y.shape}.")
    if x.ndim != 2:
        raise TypeError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    if y.ndim > 2:
        raise TypeError(f"{y.ndim}-dimensional array given. Array must be one or two-dimensional")
    vector = y.ndim == 1
    if vector:
        y = lax.expand_dims(y, (1,))
    m, n = x.shape
    real = to_floating(x.dtype)
    if not m * n:
        s, rank = lax.full((0,), 0, real), lax.full((), 0, np.dtype(np.int32))
        out = lax.full((n, y.shape[1]), 0, x.dtype)
    else:
        if rcond is None:
            rcond = float(finfo(x.dtype).eps) * max(m, n)
        out, s, rank = _least_squares(x, y, real_scalar(rcond, real))
    miss = lax.sub(y, matmul(x, out))
    residuals = total(lax.real(lax.mul(miss, lax.conj(miss))) if is_complex(x.dtype) else lax.mul(miss, miss), axis=0)
    return lax.reshape(out, (n,)) if vector else out, residuals, rank, s


def _weights(s: Array, rcond: Array) -> tuple[Array, Array]:
    """The inverses of singular values above the cutoff, 0 for others, and the mask of those above."""
    eps = lax.full_like(rcond, float(finfo(s.dtype).eps))
    cutoff = lax.select(lax.lt(rcond, literal(0, s.dtype)), eps, rcond)
    least = lax.mul(cutoff, lax.squeeze(lax.slice_in_dim(s, 0, 1), (0,)))
    is_kept = lax.bitwise_and(lax.gt(s, literal(0, s.dtype)), lax.ge(s, broadcast_to_shape(least, s.shape)))
    one = lax.full_like(s, 1)
    return lax.select(is_kept, lax.div(one, lax.select(is_kept, s, one)), lax.full_like(s, 0)), is_kept


def _pseudo_product(factors: tuple[Array, Array, Array], y: Array) -> Array:
    """v w u^H y."""
    u, w, vh = factors
    return matmul(ops.adjoint(vh), lax.mul(lax.expand_dims(convert(w, y.dtype), (1,)), matmul(ops.adjoint(u), y)))


@custom_jvp
def _least_squares(a: Array, b: Array, rcond: Array) -> tuple[Array, Array, Array]:
    """x, the singular values of a, and the number of them above the cutoff."""
    u, s, vh = svd(a, full_matrices=False)
    w, is_kept = _weights(s, rcond)
    return _pseudo_product((u, w, vh), b), s, total(is_kept)


@_least_squares.defjvp
def _least_squares_jvp(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> Any:
    """As that of `pinv`, times b: no differences of singular values divide."""
    (a, b, rcond), (t, db, _) = primals, tangents
    u, s, vh = svd(a, full_matrices=False)
    w, is_kept = _weights(s, rcond)
    forth, back = (u, w, vh), (ops.adjoint(vh), w, ops.adjoint(u))  # p, and p^H
    x = _pseudo_product(forth, b)
    t_adjoint = ops.adjoint(t)
    direct = _pseudo_product(forth, lax.sub(db, matmul(t, x)))
    residual_part = _pseudo_product(forth, _pseudo_product(back, matmul(t_adjoint, lax.sub(b, matmul(a, x)))))
    beyond = matmul(t_adjoint, _pseudo_product(back, x))
    beyond = lax.sub(beyond, _pseudo_product(forth, matmul(a, beyond)))
    inner = lax.mul(ops.adjoint(u), lax.conj(matmul(vh, t_adjoint)) if is_complex(a.dtype) else matmul(vh, t_adjoint))
    ds = total(lax.real(inner) if is_complex(a.dtype) else inner, axis=1)
    return (x, s, total(is_kept)), (lax.add(lax.add(direct, residual_part), beyond), ds, np.zeros((), float0))


@shown_call("hermitian")
def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Array:
    """How many singular values of the matrices `M` exceed `rtol` (default: the largest times max(m, n) eps).

    Args:
        hermitian: the matrices are Hermitian, and eigenvalues serve.
        tol: an older name of `rtol`.

    Raises:
        ValueError: both `rtol` and `tol` are given.

    >>> jnp.linalg.matrix_rank(jnp.ones((2, 2)))
    Array(1, dtype=int32)
    """
    if tol is not None:
        if rtol is not None:
            raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
        rtol = tol
    (x,) = inexact("matrix_rank", M)
    if x.ndim < 2:
        there = lax.ne(x, literal(0, x.dtype))
        return lax.convert_element_type(lax.reduce_or(there, range(x.ndim)), np.dtype(np.int32))
    s = svd(x, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if not s.shape[-1]:
        return total(lax.full(s.shape, False, np.dtype(bool)), axis=-1)
    if rtol is None:
        largest = lax.reduce_max(s, (s.ndim - 1,))
        limit: Any = lax.mul(largest, literal(max(x.shape[-2:]) * float(finfo(s.dtype).eps), s.dtype))
    else:
        limit = real_scalar(rtol, s.dtype)
    limit = lax.expand_dims(limit, (limit.ndim,))
    return total(lax.gt(s, broadcast_to_shape(limit, s.shape)), axis=-1)
