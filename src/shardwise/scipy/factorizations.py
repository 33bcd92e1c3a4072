"""Factorisations of matrices that keep their factors, and solutions and functions computed with these.

`scipy.linalg` offers them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import finfo
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy import linalg as face
from shardwise.numpy._promote import array, broadcast_shapes, broadcast_to_shape, convert, is_complex, promote_shapes
from shardwise.numpy.diagonals import eye, tril, triu
from shardwise.ops.linalg import decompositions as ops
from shardwise.ops.linalg import matrix_functions, spectral
from shardwise.ops.rules.convert import as_array
from shardwise.scipy.matrix_operands import inexact, inexact_like, system
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = [
    "cho_factor", "cho_solve", "cholesky", "eigh", "eigh_tridiagonal", "funm", "hessenberg", "lu", "lu_factor",
    "lu_solve", "qr", "qr_multiply", "rsf2csf", "schur", "svd",
]  # fmt: skip


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The upper (or `lower`) Cholesky factor; only that triangle of `a` is read.

    Args:
        overwrite_a, check_finite: without effect.

    Raises:
        ValueError: `a` has fewer than two dims or is not square.

    >>> from shardwise.scipy import linalg
    >>> linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]), lower=True)
    Array([[2., 0.],
           [1., 1.]], dtype=float32)
    """
    (x,) = inexact_like(a)
    if not lower and x.ndim < 2:
        raise ValueError(f"cholesky takes matrices: x must be at least two-dimensional, got shape {x.shape}.")
    factor = ops.cholesky(x if lower else ops.adjoint(x), symmetrize_input=False)
    return factor if lower else ops.adjoint(factor)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, bool]:
    """The Cholesky factor of the matrices `a` and whether it is the lower one, for `cho_solve`. `overwrite_a` and
    `check_finite` as for `cholesky`.

    >>> from shardwise.scipy import linalg
    >>> linalg.cho_factor(jnp.array([[4.0, 0.0], [0.0, 9.0]]), lower=True)
    (Array([[2., 0.],
           [0., 3.]], dtype=float32), True)
    """
    return cholesky(a, lower=lower), lower


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """x with a x = `b`, given `c_and_lower`, the pair that `cho_factor` gives.

    Args:
        overwrite_b, check_finite: without effect.

    >>> from shardwise.scipy import linalg
    >>> linalg.cho_solve((jnp.array([[2.0, 0.0], [1.0, 1.0]]), True), jnp.array([4.0, 4.0])).round(3)
    Array([0., 2.], dtype=float32)
    """
    factor, lower = c_and_lower
    c, y = inexact_like(factor, b)
    c, y, vector = system("cho_solve", c, y)
    first = ops.triangular_solve(c, y, left_side=True, lower=lower, transpose_a=not lower, conjugate_a=not lower)
    x = ops.triangular_solve(c, first, left_side=True, lower=lower, transpose_a=lower, conjugate_a=lower)
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


@shown_call("overwrite_a check_finite")
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """The packed LU factors of the matrices `a` and the pivots, for `lu_solve`. `overwrite_a` and `check_finite` as
    for `cholesky`.

    >>> from shardwise.scipy import linalg
    >>> linalg.lu_factor(jnp.array([[2.0, 1.0], [4.0, 4.0]]))
    (Array([[ 4. ,  4. ],
           [ 0.5, -1. ]], dtype=float32), Array([1, 1], dtype=int32))
    """
    (x,) = inexact_like(a)
    factors, pivots, _ = ops.lu(x)
    return factors, pivots


def lu_solve(
    lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """x with op(a) x = b, given `lu_and_piv`, the pair that `lu_factor` gives; op transposes for `trans` 1 and takes
    the adjoint for 2. `overwrite_b` and `check_finite` as for `cho_solve`.

    Raises:
        ValueError: `trans` is not 0, 1 or 2.

    >>> from shardwise.scipy import linalg
    >>> linalg.lu_solve(linalg.lu_factor(jnp.array([[2.0, 1.0], [4.0, 4.0]])), jnp.array([3.0, 8.0])).round(3)
    Array([1., 1.], dtype=float32)
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans}")
    factors, pivots = lu_and_piv
    f, y = inexact("lu_solve", factors, b)
    f, y, vector = system("lu_solve", f, y)
    n = f.shape[-1]
    order = ops.lu_pivots_to_permutation(array("lu_solve", pivots), n)
    order = broadcast_to_shape(order, (*y.shape[:-2], n))
    if trans == 0:
        y = _reorder_rows(y, order)
        y = ops.triangular_solve(f, y, left_side=True, lower=True, unit_diagonal=True)
        x = ops.triangular_solve(f, y, left_side=True, lower=False)
    else:
        options = dict(left_side=True, transpose_a=True, conjugate_a=trans == 2)
        y = ops.triangular_solve(f, y, lower=False, **options)
        y = ops.triangular_solve(f, y, lower=True, unit_diagonal=True, **options)
        x = _reorder_rows(y, jnp.argsort(order, axis=-1))
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


def _reorder_rows(x: Array, order: Array) -> Array:
    """Rows in another order: row i of the result is row ``order[i]``."""
    return jnp.take_along_axis(x, lax.expand_dims(order, (order.ndim,)), axis=-2)


def _permutation(order: Array, dtype: Any) -> Array:
    """Matrices whose row i picks element ``order[i]``."""
    n = order.shape[-1]
    shape = (*order.shape, n)
    wanted_rows = lax.broadcast_in_dim(order, shape, range(order.ndim))
    return convert(lax.eq(wanted_rows, lax.broadcasted_iota(order.dtype, shape, order.ndim)), dtype)  # type: ignore[return-value]


def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, ...]:
    """p, l, u with a = p l u, or (p l, u) with `permute_l`. `overwrite_a` and `check_finite` as for `cholesky`.

    >>> from shardwise.scipy import linalg
    >>> linalg.lu(jnp.array([[2.0, 1.0], [4.0, 4.0]]))[2]
    Array([[ 4.,  4.],
           [ 0., -1.]], dtype=float32)
    """
    (x,) = inexact_like(a)
    factors, _, order = ops.lu(x)
    k = min(x.shape[-2:])
    real = np.dtype(x.dtype.type(0).real.dtype) if is_complex(x.dtype) else x.dtype
    p = face.matrix_transpose(_permutation(order, real))
    low = lax.slice_in_dim(tril(factors, -1), 0, k, axis=-1)
    low = lax.add(low, broadcast_to_shape(eye(x.shape[-2], k, dtype=x.dtype), low.shape))
    up = lax.slice_in_dim(triu(factors), 0, k, axis=-2)
    return (face.matmul(p, low), up) if permute_l else (p, low, up)


@shown_call("overwrite_a lwork mode pivoting check_finite", name="_qr")
def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """q, r with a = q r for the matrices `a`, and with `pivoting` the order of columns; `mode` 'economic' keeps
    min(m, n) columns of q, 'r' leaves q out.

    Args:
        overwrite_a, lwork, check_finite: without effect.

    Raises:
        ValueError: `mode` is another word.

    >>> from shardwise.scipy import linalg
    >>> jnp.abs(linalg.qr(jnp.array([[3.0], [4.0]]), mode="economic")[1]).round(3)
    Array([[5.]], dtype=float32)
    """
    if mode not in ("full", "economic", "r"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'; expected 'full', 'economic' or 'r'.")
    (x,) = inexact_like(a)
    q, *rest = ops.qr(x, pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(rest) if mode == "r" else (q, *rest)


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, ...]:
    """c q (or q c with `mode` 'left') and r, for the economic factors of a; `conjugate` takes those of q.

    With `pivoting` also the order of columns.

    Args:
        overwrite_a, overwrite_c: without effect.

    Raises:
        ValueError: `mode` is not 'left' or 'right'. TypeError: sizes do not fit.

    >>> from shardwise.scipy import linalg
    >>> jnp.abs(linalg.qr_multiply(jnp.array([[3.0], [4.0]]), jnp.eye(1), mode="left")[0]).round(3)
    Array([[0.6],
           [0.8]], dtype=float32)
    """
    if mode not in ("left", "right"):
        raise ValueError(f"mode must be 'left' or 'right', got {mode!r}.")
    x, y = inexact_like(a, c)
    q, *rest = ops.qr(x, pivoting=pivoting, full_matrices=False)
    if conjugate and is_complex(q.dtype):
        q = lax.conj(q)
    vector = y.ndim == 1
    if vector:
        y = lax.expand_dims(y, (1 if mode == "left" else 0,))
    out = face.matmul(q, y) if mode == "left" else face.matmul(y, q)
    return lax.reshape(out, (out.size,)) if vector else out, *rest


@shown_call("full_matrices compute_uv overwrite_a check_finite lapack_driver", name="_svd")
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """u, s and vh with a = u s vh for the matrices `a`, or s alone without `compute_uv`. `full_matrices`: u and vh
    are square, else they have min(m, n) columns and rows.

    Args:
        overwrite_a, check_finite, lapack_driver: without effect.

    >>> from shardwise.scipy import linalg
    >>> linalg.svd(jnp.array([[3.0, 0.0], [0.0, 2.0]]), compute_uv=False).round(3)
    Array([3., 2.], dtype=float32)
    """
    (x,) = inexact_like(a)
    return spectral.svd(x, full_matrices=full_matrices, compute_uv=compute_uv)


@shown_call("b lower eigvals_only overwrite_a overwrite_b turbo eigvals type check_finite", name="_eigh")
def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Ascending eigenvalues and eigenvectors of the Hermitian matrices `a`, of which the `lower` (else upper)
    triangle counts; the eigenvalues alone if `eigvals_only`. NotImplementedError for generalised problems.

    Args:
        b, type, eigvals: only None, 1 and None: no generalised problems and no ranges.
        overwrite_a, overwrite_b, turbo, check_finite: without effect.

    >>> from shardwise.scipy import linalg
    >>> linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]), eigvals_only=True).round(3)
    Array([1., 3.], dtype=float32)
    """
    if b is not None or type != 1 or eigvals is not None:
        raise NotImplementedError(
            "eigh takes b=None, type=1 and eigvals=None. Reduce a generalised problem by cholesky(b), and "
            "slice the eigenvalues."
        )
    (x,) = inexact_like(a)
    vectors, values = spectral.eigh(x, lower=lower)
    return values if eigvals_only else (values, vectors)


def eigh_tridiagonal(
    d: Any,
    e: Any,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: Any = None,
    tol: float | None = None,
    key: Any = None,
) -> Any:
    """Eigenvalues (and eigenvectors) of the Hermitian tridiagonal matrix with diagonal d, and e above it.

    `select` 'i' keeps the indices of `select_range`, both ends included. They are exact up to rounding, closer than any `tol` that
    can be asked for, and no `key` is needed for random vectors to begin with. NotImplementedError for `select` 'v'.

    Raises:
        ValueError: shapes do not fit, or `select` is not 'a', 'i' or 'v'.

    >>> from shardwise.scipy import linalg
    >>> linalg.eigh_tridiagonal(jnp.array([2.0, 2.0]), jnp.array([1.0]), eigvals_only=True).round(3)
    Array([1., 3.], dtype=float32)
    """
    if select == "v":
        raise NotImplementedError(
            "eigh_tridiagonal selects by index ('i') only: how many lie in a range depends on values. "
            "Compute all (select='a') and mask those outside of the range."
        )
    if select not in ("a", "i"):
        raise ValueError(f"select must be 'a', 'i' or 'v', got {select!r}.")
    x, y = inexact_like(d, e)
    n = x.shape[-1]
    if y.shape != (*x.shape[:-1], max(n - 1, 0)):
        raise ValueError(f"eigh_tridiagonal takes d [..., n] and e [..., n - 1], got shapes {x.shape} and {y.shape}.")
    if not n:
        return x if eigvals_only else (x, lax.full((*x.shape, 0), 0, x.dtype))
    subset = None if select == "a" else (int(select_range[0]), int(select_range[1]) + 1)
    diagonal = lax.mul(lax.expand_dims(x, (x.ndim,)), eye(n, dtype=x.dtype)) if x.ndim == 1 else _diagonals(x)
    # `eigh` reads what lies below the diagonal.
    below = lax.pad(
        _diagonals(lax.conj(y) if is_complex(y.dtype) else y),
        literal(0, y.dtype),
        [*[(0, 0, 0)] * (y.ndim - 1), (1, 0, 0), (0, 1, 0)],
    )
    vectors, values = spectral.eigh(lax.add(diagonal, below), symmetrize_input=False, subset_by_index=subset)
    return values if eigvals_only else (values, vectors)


def _diagonals(x: Array) -> Array:
    """Matrices with these diagonals."""
    n = x.shape[-1]
    shape = (*x.shape, n)
    return lax.mul(lax.broadcast_in_dim(x, shape, range(x.ndim)), broadcast_to_shape(eye(n, dtype=x.dtype), shape))


@shown_call("output", name="_schur")
def schur(a: Any, output: str = "real") -> list[Array]:
    """t and z with a = z t z^H; t is triangular for complex `output` and matrices, else with 2 by 2 blocks.

    Raises:
        ValueError: `output` is not 'real' or 'complex'.

    >>> from shardwise.scipy import linalg
    >>> linalg.schur(jnp.array([[1.0, 2.0], [0.0, 3.0]]))[0].round(3)
    Array([[1., 2.],
           [0., 3.]], dtype=float32)
    """
    if output not in ("real", "complex"):
        raise ValueError(f"Expected 'output' to be either 'real' or 'complex', got {output=}.")
    (x,) = inexact("schur", a)
    if output == "complex" and not is_complex(x.dtype):
        x = lax.convert_element_type(x, np.result_type(x.dtype, np.complex64))
    return spectral.schur(x)


def funm(A: Any, func: Callable[[Any], Any], disp: bool = True) -> Any:
    """A function of a square matrix, from `func` of its eigenvalues: complex [n, n] (Parlett's recurrence).

    With `disp` False also an estimate of the relative error, in the 1-norm. ValueError for a matrix that is not square.

    >>> from shardwise.scipy import linalg
    >>> linalg.funm(jnp.array([[1.0, 2.0], [0.0, 4.0]]), jnp.sqrt).real.round(3)
    Array([[1.   , 0.667],
           [0.   , 2.   ]], dtype=float32)
    """
    (x,) = inexact_like(A)
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ValueError(f"expected square array_like input, got shape {x.shape}.")
    t, z = schur(x)
    t, z = rsf2csf(t, z)
    n = x.shape[0]
    values = jnp.diagonal(t)
    apart = values[None, :] - values[:, None]
    safe = jnp.where(apart == 0, 1, apart)
    above = np.arange(n) - np.arange(n)[:, None]

    def fill(p: Any, f: Any) -> Any:
        # f and t commute: that gives the entries p above the diagonal from those below them.
        inner = jnp.triu(f, 1)
        rest = strict * rise + (
            jnp.matmul(strict, inner, precision="highest") - jnp.matmul(inner, strict, precision="highest")
        )
        return jnp.where(above == p, rest / safe, f)

    results = func(values).astype(t.dtype)
    strict, rise = jnp.triu(t, 1), results[None, :] - results[:, None]
    f = lax.fori_loop(1, n, fill, jnp.diag(results))
    result = jnp.matmul(jnp.matmul(z, f), jnp.conj(z).T)
    if disp:
        return result
    # As SciPy does: from the least distance of eigenvalues, or the least that there can be.
    smallest = jnp.min(jnp.where(above > 0, jnp.abs(apart), jnp.inf))
    smallest = jnp.where(smallest == 0, finfo(t.dtype).eps, smallest)
    eps = finfo(t.dtype).eps
    error = jnp.minimum(1, jnp.maximum(eps, eps / smallest * jnp.linalg.norm(jnp.triu(t, 1), 1)))
    return result, error


@shown_call("calc_q overwrite_a check_finite")
def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The Hessenberg form h, and with `calc_q` the unitary q with a = q h q^H. `overwrite_a` and `check_finite` as
    for `cholesky`.

    >>> from shardwise.scipy import linalg
    >>> linalg.hessenberg(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    (x,) = inexact("hessenberg", a)
    packed_factors, taus = spectral.hessenberg(x)
    h = triu(packed_factors, -1)
    if not calc_q:
        return h
    n = x.shape[-1]
    if not n:
        return h, h
    corner = lax.slice_in_dim(lax.slice_in_dim(packed_factors, 1, n, axis=-2), 0, n - 1, axis=-1)
    inner = ops.householder_product(corner, taus)
    q = lax.pad(inner, literal(0, x.dtype), [*[(0, 0, 0)] * (x.ndim - 2), (1, 0, 0), (1, 0, 0)])
    first = np.zeros((n, n), x.dtype)
    first[0, 0] = 1
    return h, lax.add(q, broadcast_to_shape(array("hessenberg", first), q.shape))


def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Array, Array]:
    """The complex Schur form and vectors from the real ones, `T` and `Z`, whose batch dims broadcast.

    ValueError unless square and of one size.

    Args:
        check_finite: without effect.

    >>> from shardwise.scipy import linalg
    >>> linalg.rsf2csf(jnp.array([[1.0, 2.0], [0.0, 3.0]]), jnp.eye(2))[0].real.round(3)
    Array([[1., 2.],
           [0., 3.]], dtype=float32)
    """
    t, z = inexact_like(T, Z)
    for name, x in (("T", t), ("Z", z)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"Input '{name}' must be square, got shape {x.shape}.")
    if t.shape[-2:] != z.shape[-2:]:
        raise ValueError(f"Input array shapes must match: Z: {z.shape} vs. T: {t.shape}")
    if t.shape != z.shape:
        shape = broadcast_shapes(t.shape, z.shape)
        t, z = (as_array(broadcast_to_shape(x, shape)) for x in promote_shapes("rsf2csf", t, z))
    return matrix_functions.rsf2csf(t, z)
