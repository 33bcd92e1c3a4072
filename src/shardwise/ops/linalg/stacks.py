"""Stacks of small real matrices, one per lane of a register (`lane_algorithms`). None goes out where LAPACK is as fast.

Matrices whose results do not hold, because they are singular, not finite or out of range, are left to the caller's function for any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import name_of
from shardwise.base.shapes import Ints, Ndarray
from shardwise.ops.linalg import lane_algorithms as algorithms
from shardwise.ops.linalg.lane_algorithms import as_elements, as_matrix
from shardwise.runtime import costs
from shardwise.runtime.loops import StackLoop
from shardwise.runtime.machine import Lane, Lanes, available
from shardwise.runtime.memory import pool

Outs = tuple[Ndarray, ...]


def _stack(x: Ndarray, most: int) -> Ndarray | None:
    """`x` as one dense stack, if there are enough matrices and they are small."""
    if name_of(x.dtype) not in ("float32", "float64") or prod(x.shape[:-2]) < costs.STACKED_FEWEST:
        return None
    if max(x.shape[-2:]) > most or min(x.shape[-2:]) == 0 or not available():
        return None
    return np.ascontiguousarray(x).reshape(-1, *x.shape[-2:])


def _run(loop: StackLoop, operands: Sequence[Ndarray], cores: Sequence[tuple[Ints, Any]], count: int) -> list[Ndarray]:
    outs = [pool.empty((count, *core), dtype) for core, dtype in cores]
    loop(count, operands, outs)
    return outs


def _mend_odd(outs: Sequence[Ndarray], odd: Ndarray, general: Callable[[Ndarray], Outs], loops: Ints) -> Outs:
    """The results for stacks of shape `loops`; matrices that are `odd` have those of `general(their numbers)`."""
    if odd.any():
        places = np.flatnonzero(odd)
        for out, new_values in zip(outs, general(places), strict=True):
            out[places] = new_values
    return tuple(o.reshape(*loops, *o.shape[1:]) for o in outs)


def _not_finite(x: Ndarray) -> Ndarray:
    """A mask of the matrices (numbers, vectors) of a stack that have elements that are not finite."""
    return np.asarray(~np.isfinite(x).reshape(len(x), -1).all(axis=1))


# -- determinants ------------------------------------------------------------------------------------------------------------


def det(x: Ndarray, general: Callable[[Ndarray], Ndarray]) -> Ndarray | None:
    """Determinants."""
    stack = _stack(x, costs.STACKED_LARGEST)
    if stack is None:
        return None
    n = stack.shape[-1]
    (out,) = _run(_det_loop(n, name_of(x.dtype)), (stack,), [((), x.dtype)], len(stack))
    if n <= 3:  # the definition holds for all matrices
        return out.reshape(x.shape[:-2])
    return _mend_odd([out], _not_finite(out), lambda places: (general(stack[places]),), x.shape[:-2])[0]


@recent(32)
def _det_loop(n: int, dtype: str) -> StackLoop:
    def write(w: Lanes, x: list[Lane]) -> list[list[Lane]]:
        return [[algorithms.determinant(w, as_matrix(x, n))]]

    return StackLoop(dtype, (n * n,), ((1, dtype),), write, cost=n)


def slogdet(x: Ndarray, general: Callable[[Ndarray], Outs]) -> Outs | None:
    """Signs and logarithms of determinants."""
    stack = _stack(x, costs.STACKED_LARGEST)
    if stack is None:
        return None
    outs = _run(_slogdet_loop(stack.shape[-1], name_of(x.dtype)), (stack,), [((), x.dtype)] * 2, len(stack))
    return _mend_odd(outs, _not_finite(outs[1]), lambda places: general(stack[places]), x.shape[:-2])


@recent(32)
def _slogdet_loop(n: int, dtype: str) -> StackLoop:
    def write(w: Lanes, x: list[Lane]) -> list[list[Lane]]:
        return [[part] for part in algorithms.sign_and_log(w, as_matrix(x, n))]

    return StackLoop(dtype, (n * n,), ((1, dtype), (1, dtype)), write, cost=n + 20)


# -- systems -----------------------------------------------------------------------------------------------------------------


def lu(x: Ndarray, general: Callable[[Ndarray], Outs]) -> Outs | None:
    """Packed factors, pivots counted from 0, and the order of rows."""
    stack = _stack(x, costs.STACKED_LARGEST)
    if stack is None:
        return None
    m, n = stack.shape[-2:]
    cores = [((m, n), x.dtype), ((min(m, n),), np.int32), ((m,), np.int32)]
    outs = _run(_lu_loop(m, n, name_of(x.dtype)), (stack,), cores, len(stack))
    return _mend_odd(outs, _not_finite(outs[0]), lambda places: general(stack[places]), x.shape[:-2])


@recent(32)
def _lu_loop(m: int, n: int, dtype: str) -> StackLoop:
    def write(w: Lanes, x: list[Lane]) -> list[list[Lane]]:
        rows, pivots, order, _ = algorithms.factor(w, as_matrix(x, n))
        return [as_elements(rows), pivots, order]

    return StackLoop(dtype, (m * n,), ((m * n, dtype), (min(m, n), "int32"), (m, "int32")), write, cost=n)


def solve(a: Ndarray, b: Ndarray, transposed: bool, general: Callable[[Ndarray, Ndarray], Ndarray]) -> Ndarray | None:
    """x with a x = b, or that of the transpose of a; each matrix has right sides of its own, or all have the same."""
    given = _systems(a, b)
    if given is None:
        return None
    stack, right = given
    n, k = right.shape[-2:]
    loop = _solve_loop(n, k, name_of(a.dtype), len(right) == 1, transposed)
    outs = _run(loop, given, [((n, k), a.dtype)], len(stack))
    every = np.broadcast_to(right, (len(stack), n, k))
    return _mend_odd(outs, _not_finite(outs[0]), lambda at: (general(stack[at], every[at]),), a.shape[:-2])[0]


def triangular_solve(a: Ndarray, b: Ndarray, lower: bool, unit: bool) -> Ndarray | None:
    """x with a x = b for triangular a; substitution divides by zero for a singular a."""
    given = _systems(a, b)
    if given is None:
        return None
    n, k = b.shape[-2:]
    loop = _substitution_loop(n, k, name_of(a.dtype), len(given[1]) == 1, lower, unit)
    (out,) = _run(loop, given, [((n, k), a.dtype)], len(given[0]))
    return out.reshape(*a.shape[:-2], n, k)


def _systems(a: Ndarray, b: Ndarray) -> tuple[Ndarray, Ndarray] | None:
    """Matrices and right sides as stacks, the latter of one matrix if it is the same for all."""
    loops, sides = a.shape[:-2], b.shape[:-2]
    stack = _stack(a, costs.STACKED_LARGEST)
    if stack is None or b.dtype != a.dtype or not 0 < b.shape[-1] <= costs.STACKED_LARGEST:
        return None
    if prod(sides) != 1 and sides != loops:
        return None
    return stack, np.ascontiguousarray(b).reshape(-1, *b.shape[-2:])


@recent(32)
def _substitution_loop(n: int, k: int, dtype: str, shared: bool, lower: bool, unit: bool) -> StackLoop:
    def write(w: Lanes, a: list[Lane], b: list[Lane]) -> list[list[Lane]]:
        return [as_elements(algorithms.solve_triangular(w, as_matrix(a, n), as_matrix(b, k), lower, unit))]

    return StackLoop(dtype, (n * n, n * k), ((n * k, dtype),), write, (False, shared))


@recent(32)
def _solve_loop(n: int, k: int, dtype: str, shared: bool, transposed: bool) -> StackLoop:
    def write(w: Lanes, a: list[Lane], b: list[Lane]) -> list[list[Lane]]:
        matrix = as_matrix(a, n)
        if transposed:
            matrix = [list(column) for column in zip(*matrix, strict=True)]
        return [as_elements(algorithms.solve_by_factor(w, matrix, as_matrix(b, k)))]

    return StackLoop(dtype, (n * n, n * k), ((n * k, dtype),), write, (False, shared), cost=n)


def cholesky(x: Ndarray) -> Ndarray | None:
    """Lower factors; NaN where a matrix is not definite."""
    stack = _stack(x, costs.STACKED_LARGEST)
    if stack is None:
        return None
    n = stack.shape[-1]
    (out,) = _run(_cholesky_loop(n, name_of(x.dtype)), (stack,), [((n, n), x.dtype)], len(stack))
    return out.reshape(x.shape)


@recent(32)
def _cholesky_loop(n: int, dtype: str) -> StackLoop:
    def write(w: Lanes, x: list[Lane]) -> list[list[Lane]]:
        return [as_elements(algorithms.cholesky(w, as_matrix(x, n)))]

    return StackLoop(dtype, (n * n,), ((n * n, dtype),), write, cost=n)


# -- orthogonal factors ------------------------------------------------------------------------------------------------------


def qr(x: Ndarray, full: bool, general: Callable[[Ndarray], Outs]) -> Outs | None:
    """q and r."""
    stack = _stack(x, costs.STACKED_LARGEST)
    if stack is None:
        return None
    m, n = stack.shape[-2:]
    columns = m if full else min(m, n)
    cores = [((m, columns), x.dtype), ((columns, n), x.dtype), ((), np.int32)]
    q, r, odd = _run(_qr_loop(m, n, columns, name_of(x.dtype)), (stack,), cores, len(stack))
    return _mend_odd([q, r], odd != 0, lambda places: general(stack[places]), x.shape[:-2])


@recent(32)
def _qr_loop(m: int, n: int, columns: int, dtype: str) -> StackLoop:
    def write(w: Lanes, x: list[Lane]) -> list[list[Lane]]:
        q, r, odd = algorithms.householder_qr(w, as_matrix(x, n), columns)
        return [as_elements(q), as_elements(r), [w.convert(odd, "int32")]]

    return StackLoop(dtype, (m * n,), ((m * columns, dtype), (columns * n, dtype), (1, "int32")), write, cost=2 * n)


# -- eigenvectors ------------------------------------------------------------------------------------------------------------


def eigh(x: Ndarray, lower: bool, general: Callable[[Ndarray], Outs]) -> Outs | None:
    """Eigenvectors and ascending eigenvalues of symmetric 2 by 2 matrices: larger ones are rotated until they are done, one sooner than
    the other.
    """
    stack = _stack(x, 2)
    if stack is None or stack.shape[-1] != 2:
        return None
    cores = [((2, 2), x.dtype), ((2,), x.dtype), ((), np.int32)]
    vectors, values, odd = _run(_eigh_loop(lower, name_of(x.dtype)), (stack,), cores, len(stack))
    return _mend_odd([vectors, values], odd != 0, lambda places: general(stack[places]), x.shape[:-2])


@recent(32)
def _eigh_loop(lower: bool, dtype: str) -> StackLoop:
    def write(w: Lanes, x: list[Lane]) -> list[list[Lane]]:
        vectors, values, odd = algorithms.eigenpairs(w, x[0], x[2 if lower else 1], x[3])
        return [as_elements(vectors), values, [w.convert(odd, "int32")]]

    return StackLoop(dtype, (4,), ((4, dtype), (2, dtype), (1, "int32")), write, cost=8)
