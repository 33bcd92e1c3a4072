"""Products of many small matrices whose rows fill registers: lanes are elements of a row, and a block of rows stays in registers.

`stacked` has a matrix per lane instead, which does for smaller ones.
"""

from __future__ import annotations

from shardwise.base.caches import recent
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import Lane, itemsize

_COLUMNS = 3
_BLOCK = 12  # registers of results at a time: with those of a row of the right matrix and one element they are 16


@recent(64)
def rows_loop(dtype: str, sizes: tuple[int, int, int], turned: bool, shared: tuple[bool, bool]) -> WorkLoop:
    """Unit: `chunk` of `count` products of left (m, k) and right (k, n) matrices, right ones and results row by row.

    Args:
        dtype: float32 or float64.
        sizes: m, k and n.
        turned: whether left matrices lie column by column.
        shared: whether there is one left, one right matrix for all.
    """
    m, k, n = sizes
    lanes, size = lanes_of(dtype), itemsize(dtype)
    width = min(lanes, 1 << (n.bit_length() - 1))
    firsts = [min(j, n - width) for j in range(0, n, width)]  # the last register of a row ends with it
    most = -(-len(firsts) // -(-len(firsts) // _COLUMNS))  # registers of a row at a time
    down, along = (size, m * size) if turned else (k * size, size)

    def block(w: Function, left: str, right: str, out: str, rows: int, columns: list[int]) -> None:
        sums: list[list[Lane]] = [[] for _ in range(rows)]
        for p in range(k):
            line = [w.load(w.moved(right, 1, (p * n + j) * size), dtype) for j in columns]
            for i in range(rows):
                x = w.scalar(w.moved(left, 1, i * down + p * along), dtype)
                sums[i] = (
                    [w.fma(x, y, s) for y, s in zip(line, sums[i], strict=True)] if p else [w.mul(x, y) for y in line]
                )
        for i, row in enumerate(sums):
            for j, x in zip(columns, row, strict=True):
                w.store(x, w.moved(out, 1, (i * n + j) * size))

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def product(number: str, _: list[str]) -> None:
            w.at(width)
            spans = (0 if shared[0] else m * k * size, 0 if shared[1] else k * n * size, m * n * size)
            left, right, out = (w.moved(f"%{x}", number, span) for x, span in zip("xyz", spans, strict=True))
            for c in range(0, len(firsts), most):
                columns = firsts[c : c + most]
                rows = min(m, max(1, _BLOCK // len(columns)))
                whole = m - m % rows

                def some(i: str, _: list[str], rows: int = rows, columns: list[int] = columns) -> None:
                    block(w, w.moved(left, i, down), right, w.moved(out, i, n * size), rows, columns)

                w.loop(0, whole, some, step=rows)
                if whole < m:
                    some(str(whole), [], m - whole)

        w.loop(begin, end, product)
        w.at(lanes)

    return WorkLoop(("count", "chunk"), ("x", "y", "z"), lanes, body)
