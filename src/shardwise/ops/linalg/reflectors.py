"""QR decompositions as LAPACK keeps them, products of reflectors, and the iteration that gives polar decompositions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ints, Ndarray
from shardwise.ir import Array, bind
from shardwise.ops.linalg.lapack import each, lapack_routine
from shardwise.ops.linalg.matrix_op import Result, by_library, define_matrix_op
from shardwise.ops.linalg.matrix_steps import qr_steps
from shardwise.ops.rules.convert import as_array

__all__ = ["ormqr", "ormqr_p"]


# -- packed QR decompositions --------------------------------------------------------------------------------------------


def _geqrf_results(shape: Ints) -> list[Result]:
    return [(shape, "same"), ((min(shape),), "same")]


def _geqrf(x: Ndarray) -> tuple[Ndarray, ...]:
    m, n = x.shape[-2:]
    if not m * n:
        return x, np.zeros((*x.shape[:-2], 0), x.dtype)
    routine = lapack_routine("geqrf", x.dtype)
    cores = [((m, n), x.dtype), ((min(m, n),), x.dtype)]
    return tuple(each(lambda a: routine(a, lwork=64 * n)[:2], (2,), (x,), cores))


geqrf_p = define_matrix_op("geqrf", (2,), _geqrf_results, _geqrf, algorithm=qr_steps, small=by_library("geqrf"))


def geqrf(x: Array) -> tuple[Array, Array]:
    """r above the diagonal, the reflectors below it, and their factors: f[..., m, n] -> f[..., m, n], f[..., min(m, n)]."""
    return tuple(bind(geqrf_p, as_array(x)))  # type: ignore[return-value]


# -- products of reflectors ----------------------------------------------------------------------------------------------


def _ormqr_results(a: Ints, taus: Ints, c: Ints, *, left: bool, transpose: bool) -> list[Result]:
    if a[0] < a[1] or taus[0] > a[1]:
        raise ValueError(
            f"ormqr takes reflectors of at least as many rows as columns, and at most as many factors, got {a} and {taus}."
        )
    if a[0] != c[0 if left else 1]:
        raise ValueError(
            f"ormqr with left={left} takes c with {a[0]} {'rows' if left else 'columns'}, as a has rows; got {c}."
        )
    return [(c, "same")]


def _ormqr(a: Ndarray, taus: Ndarray, c: Ndarray, left: bool, transpose: bool) -> Ndarray:
    k = taus.shape[-1]
    if not k or not c.size:
        return c
    is_complex = c.dtype.kind == "c"
    routine = lapack_routine("unmqr" if is_complex else "ormqr", c.dtype)
    trans = ("C" if is_complex else "T") if transpose else "N"

    def one(p: Ndarray, t: Ndarray, q: Ndarray) -> Sequence[Ndarray]:
        return (
            routine(
                "L" if left else "R", trans, np.asfortranarray(p[:, :k]), t, np.asfortranarray(q), 64 * max(q.shape)
            )[0],
        )

    return each(one, (2, 1, 2), (a, taus, c), [(c.shape[-2:], c.dtype)])[0]


ormqr_p = define_matrix_op("ormqr", (2, 1, 2), _ormqr_results, _ormqr, multiple=False)


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Array:
    """q c (or c q unless `left`) for the unitary q of a packed QR decomposition, which is not formed; `transpose`
    takes q^H.

    `a` f[..., m, n] and `taus` f[..., k] are as ``jnp.linalg.qr(x, mode="raw")`` gives them, the first one
    transposed. ValueError for sizes.

    >>> x = jnp.array([[3.0, 1.0], [4.0, 2.0]])
    >>> a, taus = jnp.linalg.qr(x, mode="raw")
    >>> lax.linalg.ormqr(a.T, taus, x, transpose=True).round(3)  # q^H x = r
    Array([[-5. , -2.2],
           [ 0. ,  0.4]], dtype=float32)
    """
    return bind(ormqr_p, as_array(a), as_array(taus), as_array(c), left=bool(left), transpose=bool(transpose))


# -- polar decompositions by iteration -----------------------------------------------------------------------------------


def _qdwh_results(shape: Ints, *, max_iterations: int, eps: float) -> list[Result]:
    m, n = shape
    if m < n:
        raise ValueError(f"The input matrix of shape M x N must have M >= N. Got shape {shape}.")
    return [(shape, "same"), ((n, n), "same"), ((), "int32"), ((), "bool")]


def _qdwh(x: Ndarray, max_iterations: int, eps: float) -> tuple[Ndarray, ...]:
    m, n = x.shape[-2:]
    cores = [((m, n), x.dtype), ((n, n), x.dtype), ((), np.dtype(np.int32)), ((), np.dtype(bool))]
    with np.errstate(all="ignore"):
        return tuple(each(lambda a: _halley(a, max_iterations, eps), (2,), (x,), cores))


_FAR = 100  # weights from which an iteration goes by QR, which costs more than Cholesky and loses less


def _halley(x: Ndarray, max_iterations: int, eps: float) -> tuple[Any, ...]:
    """Dynamically weighted Halley iterations (Nakatsukasa, Bai, Gygi 2010): u, h, how many there were, whether they converged."""
    if not x.size:
        return x, np.zeros((x.shape[1],) * 2, x.dtype), 0, True
    columns, rows = np.abs(x).sum(axis=0).max(), np.abs(x).sum(axis=1).max()
    # `least` bounds the singular values of u from below, once these are scaled to at most 1.
    u, least, slack = x / (np.sqrt(columns) * np.sqrt(rows) or x.real.dtype.type(1)), eps, 5 * eps
    has_converged, iterations = False, 0
    while iterations < max_iterations and (least + slack < 1 or not has_converged):
        if least + slack < 1:
            square = least * least
            root = (4 * (1 / square - 1) / square) ** (1 / 3)
            side = (1 + root) ** 0.5
            a = side + (2 - root + 2 * (2 - square) / (square * side)) ** 0.5
            b = (a - 1) ** 2 / 4
            c = a + b - 1
            least *= (a + b * square) / (1 + c * square)
        else:
            a, b, c = 3.0, 1.0, 3.0
        before, u = u, _halley_step(u, a, b, c)
        has_converged = c <= _FAR and not np.linalg.norm(u - before) > np.cbrt(slack)
        iterations += 1
    adjoint = u.conj().T
    u = u * 1.5 - (u * 0.5) @ (adjoint @ u)  # one Newton-Schulz step takes the rounding of the iterations away
    h = u.conj().T @ x
    return u, (h + h.conj().T) / 2, iterations, has_converged


def _halley_step(u: Ndarray, a: float, b: float, c: float) -> Ndarray:
    n = u.shape[1]
    eye = np.eye(n, dtype=u.dtype)
    real = u.real.dtype.type
    if c > _FAR:
        q = np.linalg.qr(np.concatenate([u * real(c**0.5), eye]))[0].astype(u.dtype, copy=False)
        new_part = q[: len(u)] @ q[len(u) :].conj().T * real((a - b / c) / c**0.5)
    else:
        solve = lapack_routine("posv", u.dtype)
        new_part = solve((u.conj().T @ u) * real(c) + eye, u.conj().T)[1].conj().T * real(a - b / c)
    return (u * real(b / c) + new_part).astype(u.dtype, copy=False)


qdwh_p = define_matrix_op("qdwh", (2,), _qdwh_results, _qdwh)
