"""Products of many small matrices whose rows fill registers: lanes are elements of a row, and a block of rows stays in registers.

`stacked` has a matrix per lane instead, which does for smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shardwise.base.caches import recent
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import Lane, itemsize

_COLUMNS = 3
_BLOCK = 12  # registers of results at a time: with those of a row of the right matrix and one element they are 16


class Stack(NamedTuple):
    """How matrices lie in memory: bytes from one to the next (0: one for all), from row to row and from column to column."""

    step: int
    down: int
    across: int

    @property
    def turned(self) -> Stack:
        """The transposes."""
        return Stack(self.step, self.across, self.down)

    def places(self, rows: int, columns: int) -> tuple[int, ...]:
        """Where the elements of a matrix lie, row by row."""
        return tuple([i * self.down + j * self.across for i in range(rows) for j in range(columns)])


@recent(64)
def rows_loop(dtype: str, sizes: tuple[int, int, int], left: Stack, right: Stack) -> WorkLoop:
    """Unit: `chunk` of `count` products of left (m, k) and right (k, n) matrices; rows of right ones, and results, are dense.

    Args:
        dtype: float32 or float64.
        sizes: m, k and n.
        left: how the left matrices lie.
        right: how the right ones lie.
    """
    m, k, n = sizes
    lanes, size = lanes_of(dtype), itemsize(dtype)
    width = min(lanes, 1 << (n.bit_length() - 1))
    firsts = [min(j, n - width) for j in range(0, n, width)]  # the last register of a row ends with it
    most = -(-len(firsts) // -(-len(firsts) // _COLUMNS))  # registers of a row at a time

    def block(w: Function, x: str, y: str, out: str, rows: int, columns: list[int]) -> None:
        sums: list[list[Lane]] = [[] for _ in range(rows)]
        for p in range(k):
            line = [w.load(w.advance_address(y, 1, p * right.down + j * size), dtype) for j in columns]
            for i in range(rows):
                one = w.scalar(w.advance_address(x, 1, i * left.down + p * left.across), dtype)
                sums[i] = (
                    [w.fma(one, v, s) for v, s in zip(line, sums[i], strict=True)]
                    if p
                    else [w.mul(one, v) for v in line]
                )
        for i, row in enumerate(sums):
            for j, value in zip(columns, row, strict=True):
                w.store(value, w.advance_address(out, 1, (i * n + j) * size))

    def product(w: Function, x: str, y: str, out: str) -> None:
        w.at(width)
        for c in range(0, len(firsts), most):
            columns = firsts[c : c + most]
            rows = _even_block(m, max(1, _BLOCK // len(columns)))
            whole = m - m % rows

            def some(i: str, _: list[str], rows: int = rows, columns: list[int] = columns) -> None:
                block(w, w.advance_address(x, i, left.down), y, w.advance_address(out, i, n * size), rows, columns)

            w.loop(0, whole, some, step=rows)
            if whole < m:
                some(str(whole), [], m - whole)

    return _each(lanes, (left.step, right.step, m * n * size), product)


@recent(64)
def lines_loop(dtype: str, sizes: tuple[int, int], left: Stack, right: Stack) -> WorkLoop:
    """Unit: `chunk` of `count` products of left (m, k) matrices and columns of k elements; rows of matrices, columns and results are
    dense. The sums of some rows are added up together.

    Args:
        dtype: float32 or float64.
        sizes: m and k.
        left: how the left matrices lie.
        right: how the columns lie.
    """
    m, k = sizes
    lanes, size = lanes_of(dtype), itemsize(dtype)
    width = min(lanes, 1 << (k.bit_length() - 1))
    parts = range(0, k, width)

    def read(w: Function, place: str) -> list[Lane]:
        at = [w.advance_address(place, 1, p * size) for p in parts]
        if not k % width:
            return [w.load(p, dtype) for p in at]
        rest = ", ".join(f"i1 {int(i < k % width)}" for i in range(width))
        return [*(w.load(p, dtype) for p in at[:-1]), w.load(at[-1], dtype, f"<{rest}>", w.constant(0.0, dtype))]

    def block(w: Function, x: str, column: list[Lane], out: str, rows: int) -> None:
        w.at(width)
        sums = [w.constant(0.0, dtype)] * width
        for i in range(rows):
            line = read(w, w.advance_address(x, 1, i * left.down))
            sums[i] = w.mul(line[0], column[0])
            for one, other in zip(line[1:], column[1:], strict=True):
                sums[i] = w.fma(one, other, sums[i])
        w.store(w.shuffle_lanes(w.sum_rows(sums), width, range(rows)), out)

    def product(w: Function, x: str, y: str, out: str) -> None:
        w.at(width)
        column, rows = read(w, y), min(m, width)

        def some(i: str, _: list[str]) -> None:
            block(w, w.advance_address(x, i, left.down), column, w.advance_address(out, i, size), rows)

        w.loop(0, m - m % rows, some, step=rows)
        if m % rows:
            some(str(m - rows), [])  # the last rows once more

    return _each(lanes, (left.step, right.step, m * size), product)


def _each(lanes: int, spans: tuple[int, int, int], product: Callable[[Function, str, str, str], None]) -> WorkLoop:
    """`product(writer, left, right, result)` at the addresses of each product of a unit, which are `spans` apart."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def one(number: str, _: list[str]) -> None:
            product(w, *(w.advance_address(f"%{name}", number, span) for name, span in zip("xyz", spans, strict=True)))

        w.loop(begin, end, one)
        w.at(lanes)

    return WorkLoop(("count", "chunk"), ("x", "y", "z"), lanes, body)


def _even_block(m: int, most: int) -> int:
    """How many of m rows to take at a time, up to `most`: if possible so that no block is left with fewer, which is more text."""
    most = min(m, most)
    return next((rows for rows in range(most, most // 2, -1) if m % rows == 0), most)
