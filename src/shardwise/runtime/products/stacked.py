"""Products of many small matrices: those of a few elements one per lane of a register, others with rows in registers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ints, Ndarray
from shardwise.runtime import costs
from shardwise.runtime.copies import row_major
from shardwise.runtime.loops import Spaced, StackLoop, WorkLoop
from shardwise.runtime.machine import Lane, Lanes, available, itemsize, thread_count
from shardwise.runtime.products.stacked_rows import Stack, lines_loop, rows_loop

_DTYPES = {"f": "float32", "d": "float64"}


class StackedProduct:
    """``out[...] = a @ b`` for stacks with the layout in memory that `stacked_product` was asked about."""

    __slots__ = ("_count", "_loop")

    def __init__(self, count: int, loop: StackLoop) -> None:
        self._count = count
        self._loop = loop

    def __call__(self, a: Ndarray, b: Ndarray, out: Ndarray) -> None:
        self._loop(self._count, (a, b), (out,))


class RowsProduct:
    """The same by `rows_loop`; `swapped`: of the transposes, whose order is the other one."""

    __slots__ = ("_loop", "_numbers", "_swapped", "_threads", "_units")

    def __init__(self, count: int, loop: WorkLoop, swapped: bool, threads: int) -> None:
        chunk = -(-count // (4 * threads if threads > 1 else 1))
        self._units, self._numbers, self._threads = -(-count // chunk), (count, chunk), threads
        self._loop, self._swapped = loop, swapped

    def __call__(self, a: Ndarray, b: Ndarray, out: Ndarray) -> None:
        self._loop(self._units, self._numbers, (b, a, out) if self._swapped else (a, b, out), self._threads)


def stacked_product(a: Ndarray, b: Ndarray, out: Ndarray) -> Callable[[Ndarray, Ndarray, Ndarray], None] | None:
    """How to compute products of small matrices, if there are many, and results dense, turned or not; else None. Operands that are not
    evenly spaced are copied, which for matrices of few elements takes less time than a call for each.
    """
    (m, k), n, batch = a.shape[-2:], b.shape[-1], out.shape[:-2]
    if prod(batch) < costs.STACKED_FEWEST or max(m, k, n) > costs.STACKED_MOST or out.dtype.char not in _DTYPES:
        return None
    stacks = [_stack(x, batch) for x in (a, b)]
    copied = [stack is None and x.shape[:-2] == batch for stack, x in zip(stacks, (a, b), strict=True)]
    if not available() or (any(copied) and max(m, k, n) > costs.STACKED_LARGEST):
        return None
    left, right = (_dense(x) if own else stack for x, stack, own in zip((a, b), stacks, copied, strict=True))
    product = None if left is None or right is None else _product_of(a, b, out, left, right)
    if product is None or not any(copied):
        return product
    copies = [row_major if own else np.asarray for own in copied]
    return lambda a, b, out: product(copies[0](a), copies[1](b), out)


def _product_of(a: Ndarray, b: Ndarray, out: Ndarray, left: Stack, right: Stack) -> StackedProduct | RowsProduct | None:
    """The same for operands that lie as `left` and `right` say."""
    (m, k), n, batch = a.shape[-2:], b.shape[-1], out.shape[:-2]
    char, count, size = out.dtype.char, prod(batch), out.itemsize
    result = _stack(out, batch)
    if result is None or result.step != m * n * size:
        return None
    plain = (n == 1 or result.across == size) and (m == 1 or result.down == n * size)
    turned = (m == 1 or result.down == size) and (n == 1 or result.across == m * size)
    for swapped in [order for order, dense in ((False, plain), (True, turned)) if dense]:  # a line is dense both ways
        sizes, sides = ((n, k, m), (right.turned, left.turned)) if swapped else ((m, k, n), (left, right))
        if (made := _by_rows(_DTYPES[char], sizes, *sides)) is not None:
            threads = thread_count() if count * m * k * n >= costs.PRODUCT_SHARED else 1
            return RowsProduct(count, made, swapped, threads)
    if not (plain or turned) or max(m, k, n) > costs.STACKED_LARGEST:
        return None
    return StackedProduct(count, _loop(_DTYPES[char], (m, k, n), left, right, not plain))


def _by_rows(dtype: str, sizes: tuple[int, int, int], left: Stack, right: Stack) -> WorkLoop | None:
    """Products whose rows, those of results or of left matrices before a column, fill registers."""
    (_, k, n), size = sizes, itemsize(dtype)
    if n >= costs.STACKED_ROWS and right.across == size:
        return rows_loop(dtype, sizes, left, right)
    lines = n == 1 and k >= costs.STACKED_LINES and left.across == right.down == size
    return lines_loop(dtype, sizes[:2], left, right) if lines else None


def _dense(x: Ndarray) -> Stack:
    """How the matrices of a dense copy lie."""
    down = x.shape[-1] * x.itemsize
    return Stack(x.shape[-2] * down, down, x.itemsize)


def _stack(x: Ndarray, batch: Ints) -> Stack | None:
    """How matrices lie in memory; None unless they are evenly spaced, in the order of the batch, or one for all."""
    loops, (down, across) = x.shape[:-2], x.strides[-2:]
    if (1,) * (len(batch) - len(loops)) + loops != batch:
        return Stack(0, down, across) if prod(loops) == 1 else None
    real = [(n, s) for n, s in zip(loops, x.strides, strict=False) if n != 1]
    even = all(s == n * t for (_, s), (n, t) in pairwise(real))
    return Stack(real[-1][1] if real else 0, down, across) if even else None


@recent(64)
def _loop(dtype: str, sizes: tuple[int, int, int], left: Stack, right: Stack, turned: bool) -> StackLoop:
    """`turned`: results lie column by column."""
    m, k, n = sizes

    def write(w: Lanes, a: list[Lane], b: list[Lane]) -> list[list[Lane]]:
        rows, columns = [a[i * k : (i + 1) * k] for i in range(m)], [b[j::n] for j in range(n)]
        cells = [(i, j) for j in range(n) for i in range(m)] if turned else np.ndindex(m, n)
        return [[inner(w, rows[i], columns[j]) for i, j in cells]]

    spaced = Spaced(left.step, left.places(m, k)), Spaced(right.step, right.places(k, n))
    return StackLoop(dtype, (m * k, k * n), ((m * n, dtype),), write, [s.step == 0 for s in spaced], spaced=spaced)


def inner(w: Lanes, x: list[Lane], y: list[Lane]) -> Lane:
    """The sum of products, from the first on."""
    out = w.mul(x[0], y[0])
    for p, q in zip(x[1:], y[1:], strict=True):
        out = w.fma(p, q, out)
    return out
