"""Products of many small matrices whose rows fill registers: lanes are elements of a row, and a block of rows stays in registers.

`stacked` has a matrix per lane instead, which does for smaller ones.
"""

from __future__ import annotations

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

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def product(number: str, _: list[str]) -> None:
            w.at(width)
            spans = left.step, right.step, m * n * size
            x, y, out = (w.advance_address(f"%{name}", number, span) for name, span in zip("xyz", spans, strict=True))
            for c in range(0, len(firsts), most):
                columns = firsts[c : c + most]
                rows = _even_block(m, max(1, _BLOCK // len(columns)))
                whole = m - m % rows

                def some(i: str, _: list[str], rows: int = rows, columns: list[int] = columns) -> None:
                    block(w, w.advance_address(x, i, left.down), y, w.advance_address(out, i, n * size), rows, columns)

                w.loop(0, whole, some, step=rows)
                if whole < m:
                    some(str(whole), [], m - whole)

        w.loop(begin, end, product)
        w.at(lanes)

    return WorkLoop(("count", "chunk"), ("x", "y", "z"), lanes, body)


def _even_block(m: int, most: int) -> int:
    """How many of m rows to take at a time, up to `most`: if possible so that no block is left with fewer, which is more text."""
    most = min(m, most)
    return next((rows for rows in range(most, most // 2, -1) if m % rows == 0), most)
