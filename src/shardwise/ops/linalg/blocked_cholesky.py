"""Cholesky's factor of large matrices, block by block: rows of blocks in machine code, and the products that are subtracted by our BLAS.

The work is done on the transpose of the factor, whose rows are dense: some rows are factored, those columns that lie right of the
square at their beginning are solved for, and all rows below lose the product of these rows with themselves.
"""

from __future__ import annotations

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ndarray
from shardwise.ops.linalg.matrix_steps import BLOCKS_FROM, TILE
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import Lane, available, helpers, run_in_parts
from shardwise.runtime.memory import pool
from shardwise.runtime.products import blas, product_threads

_VECTORS = 8  # of a row of a block: sums that are added up side by side
_PRODUCT_ROWS = 128  # rows of a product, of which those left of the diagonal are computed in vain
_THREADS_FROM = 1 << 20  # multiplications of a product from which a second thread pays


def cholesky(x: Ndarray) -> Ndarray | None:
    """The lower factors of real matrices, whose lower triangles are read; None where LAPACK is as fast, or alone can do it."""
    n = x.shape[-1]
    if n < BLOCKS_FROM or not x.size or x.dtype.name not in ("float32", "float64") or not x.dtype.isnative:
        return None
    library = blas.library() if available() else None
    if library is None:
        return None
    out = pool.empty(x.shape, x.dtype)
    rows = _VECTORS * lanes_of(x.dtype.name)
    upper = pool.empty((n, -(-n // rows) * rows), x.dtype)
    upper[:, n:] = 0
    for source, target in zip(x.reshape(-1, n, n), out.reshape(-1, n, n), strict=True):
        _turn(source, upper)
        if not _factor(upper, n, rows, library):
            upper[:, :n] = np.nan
        _turn_back(upper, target)
    return out


def _turn(source: Ndarray, upper: Ndarray) -> None:
    """Copy the lower triangle, as rows."""
    n = len(source)

    def work(run: slice) -> None:
        for i in range(run.start * TILE, min(n, run.stop * TILE), TILE):
            for j in range(0, i + 1, TILE):
                upper[j : j + TILE, i : min(n, i + TILE)] = source[i : i + TILE, j : j + TILE].T

    run_in_parts(work, -(-n // TILE), 1, product_threads())


def _turn_back(upper: Ndarray, target: Ndarray) -> None:
    """Copy the rows from the diagonal on as columns, with zeros above the diagonal."""
    n = len(target)

    def work(run: slice) -> None:
        for i in range(run.start * TILE, min(n, run.stop * TILE), TILE):
            end = min(n, i + TILE)
            for j in range(0, i, TILE):
                target[i:end, j : j + TILE] = upper[j : j + TILE, i:end].T
            target[i:end, i:end] = np.tril(upper[i:end, i:end].T)
            target[i:end, end:] = 0

    run_in_parts(work, -(-n // TILE), 1, product_threads())


def _factor(upper: Ndarray, n: int, rows: int, library: blas.Library) -> bool:
    """Factor it where it lies; whether all pivots were positive."""
    width, name = upper.shape[1], upper.dtype.name
    for first in range(0, n, rows):
        count = min(rows, n - first)
        numbers = first, count, width
        _rows_loop(name, True)(1, numbers, (upper,), 1)
        chunks = (width - first) // rows - 1
        if not chunks:
            break
        threads = product_threads() if chunks * rows * count**2 >= _THREADS_FROM else 1
        _rows_loop(name, False)(chunks, numbers, (upper,), threads)
        _subtract_products(upper, n, first, count, library)
    return bool((upper.diagonal() > 0).all())


def _subtract_products(upper: Ndarray, n: int, first: int, count: int, library: blas.Library) -> None:
    """From the rows behind `count` rows, the products of these with themselves, right of the diagonal."""
    char, size, width = upper.dtype.char, upper.itemsize, upper.shape[1]
    gemm, one, start = library.gemm[char], library.called.one[char], upper.ctypes.data
    begins = iter(range(first + count, n, _PRODUCT_ROWS))  # a shared counter: taking the next is one step

    def work() -> None:
        for i in begins:
            left = start + (first * width + i) * size
            out, rows = start + (i * width + i) * size, min(_PRODUCT_ROWS, n - i)
            flags, sizes = (blas.ROW_MAJOR, blas.TRANSPOSED, blas.PLAIN), (rows, n - i, count)
            gemm(*flags, *sizes, -one, left, width, left, width, one, out, width)

    threads = product_threads() if count * (n - first - count) ** 2 >= _THREADS_FROM else 1
    if threads > 1:
        helpers.run(work, threads)
    else:
        work()


@recent(8)
def _rows_loop(dtype: str, diagonal: bool) -> WorkLoop:
    """The `count` rows from `first` on: of their square on the diagonal, or, a unit each, of the squares to the right of it."""

    def body(w: Function, unit: str) -> None:
        block = _VECTORS * w.width
        begin = "%first" if diagonal else w.integer("add", "%first", w.integer("mul", w.integer("add", unit, 1), block))

        def element(row: str, column: str) -> str:
            at = w.integer("add", w.integer("mul", w.integer("add", "%first", row), "%width"), column)
            return w.element("%upper", at, dtype)

        def vectors(row: str) -> list[str]:
            start = element(row, begin)
            return [w.element(start, v * w.width, dtype) for v in range(_VECTORS)]

        def line(r: str, _: list[str]) -> None:
            column = w.integer("add", "%first", r)

            def add_products(i: str, sums: list[Lane]) -> list[Lane]:
                factor = w.scalar(element(i, column), dtype)
                return [w.fma(factor, w.load(at, dtype), x) for at, x in zip(vectors(i), sums, strict=True)]

            # Products are added up before they are subtracted: beside a large element each one alone would be rounded more.
            places = vectors(r)
            sums = w.accumulate(0, r, add_products, [w.constant(0, dtype)] * _VECTORS, occurs=False)
            sums = [w.sub(w.load(at, dtype), x) for at, x in zip(places, sums, strict=True)]
            pivot = element(r, column)
            if diagonal:
                for x, at in zip(sums, places, strict=True):
                    w.store(x, at)
                root = w.call("sqrt", w.scalar(pivot, dtype))
            else:
                root = w.scalar(pivot, dtype)
            for x, at in zip(sums, places, strict=True):
                w.store(w.div(x, root), at)
            if diagonal:
                number = w.value(f"extractelement {w.vector(root.type)} {root.ref}, i64 0")
                w.line(f"store {root.type} {number}, ptr {pivot}, align 4")

        w.loop(0, "%count", line)

    return WorkLoop(("first", "count", "width"), ("upper",), lanes_of(dtype), body)
