"""Products of many small matrices: those of a few elements one per lane of a register, others with rows in registers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.runtime import costs
from shardwise.runtime.loops import StackLoop, WorkLoop
from shardwise.runtime.machine import Lane, Lanes, available, thread_count
from shardwise.runtime.products.stacked_rows import rows_loop

NDArray = np.ndarray[Any, Any]
Ints = tuple[int, ...]
_DTYPES = {"f": "float32", "d": "float64"}


class StackedProduct:
    """``out[...] = a @ b`` for stacks that lie in memory as one of those that `stacked_product` was asked about."""

    __slots__ = ("_count", "_loop")

    def __init__(self, count: int, loop: StackLoop) -> None:
        self._count = count
        self._loop = loop

    def __call__(self, a: NDArray, b: NDArray, out: NDArray) -> None:
        self._loop(self._count, (a, b), (out,))


class RowsProduct:
    """The same by `rows_loop`; `swapped`: of the transposes, whose order is the other one."""

    __slots__ = ("_loop", "_numbers", "_swapped", "_threads", "_units")

    def __init__(self, count: int, loop: WorkLoop, swapped: bool, threads: int) -> None:
        chunk = -(-count // (4 * threads if threads > 1 else 1))
        self._units, self._numbers, self._threads = -(-count // chunk), (count, chunk), threads
        self._loop, self._swapped = loop, swapped

    def __call__(self, a: NDArray, b: NDArray, out: NDArray) -> None:
        self._loop(self._units, self._numbers, (b, a, out) if self._swapped else (a, b, out), self._threads)


def stacked_product(a: NDArray, b: NDArray, out: NDArray) -> StackedProduct | RowsProduct | None:
    """How to compute products of small matrices, if there are many and each lies dense in memory, turned or not; else None."""
    (m, k), n, batch = a.shape[-2:], b.shape[-1], out.shape[:-2]
    char, count = out.dtype.char, prod(batch)
    if count < costs.STACKED_FEWEST or max(m, k, n) > costs.STACKED_MOST or char not in _DTYPES or not available():
        return None
    left, right, result = (_form(x, batch) for x in (a, b, out))
    if left is None or right is None or result is None or result[0] == _SHARED:
        return None
    (a_kind, a_turned), (b_kind, b_turned), (_, swapped) = left, right, result
    a_shared, b_shared = a_kind == _SHARED, b_kind == _SHARED
    if (m if swapped else n) >= costs.STACKED_ROWS and (a_turned if swapped else not b_turned):
        if swapped:
            loop = rows_loop(_DTYPES[char], (n, k, m), not b_turned, (b_shared, a_shared))
        else:
            loop = rows_loop(_DTYPES[char], (m, k, n), a_turned, (a_shared, b_shared))
        return RowsProduct(count, loop, swapped, thread_count() if count * m * k * n >= costs.PRODUCT_SHARED else 1)
    if max(m, k, n) > costs.STACKED_LARGEST:
        return None
    return StackedProduct(count, _loop(_DTYPES[char], (m, k, n), (left, right, result)))


_STACKED, _SHARED = range(2)
_Form = tuple[int, bool]  # whether each matrix of the batch has its own, and whether it lies transposed


def _form(x: NDArray, batch: Ints) -> _Form | None:
    """How matrices lie in memory; None unless they are dense, one after the other or one for all."""
    (rows, columns), (down, across), size = x.shape[-2:], x.strides[-2:], x.itemsize
    if (columns == 1 or across == size) and (rows == 1 or down == columns * size):
        turned = False
    elif (rows == 1 or down == size) and (columns == 1 or across == rows * size):
        turned = True
    else:
        return None
    if prod(x.shape[:-2]) == 1:
        return _SHARED, turned
    step = rows * columns * size
    for n, own, wanted in zip(reversed(x.shape[:-2]), reversed(x.strides[:-2]), reversed(batch), strict=False):
        if n != wanted or (n != 1 and own != step):
            return None
        step *= n
    return None if x.ndim - 2 < len(batch) and prod(batch[: len(batch) - x.ndim + 2]) != 1 else (_STACKED, turned)


@recent(64)
def _loop(dtype: str, sizes: tuple[int, int, int], forms: tuple[_Form, _Form, _Form]) -> StackLoop:
    m, k, n = sizes
    (_, a_turned), (_, b_turned), (_, out_turned) = forms

    def write(w: Lanes, a: list[Lane], b: list[Lane]) -> list[list[Lane]]:
        left = [[a[p * m + i if a_turned else i * k + p] for p in range(k)] for i in range(m)]
        right = [[b[j * k + p if b_turned else p * n + j] for p in range(k)] for j in range(n)]
        cells = [(i, j) for j in range(n) for i in range(m)] if out_turned else np.ndindex(m, n)
        return [[inner(w, left[i], right[j]) for i, j in cells]]

    shared = tuple(kind == _SHARED for kind, _ in forms[:2])
    return StackLoop(dtype, (m * k, k * n), ((m * n, dtype),), write, shared)


def inner(w: Lanes, x: list[Lane], y: list[Lane]) -> Lane:
    """The sum of products, from the first on."""
    out = w.mul(x[0], y[0])
    for p, q in zip(x[1:], y[1:], strict=True):
        out = w.fma(p, q, out)
    return out
