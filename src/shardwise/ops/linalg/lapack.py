"""LAPACK on stacks of matrices: ndarray functions whose leading dims are loops, of one extent or 1 in each operand.

A matrix for which a routine fails gives NaNs and leaves the others alone; nothing here raises for values. Where NumPy has a
gufunc it runs the loops; other routines are called matrix by matrix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.scipy_extensions import scipy_extension
from shardwise.base.shapes import Ints, Ndarray
from shardwise.ops.linalg.matrix_steps import QR_WORK
from shardwise.ops.linalg.tridiagonal import perturbed_tridiagonal_solve
from shardwise.runtime.machine import run_in_parts, thread_count
from shardwise.runtime.memory import pool

Core = tuple[Ints, np.dtype[Any]]  # shape and type of one matrix of a result

_PREFIX = {"f": "s", "d": "d", "F": "c", "D": "z"}  # of the routines for a type

_THREADS_FROM = 1 << 20  # multiplications from which a second thread pays
_SMALL = 1 << 16  # elements of a matrix up to which LAPACK itself uses one thread, or gains little by more


def gufunc(name: str, *operands: Ndarray) -> Any:
    """NumPy's own LAPACK loops, which compute in the operands' precision and mark failures with NaN; by several threads.

    Operands are stacks of matrices with loops of one rank.
    """
    from numpy.linalg import _umath_linalg

    call = getattr(_umath_linalg, name)
    if operands[0].ndim == operands[-1].ndim == 2:
        with np.errstate(all="ignore"):
            return call(*operands)
    loops = np.broadcast_shapes(*(x.shape[:-2] for x in operands))
    m, n = operands[0].shape[-2:]
    if max(loops, default=1) == 1 or m * n > _SMALL or prod(loops) * m * n * min(m, n) < _THREADS_FROM:
        with np.errstate(all="ignore"):
            return call(*operands)
    dim = max(range(len(loops)), key=lambda d: loops[d])
    cut = lambda x, run: x if x.shape[dim] == 1 else x[(slice(None),) * dim + (run,)]  # noqa: E731
    none = call(*(np.broadcast_to(x, loops + x.shape[-2:])[(slice(0),) * len(loops)] for x in operands))
    several = isinstance(none, tuple)
    outs = tuple(pool.empty(loops + o.shape[len(loops) :], o.dtype) for o in (none if several else (none,)))

    def work(run: slice) -> None:
        with np.errstate(all="ignore"):  # each thread has its own
            call(*(cut(x, run) for x in operands), out=tuple(cut(o, run) for o in outs))

    threads = thread_count()
    run_in_parts(work, loops[dim], max(1, loops[dim] // (4 * threads)), threads)
    return outs if several else outs[0]


def each(
    function: Callable[..., Sequence[Any]], ranks: Ints, operands: Sequence[Ndarray], cores: Sequence[Core]
) -> list[Ndarray]:
    """Call `function` for every stack index on the operands' last dims; its results are stacked as `cores` say."""
    leads = [x.shape[: x.ndim - r] for x, r in zip(operands, ranks, strict=True)]
    if not any(lead and max(lead) != 1 for lead in leads):
        values = function(
            *(x.reshape(x.shape[x.ndim - r :]) if x.ndim > r else x for x, r in zip(operands, ranks, strict=True))
        )
        ones = (1,) * max(map(len, leads))
        return [np.ascontiguousarray(v, d).reshape(ones + shape) for v, (shape, d) in zip(values, cores, strict=True)]
    loops = np.broadcast_shapes(*leads)
    outs = [np.empty(loops + shape, dtype) for shape, dtype in cores]
    full = [np.broadcast_to(x, loops + x.shape[x.ndim - r :]) for x, r in zip(operands, ranks, strict=True)]
    for at in np.ndindex(*loops):
        for out, value in zip(outs, function(*(x[at] for x in full)), strict=True):
            out[at] = value
    return outs


@functools.cache
def lapack_routine(name: str, dtype: np.dtype[Any]) -> Any:
    """SciPy's LAPACK routine of this name, without prefix, for a type."""
    return getattr(scipy_extension("linalg._flapack"), _PREFIX[dtype.char] + name)


@functools.cache
def blas_routine(name: str, dtype: np.dtype[Any]) -> Any:
    """SciPy's BLAS routine of this name, without prefix, for a type."""
    return getattr(scipy_extension("linalg._fblas"), _PREFIX[dtype.char] + name)


def nan_of(dtype: np.dtype[Any]) -> Any:
    """The filler of results that failed: NaN, in both parts of complex numbers."""
    return dtype.type(complex(np.nan, np.nan) if dtype.kind == "c" else np.nan)


def is_finite(x: Ndarray) -> bool:
    """Whether no element is NaN or infinite."""
    return bool(np.isfinite(x).all())


# -- factorisations ----------------------------------------------------------------------------------------------------------


def cholesky(x: Ndarray) -> Ndarray:
    """The lower factor; only the lower triangle is read. NaN there where the matrix is not definite."""
    from shardwise.ops.linalg import blocked_cholesky, factor_loops, stacks  # start-up time: they build machine code

    for by_loops in (stacks.cholesky, factor_loops.cholesky, blocked_cholesky.cholesky):
        factor = by_loops(x)
        if factor is not None:
            return factor
    out = gufunc("cholesky_lo", x)
    if x.size and x.shape[-1] > 1 and np.isnan(out[..., 0, -1]).any():
        out = np.tril(out)  # failures fill all of a matrix
    return out


def eigh(x: Ndarray, lower: bool) -> tuple[Ndarray, Ndarray]:
    """Eigenvectors and ascending eigenvalues of Hermitian matrices given by one triangle."""
    from shardwise.ops.linalg import stacks  # start-up time: it builds machine code

    pairs = stacks.eigh(x, lower, lambda x: _eigh(x, lower))
    return _eigh(x, lower) if pairs is None else (pairs[0], pairs[1])


def _eigh(x: Ndarray, lower: bool) -> tuple[Ndarray, Ndarray]:
    values, vectors = gufunc("eigh_lo" if lower else "eigh_up", x)
    return vectors, values


def svd(x: Ndarray, full: bool, vectors: bool) -> tuple[Ndarray, ...]:
    """Singular values, descending, and with `vectors` u and vh."""
    m, n = x.shape[-2:]
    if vectors and not min(m, n):
        k = (m, n) if full else (0, 0)
        eye = lambda a, b: np.broadcast_to(np.eye(a, b, dtype=x.dtype), (*x.shape[:-2], a, b))  # noqa: E731
        return np.zeros((*x.shape[:-2], 0), x.real.dtype), eye(m, k[0]), eye(k[1], n)
    valid = None
    if not is_finite(x):  # LAPACK may not return from infinities
        valid = np.asarray(np.isfinite(x).all(axis=(-2, -1), keepdims=True))
        x = np.where(valid, x, x.dtype.type(0))
    outs = svd_of_finite(x, full, vectors)
    if valid is None:
        return outs
    return tuple(np.where(valid if o.ndim == x.ndim else valid[..., 0], o, nan_of(o.dtype)) for o in outs)


def svd_of_finite(x: Ndarray, full: bool, vectors: bool) -> tuple[Ndarray, ...]:
    """`svd` of matrices that are not empty and have no infinities or NaNs."""
    from numpy.linalg import _umath_linalg

    m, n = x.shape[-2:]
    kind = "svd" if not vectors else "svd_f" if full else "svd_s"
    if not hasattr(_umath_linalg, kind):  # NumPy 2.0 splits them by shape
        kind = kind.replace("svd", f"svd_{'m' if m < n else 'n'}")
    if not vectors:
        return (gufunc(kind, x),)
    u, s, vh = gufunc(kind, x)
    return s, u, vh


def eig(x: Ndarray, left: bool, right: bool) -> tuple[Ndarray, ...]:
    """Eigenvalues and the wanted eigenvectors of general matrices, complex."""
    result = np.result_type(x.dtype, np.complex64)
    valid: Ndarray = np.isfinite(x).all(axis=(-2, -1), keepdims=True)  # type: ignore[assignment]
    x = np.where(valid, x, x.dtype.type(0))  # LAPACK may not return from infinities
    wide = x.astype(np.complex128) if x.dtype == np.complex64 else x
    n = x.shape[-1]
    if left:
        from scipy.linalg import eig as one

        def both(a: Ndarray) -> Sequence[Ndarray]:
            return one(a, left=True, right=True, check_finite=False)  # type: ignore[return-value]

        core = [((n,), result), ((n, n), result), ((n, n), result)]
        w, vl, vr = each(both, (2,), (wide,), core) if n else [np.zeros((*x.shape[:-2], *c), result) for c, _ in core]
        outs = (w, vl, vr) if right else (w, vl)
    else:
        outs = eig_of_finite(wide, right)
    return tuple(
        np.where(valid if o.ndim == x.ndim else valid[..., 0], o.astype(result, copy=False), nan_of(result))
        for o in outs
    )


def eig_of_finite(x: Ndarray, right: bool) -> tuple[Ndarray, ...]:
    """Eigenvalues and right eigenvectors of matrices without infinities or NaNs."""
    return gufunc("eig", x) if right else (gufunc("eigvals", x),)


def lu(x: Ndarray) -> tuple[Ndarray, ...]:
    """The packed factors, pivots counted from 0, and the permutation of rows that they make."""
    from shardwise.ops.linalg import factor_loops, stacks  # start-up time

    factors = stacks.lu(x, _lu)
    if factors is not None:
        return factors
    factors = factor_loops.lu(x)
    # How far infinities and NaNs spread depends on the order of the operations.
    return factors if factors is not None and is_finite(factors[0]) else _lu(x)


def _lu(x: Ndarray) -> tuple[Ndarray, ...]:
    m, n = x.shape[-2:]
    k = min(m, n)
    if not k:
        loops = x.shape[:-2]
        return x, np.zeros((*loops, 0), np.int32), np.broadcast_to(np.arange(m, dtype=np.int32), (*loops, m))
    getrf = lapack_routine("getrf", x.dtype)
    factors, pivots = each(lambda a: getrf(a)[:2], (2,), (x,), [((m, n), x.dtype), ((k,), np.dtype(np.int32))])
    return factors, pivots, pivots_to_permutation(pivots, m)


def pivots_to_permutation(pivots: Ndarray, size: int) -> Ndarray:
    """The permutation made by successive swaps of row i with row pivots[i]."""
    loops = pivots.shape[:-1]
    if prod(loops) <= _FEW_ORDERS:
        rows = [_order_of(size, own) for own in pivots.reshape(prod(loops), -1).tolist()]
        return np.array(rows, np.int32).reshape(*loops, size)
    order = np.broadcast_to(np.arange(size, dtype=np.int32), (*loops, size)).copy()
    for i in range(pivots.shape[-1]):
        at = pivots[..., i : i + 1].astype(np.intp)
        here = order[..., i : i + 1].copy()
        order[..., i : i + 1] = np.take_along_axis(order, at, -1)
        np.put_along_axis(order, at, here, -1)
    return order


_FEW_ORDERS = 256  # permutations up to which numbers are swapped one by one: of one of 64 a swap takes 60 ns, and 5 us by NumPy's calls


def _order_of(size: int, pivots: Sequence[int]) -> list[int]:
    order = list(range(size))
    for i, at in enumerate(pivots):
        order[i], order[at] = order[at], order[i]
    return order


def qr(x: Ndarray, full: bool, pivoting: bool) -> tuple[Ndarray, ...]:
    """q, r and with `pivoting` the order of columns."""
    m, n = x.shape[-2:]
    rows = m if full else min(m, n)
    dtypes = [((m, rows), x.dtype), ((rows, n), x.dtype)]
    if not min(m, n):
        q = np.broadcast_to(np.eye(m, rows, dtype=x.dtype), (*x.shape[:-2], m, rows))
        r = np.zeros((*x.shape[:-2], rows, n), x.dtype)
        return (q, r, np.zeros((*x.shape[:-2], n), np.int32)) if pivoting else (q, r)
    if pivoting:
        from scipy.linalg import qr as one

        mode = "full" if full else "economic"
        call = lambda a: one(a, pivoting=True, mode=mode, check_finite=False)  # noqa: E731
        return tuple(each(call, (2,), (x,), [*dtypes, ((n,), np.dtype(np.int32))]))
    from shardwise.ops.linalg import stacks  # start-up time

    return stacks.qr(x, full, lambda some: _qr(some, rows)) or _qr(x, rows)


def _qr(x: Ndarray, rows: int) -> tuple[Ndarray, ...]:
    m, n = x.shape[-2:]
    dtypes = [((m, rows), x.dtype), ((rows, n), x.dtype)]
    if by_matrix(x.dtype, prod(x.shape[:-2])):
        return tuple(each(lambda a: _qr_one(a, rows), (2,), (x,), dtypes))
    with np.errstate(all="ignore"):
        q, r = np.linalg.qr(x, mode="complete" if rows > min(m, n) else "reduced")
    return q.astype(x.dtype, copy=False), r.astype(x.dtype, copy=False)


_FEW = 16  # single-precision stacks up to this size go matrix by matrix: NumPy's loops for QR exist in double only


def by_matrix(dtype: np.dtype[Any], matrices: int) -> bool:
    """Whether `qr` calls LAPACK for each matrix of so large a stack."""
    return matrices <= (_FEW if dtype.itemsize == (8 if dtype.kind == "c" else 4) else 1)


def _qr_one(a: Ndarray, rows: int) -> tuple[Ndarray, Ndarray]:
    m, n = a.shape
    packed_factors, tau, *_ = lapack_routine("geqrf", a.dtype)(a, lwork=QR_WORK * n)
    r = np.zeros((rows, n), a.dtype)
    np.copyto(r, packed_factors[:rows], where=_upper(rows, n))
    if rows <= n:
        return _reflect(packed_factors[:, :rows], tau, own=True), r
    base = np.zeros((m, rows), a.dtype, order="F")
    base[:, :n] = packed_factors
    return _reflect(base, tau, own=True), r


@recent(64)
def _upper(rows: int, columns: int) -> Ndarray:
    """The mask of the upper triangle."""
    return np.arange(rows)[:, None] <= np.arange(columns)


def _reflect(packed: Ndarray, tau: Ndarray, own: bool = False) -> Ndarray:
    """The product of the reflectors; it is written over them if they are the caller's `own`."""
    name = "ungqr" if packed.dtype.kind == "c" else "orgqr"
    return lapack_routine(name, packed.dtype)(packed, tau, lwork=QR_WORK * packed.shape[1], overwrite_a=own)[0]


def householder_product(a: Ndarray, taus: Ndarray) -> Ndarray:
    """The first columns of the product of elementary reflectors."""
    m, n = a.shape[-2:]
    if not taus.shape[-1] or not n:
        loops = np.broadcast_shapes(a.shape[:-2], taus.shape[:-1])
        return np.broadcast_to(np.eye(m, n, dtype=a.dtype), (*loops, m, n))
    return each(lambda x, t: (_reflect(x, t),), (2, 1), (a, taus), [((m, n), a.dtype)])[0]


def hessenberg(x: Ndarray) -> tuple[Ndarray, Ndarray]:
    """The packed Hessenberg form and the factors of its reflectors."""
    n = x.shape[-1]
    count = max(n - 1, 0)
    if n < 2:
        return x, np.zeros((*x.shape[:-2], count), x.dtype)
    gehrd = lapack_routine("gehrd", x.dtype)
    return tuple(each(lambda a: gehrd(a, lwork=64 * n)[:2], (2,), (x,), [((n, n), x.dtype), ((count,), x.dtype)]))  # type: ignore


def schur(x: Ndarray, vectors: bool) -> tuple[Ndarray, ...]:
    """The (quasi-)triangular form and with `vectors` the unitary basis."""
    n = x.shape[-1]
    if not n:
        return (x, x) if vectors else (x,)
    from scipy.linalg import schur as one

    def call(a: Ndarray) -> Sequence[Ndarray]:
        if not is_finite(a):
            return (np.full_like(a, nan_of(a.dtype)),) * 2
        return one(a, output="complex" if a.dtype.kind == "c" else "real", check_finite=False)  # type: ignore[return-value]

    t, z = each(call, (2,), (x,), [((n, n), x.dtype)] * 2)
    return (t, z) if vectors else (t,)


def tridiagonal(x: Ndarray, lower: bool) -> tuple[Ndarray, ...]:
    """The reduction of Hermitian matrices: packed reflectors, diagonal, off-diagonal, factors of the reflectors."""
    n = x.shape[-1]
    real = x.real.dtype
    reduce = lapack_routine("hetrd" if x.dtype.kind == "c" else "sytrd", x.dtype)
    cores = [((n, n), x.dtype), ((n,), real), ((n - 1,), real), ((n - 1,), x.dtype)]
    return tuple(each(lambda a: reduce(a, lower=int(lower), lwork=64 * n)[:4], (2,), (x,), cores))


# -- systems -------------------------------------------------------------------------------------------------------------------


def _fold_loops(a: Ndarray, b: Ndarray, solve: Callable[[Ndarray, Ndarray], Ndarray]) -> Ndarray:
    """Solve with the loop dims over which `a` is one and the same made columns of `b`: one factorisation for all."""
    same = [d for d in range(a.ndim - 2) if a.shape[d] == 1 and b.shape[d] != 1]
    if not same:
        return solve(a, b)
    rest = [d for d in range(a.ndim - 2) if d not in same]
    n, k = b.shape[-2:]
    order = (*rest, b.ndim - 2, *same, b.ndim - 1)
    wide = b.transpose(order)
    x = solve(a.reshape(*(a.shape[d] for d in rest), n, n), wide.reshape(*wide.shape[: len(rest) + 1], -1))
    loops = x.shape[: len(rest)]
    return x.reshape(*loops, n, *(b.shape[d] for d in same), k).transpose(np.argsort(order))


def solve(a: Ndarray, b: Ndarray, transposed: bool) -> Ndarray:
    """x with a x = b, or with `transposed` that of the transpose of a; where a is singular, the result of its LU factors."""
    from shardwise.ops.linalg import stacks  # start-up time

    def systems(p: Ndarray, q: Ndarray) -> Ndarray:
        general = lambda p, q: _general(p, q, transposed)  # noqa: E731
        by_lanes = stacks.solve(p, q, transposed, general)
        return general(p, q) if by_lanes is None else by_lanes

    return _fold_loops(a, b, systems)


def _general(a: Ndarray, b: Ndarray, transposed: bool) -> Ndarray:
    if not b.size:
        return np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)
    x = gufunc("solve", a.swapaxes(-1, -2) if transposed else a, b)
    if np.isfinite(x).all():
        return x
    getrf, trsm = lapack_routine("getrf", a.dtype), blas_routine("trsm", a.dtype)
    loops = x.shape[:-2]
    matrices, sides = (np.broadcast_to(v, loops + v.shape[-2:]) for v in (a, b))
    for at in np.argwhere(~np.isfinite(x).all(axis=(-2, -1))):
        place = tuple(at)
        factors, pivots, _ = getrf(matrices[place])
        order = pivots_to_permutation(pivots, len(pivots))
        if transposed:
            y = trsm(1, factors, sides[place], lower=0, trans_a=1)
            y = trsm(1, factors, y, lower=1, trans_a=1, diag=1)
            x[place][order] = y
        else:
            y = trsm(1, factors, sides[place][order], lower=1, diag=1)
            x[place] = trsm(1, factors, y, lower=0)
    return x


def triangular_solve(
    a: Ndarray, b: Ndarray, left: bool, lower: bool, transpose: bool, conjugate: bool, unit: bool
) -> Ndarray:
    """x with op(a) x = b, or x op(a) = b unless `left`; op transposes and conjugates."""
    given = (a, b, left, lower, transpose, conjugate)
    matrix = a.conj() if conjugate and not transpose else a
    n, (rows, columns) = a.shape[-1], b.shape[-2:]
    if b.size == rows * columns and a.size == n * n and b.size and b.ndim == a.ndim:
        # BLAS thinks in columns, so it is given the transposes: x.T op(a).T = b.T, read from row-major memory as it is.
        x = blas_routine("trsm", b.dtype)(
            1,
            matrix.reshape(n, n).T,
            b.reshape(rows, columns).T,
            side=int(left),
            lower=int(not lower),
            trans_a=(2 if conjugate else 1) if transpose else 0,
            diag=int(unit),
        ).T.reshape(b.shape)
    else:
        x = _stacked_triangular(a.conj() if conjugate else a, b, left, lower, transpose, unit)
    return x if is_finite(x) else _like_lapack(x, *given, unit)


def _stacked_triangular(a: Ndarray, b: Ndarray, left: bool, lower: bool, transpose: bool, unit: bool) -> Ndarray:
    if not left:
        b, transpose = b.swapaxes(-1, -2), not transpose
    if transpose:
        a, lower = a.swapaxes(-1, -2), not lower
    x = _fold_loops(a, b, lambda p, q: _triangular(p, q, lower, unit))
    return x if left else x.swapaxes(-1, -2)


def _triangular(a: Ndarray, b: Ndarray, lower: bool, unit: bool) -> Ndarray:
    loops = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n, k = b.shape[-2:]
    if not (n and k and prod(loops)):
        return np.empty((*loops, n, k), b.dtype)
    if prod(loops) > 2 * n:
        from shardwise.ops.linalg import stacks  # start-up time

        by_lanes = stacks.triangular_solve(a, b, lower, unit)
        return _substitute(a, b, lower, unit, loops) if by_lanes is None else by_lanes
    trsm = blas_routine("trsm", a.dtype)

    def one(p: Ndarray, q: Ndarray) -> tuple[Ndarray]:
        # BLAS thinks in columns, so it is given the transposes: x.T op(a).T = b.T, read from row-major memory as it is.
        if p.flags.c_contiguous or not p.flags.f_contiguous:
            return (trsm(1, p.T, q.T, side=1, lower=int(not lower), trans_a=0, diag=int(unit)).T,)
        return (trsm(1, p, q.T, side=1, lower=int(lower), trans_a=1, diag=int(unit)).T,)

    return each(one, (2, 2), (a, b), [((n, k), b.dtype)])[0]


def _like_lapack(
    x: Ndarray, a: Ndarray, b: Ndarray, left: bool, lower: bool, transpose: bool, conjugate: bool, unit: bool
) -> Ndarray:
    """`x` with its matrices that have infinities or NaNs computed again in column-major order.

    How far these spread depends on the order of the operations; this is LAPACK's.
    """
    trsm = blas_routine("trsm", x.dtype)
    a = a.conj() if conjugate and not transpose else a
    options = dict(
        side=int(not left), lower=int(lower), diag=int(unit), trans_a=2 if transpose and conjugate else int(transpose)
    )
    out, loops = np.array(x), x.shape[:-2]
    matrices, sides = (np.broadcast_to(v, loops + v.shape[-2:]) for v in (a, b))
    for at in map(tuple, np.argwhere(~np.isfinite(x).all(axis=(-2, -1)))):
        out[at] = trsm(1, np.asfortranarray(matrices[at]), np.asfortranarray(sides[at]), **options)
    return out


def _substitute(a: Ndarray, b: Ndarray, lower: bool, unit: bool, loops: Ints) -> Ndarray:
    """Many small systems at once, row by row."""
    n, k = b.shape[-2:]
    x = np.empty((*loops, n, k), b.dtype)
    with np.errstate(all="ignore"):
        for i in range(n) if lower else reversed(range(n)):
            known_rows = np.s_[:i] if lower else np.s_[i + 1 :]
            row = b[..., i : i + 1, :] - np.matmul(a[..., i : i + 1, known_rows], x[..., known_rows, :])
            x[..., i : i + 1, :] = row if unit else row / a[..., i : i + 1, i : i + 1]
    return x


def tridiagonal_solve(dl: Ndarray, d: Ndarray, du: Ndarray, b: Ndarray, *, perturb_singular: bool) -> Ndarray:
    """x of the systems with these diagonals; the first of `dl` and the last of `du` are not used."""
    n, k = b.shape[-2:]
    if perturb_singular and n and k:
        return perturbed_tridiagonal_solve(dl, d, du, b)
    gtsv = lapack_routine("gtsv", b.dtype)

    def one(low: Ndarray, mid: Ndarray, up: Ndarray, rhs: Ndarray) -> tuple[Ndarray]:
        if n == 1:
            return (rhs / mid[:, None] if mid[0] else np.full_like(rhs, nan_of(rhs.dtype)),)
        *_, x, info = gtsv(low[1:], mid, up[:-1], rhs)
        return (x if info == 0 else np.full_like(x, nan_of(x.dtype)),)

    if not n or not k:
        return b
    return each(one, (1, 1, 1, 2), (dl, d, du, b), [((n, k), b.dtype)])[0]
