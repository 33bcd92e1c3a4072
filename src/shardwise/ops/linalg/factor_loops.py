"""Factorisations of small matrices in machine code: Cholesky's, and LU with pivots.

`write_cholesky` and `write_lu` write the loops for one matrix; stacks of matrices and small programs are built of them. Rows are
taken vector by vector, and each row that is done is subtracted from those below it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import name_of
from shardwise.base.shapes import Ndarray
from shardwise.runtime.loops import Function, WorkLoop, Writer, lanes_of
from shardwise.runtime.machine import Lane, available, itemsize, thread_count
from shardwise.runtime.memory import pool

Steps = Sequence[int | str]  # bytes to the next row and to the next column

LARGEST = 96  # rows; LAPACK's blocks do better beyond
_PANEL = 4  # rows that are subtracted at a time
_FEWEST = 1 << 12  # multiplications of a stack from which a compiled loop pays
_THREADS_FROM = 1 << 19  # from which a second thread does


def width_for(n: int, most: int) -> int:
    """Lanes for rows of `n` elements, `most` being those of a register."""
    return min(most, 1 << (n - 1).bit_length()) if n else 1


def scratch_row(n: int, width: int) -> int:
    """Elements of a row of the scratch memory that `write_cholesky` needs: whole vectors."""
    return -(-n // width) * width


# -- Cholesky ----------------------------------------------------------------------------------------------------------------


def write_cholesky(
    w: Writer, n: int, dtype: str, width: int, source: str, steps: Steps, scratch: str, out: str, out_steps: Steps
) -> None:
    """The lower factor of the n x n matrix at `source`, of which the lower triangle counts, goes to `out`; it may be the same memory.

    `scratch` has room for n rows of `scratch_row` elements. A matrix that is not positive definite gives NaN.
    """
    upper = _Upper(w, n, dtype, width, scratch)
    upper.read(source, steps)
    fine = upper.factor()
    upper.write(out, out_steps, fine)


def _nothing(i: str, k: str) -> None:
    """A square that is left as it is."""


class _Upper:
    """The transpose of the factor: its rows are columns of the matrix, and dense. Elements left of its diagonal are not used."""

    def __init__(self, w: Writer, n: int, dtype: str, width: int, place: str) -> None:
        self.w, self.n, self.dtype, self.width, self.place = w, n, dtype, width, place
        self.size, self.row = itemsize(dtype), scratch_row(n, width)

    def element(self, i: str, k: str) -> str:
        """The address of an element."""
        return self.w.element(self.w.advance_address(self.place, i, self.row * self.size), k, self.dtype)

    def vectors(self, begin: str, body: Callable[[str], None]) -> None:
        """The vectors of a row from the one that holds element `begin` on."""
        first = self.w.integer("sub", begin, self.w.integer("urem", begin, self.width))
        self.w.loop(first, self.row, lambda k, _: body(k), step=self.width)

    def read(self, source: str, steps: Steps) -> None:
        """Copy the columns of a matrix from the diagonal down."""
        w, dtype = self.w, self.dtype
        if self._has_tiles(steps):

            def tile(i: str, k: str) -> None:
                lines = [
                    w.advance_address(w.advance_address(source, w.integer("add", i, r), steps[0]), k, self.size)
                    for r in range(self.width)
                ]
                for r, x in enumerate(w.transpose_rows([w.load(line, dtype) for line in lines])):
                    w.store(x, self.element(w.integer("add", k, r), i))

            self._tiles(tile)
            return

        def column(j: str, _: list[str]) -> None:
            w.at(self.width)
            self.vectors("0", lambda k: w.store(w.constant(0, dtype), self.element(j, k)))
            w.at(1)
            top = w.advance_address(source, j, steps[1])
            w.loop(
                j, self.n, lambda i, _: w.store(w.load(w.advance_address(top, i, steps[0]), dtype), self.element(j, i))
            )

        w.loop(0, self.n, column)

    def factor(self) -> str:
        """Factor it where it lies; an i1 that says whether all pivots were positive."""
        whole = self.n - self.n % _PANEL
        (fine,) = self.w.loop(
            0, whole, lambda j, held: [self._panel(j, _PANEL, held[0])], [("i1", "true")], step=_PANEL
        )
        return self._panel(str(whole), self.n - whole, fine) if whole < self.n else fine

    def _panel(self, first: str, count: int, fine: str) -> str:
        """`count` rows, one after the other, which then are subtracted from all rows below them at once."""
        w, dtype = self.w, self.dtype
        w.at(self.width)
        rows = [w.integer("add", first, q) for q in range(count)]
        for q, j in enumerate(rows):
            if q:
                self._subtract(rows[:q], first, j)
            pivot = w.scalar(self.element(j, j), dtype)
            positive = w.compare("gt", pivot, w.constant(0, dtype))
            one = w.value(f"extractelement {w.vector('i1')} {positive.ref}, i64 0")
            fine = w.value(f"and i1 {fine}, {one}")
            root = w.call("sqrt", pivot)

            def scale(k: str, j: str = j, root: Lane = root) -> None:
                at = self.element(j, k)
                w.store(w.div(w.load(at, dtype), root), at)

            self.vectors(first, scale)
            number = w.value(f"extractelement {w.vector(root.type)} {root.ref}, i64 0")
            w.line(f"store {root.type} {number}, ptr {self.element(j, j)}, align {self.size}")
        below = w.integer("add", first, count)
        w.loop(below, self.n, lambda i, _: self._subtract(rows, i, i), occurs=False)
        return fine

    def _subtract(self, rows: Sequence[str], begin: str, i: str) -> None:
        """Subtract multiples of `rows` from row i, from element `begin` on."""
        w, dtype = self.w, self.dtype
        w.at(self.width)
        factors = [w.neg(w.scalar(self.element(j, i), dtype)) for j in rows]

        def part(k: str) -> None:
            at = self.element(i, k)
            x = w.load(at, dtype)
            for j, factor in zip(rows, factors, strict=True):
                x = w.fma(factor, w.load(self.element(j, k), dtype), x)
            w.store(x, at)

        self.vectors(begin, part)

    def write(self, out: str, steps: Steps, fine: str) -> None:
        """Its transpose with zeros above the diagonal; unless `fine`, NaN below."""
        w, dtype = self.w, self.dtype
        if self._has_tiles(steps):
            good, zero = Lane(w.splat(fine, "bool").ref, "bool"), w.constant(0, dtype)
            nan_lane = w.constant(np.nan, dtype)

            def place(i: str, k: str, r: int) -> str:
                return w.advance_address(w.advance_address(out, w.integer("add", i, r), steps[0]), k, self.size)

            def lower(i: str, k: str) -> None:
                diagonal = w.splat(w.test("eq", i, k), "bool")
                read = [w.load(self.element(w.integer("add", k, r), i), dtype) for r in range(self.width)]
                for r, x in enumerate(w.transpose_rows(read)):
                    above = ", ".join(f"i1 {'true' if c > r else 'false'}" for c in range(self.width))
                    hidden = w.binary("and", diagonal, Lane(f"<{above}>", "bool"))
                    w.store(w.select(hidden, zero, w.select(good, x, nan_lane)), place(i, k, r))

            def upper(i: str, k: str) -> None:
                for r in range(self.width):
                    w.store(zero, place(i, k, r))

            self._tiles(lower, upper)
            return
        w.at(1)
        mask = w.splat(fine, "bool")
        nan_lane, zero = w.constant(np.nan, dtype), w.constant(0, dtype)

        def line(i: str, _: list[str]) -> None:
            start = w.advance_address(out, i, steps[0])

            def lower(k: str, _: list[str]) -> None:
                w.store(
                    w.select(mask, w.load(self.element(k, i), dtype), nan_lane), w.advance_address(start, k, steps[1])
                )

            after = w.integer("add", i, 1)
            w.loop(0, after, lower)
            w.loop(after, self.n, lambda k, _: w.store(zero, w.advance_address(start, k, steps[1])), occurs=False)

        w.loop(0, self.n, line)

    def _has_tiles(self, steps: Steps) -> bool:
        return self.n % self.width == 0 and self.width > 2 and steps[1] == self.size

    def _tiles(self, lower: Callable[[str, str], None], upper: Callable[[str, str], None] = _nothing) -> None:
        """Squares of `width` rows and columns by their first row and column: those with some of the lower triangle, and others."""
        w = self.w.at(self.width)

        def line(i: str, _: list[str]) -> None:
            after = w.integer("add", i, self.width)
            w.loop(0, after, lambda k, _: lower(i, k), step=self.width)
            if upper is not _nothing:
                w.loop(after, self.n, lambda k, _: upper(i, k), step=self.width, occurs=False)

        w.loop(0, self.n, line, step=self.width)


def cholesky(x: Ndarray) -> Ndarray | None:
    """Lower factors of stacks of real matrices; None where LAPACK is as fast."""
    n, count = x.shape[-1], prod(x.shape[:-2])
    if not 1 < n <= LARGEST or count < 2 or count * n**3 < _FEWEST or name_of(x.dtype) not in ("float32", "float64"):
        return None
    if not available():
        return None
    x, out = np.ascontiguousarray(x), pool.empty(x.shape, x.dtype)
    threads = thread_count() if count * n**3 >= _THREADS_FROM else 1
    chunk = -(-count // min(count, 4 * threads if threads > 1 else 1))
    units = -(-count // chunk)
    loop, room = _cholesky_loop(n, name_of(x.dtype))
    loop(units, (count, chunk), (x, out, np.empty((units, room), np.uint8)), threads)
    return out


@recent(64)
def _cholesky_loop(n: int, dtype: str) -> tuple[WorkLoop, int]:
    """Unit: a run of matrices; and the bytes of scratch memory that a unit needs."""
    width, size = width_for(n, lanes_of(dtype)), itemsize(dtype)
    room = n * scratch_row(n, width) * size

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))
        scratch, steps = w.advance_address("%scratch", unit, room), (n * size, size)

        def matrix(i: str, _: list[str]) -> None:
            source, out = (w.advance_address(p, i, n * n * size) for p in ("%x", "%out"))
            write_cholesky(w, n, dtype, width, source, steps, scratch, out, steps)

        w.loop(begin, end, matrix)

    return WorkLoop(("count", "chunk"), ("x", "out", "scratch"), width, body), room


# -- LU ----------------------------------------------------------------------------------------------------------------------


def write_lu(
    w: Writer, shape: tuple[int, int], dtype: str, width: int, matrix: str, down: int, pivots: str, order: str
) -> None:
    """The packed factors of the matrix at `matrix` take its place; rows are dense, `down` bytes apart.

    `pivots` takes the row that each row was exchanged with, `order` the order of rows that this makes; both int32.
    """
    assert down >= shape[1] * itemsize(dtype)
    _Lu(w, shape, dtype, width, matrix, down, pivots, order).write()


def lu(x: Ndarray) -> tuple[Ndarray, Ndarray, Ndarray] | None:
    """Packed factors, pivots counted from 0 and the order of rows, of real matrices; None where LAPACK is as fast."""
    (m, n), count = x.shape[-2:], prod(x.shape[:-2])
    if not 0 < min(m, n) <= max(m, n) <= LARGEST or not count or name_of(x.dtype) not in ("float32", "float64"):
        return None
    if not available():
        return None
    out = pool.empty(x.shape, x.dtype)
    np.copyto(out, x)
    pivots, order = (np.empty((*x.shape[:-2], size), np.int32) for size in (min(m, n), m))
    work = count * m * n * min(m, n)
    threads = thread_count() if work >= _THREADS_FROM else 1
    units = min(count, 4 * threads if threads > 1 else 1)
    _lu_loop(m, n, name_of(x.dtype))(units, (count, -(-count // units)), (out, pivots, order), threads)
    return out, pivots, order


@recent(64)
def _lu_loop(m: int, n: int, dtype: str) -> WorkLoop:
    """Unit: a run of matrices."""
    width, size = width_for(n, lanes_of(dtype)), itemsize(dtype)

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def matrix(i: str, _: list[str]) -> None:
            steps = (m * n * size, 4 * min(m, n), 4 * m)
            places = [w.advance_address(p, i, s) for p, s in zip(("%out", "%pivots", "%order"), steps, strict=True)]
            write_lu(w, (m, n), dtype, width, places[0], n * size, *places[1:])

        w.loop(begin, end, matrix, occurs=False)

    return WorkLoop(("count", "chunk"), ("out", "pivots", "order"), width, body)


class _Lu:
    """Writes `write_lu`: each step finds a pivot, brings its row up, and subtracts that from the rows below."""

    def __init__(
        self, w: Writer, shape: tuple[int, int], dtype: str, width: int, matrix: str, down: int, pivots: str, order: str
    ) -> None:
        self.w, (self.m, self.n), self.dtype, self.width = w, shape, dtype, width
        self.matrix, self.down, self.pivots, self.order = matrix, down, pivots, order

    def write(self) -> None:
        w = self.w

        def number(i: str, _: list[str]) -> None:
            w.at(1)
            lane = w.splat(w.value(f"trunc i64 {i} to i32"), "int32")
            w.store(Lane(lane.ref, "int32"), w.element(self.order, i, "int32"))

        w.loop(0, self.m, number)
        w.loop(0, min(self.m, self.n), self._step)

    def _element(self, i: str, k: str) -> str:
        return self.w.element(self.w.advance_address(self.matrix, i, self.down), k, self.dtype)

    def _step(self, j: str, _: list[str]) -> None:
        w, dtype = self.w, self.dtype
        after = w.integer("add", j, 1)
        w.at(1)
        at = self._pivot(j, after)
        number = w.value(f"trunc i64 {at} to i32")
        w.line(f"store i32 {number}, ptr {w.element(self.pivots, j, 'int32')}, align 4")
        w.branch(w.test("ne", at, j), lambda: self._exchange(j, at))
        w.at(1)
        pivot = w.load(self._element(j, j), dtype)
        divides = w.compare("ne", pivot, w.constant(0, dtype))
        pivot = w.select(divides, pivot, w.constant(1, dtype))  # all below a zero are zero
        rest = w.integer("sub", self.n, after)
        w.loop(after, self.m, lambda i, _: self._subtract(i, j, pivot, after, rest), occurs=False)

    def _pivot(self, j: str, after: str) -> str:
        """The row of the first largest number of column j, from row j on."""
        w, dtype = self.w, self.dtype

        def larger(i: str, carried: list[str]) -> list[str]:
            w.at(1)
            x, best = w.abs(w.load(self._element(i, j), dtype)), Lane(carried[0], dtype)
            above = w.compare("gt", x, best)
            one = w.value(f"extractelement <1 x i1> {above.ref}, i64 0")
            return [w.select(above, x, best).ref, w.pick(one, i, carried[1])]

        first = w.abs(w.load(self._element(j, j), dtype))
        return w.loop(after, self.m, larger, [(w.vector(first.type), first.ref), ("i64", j)], occurs=False)[1]

    def _exchange(self, j: str, other: str) -> None:
        """Exchange two rows, and their numbers in the order."""
        w, dtype = self.w, self.dtype
        w.at(self.width)

        def part(k: str, mask: str | None) -> None:
            here, there = self._element(j, k), self._element(other, k)
            x, y = w.load(here, dtype, mask), w.load(there, dtype, mask)
            w.store(y, here, mask)
            w.store(x, there, mask)

        w.parts(self.n, part)
        w.at(1)
        here, there = w.element(self.order, j, "int32"), w.element(self.order, other, "int32")
        x, y = w.load(here, "int32"), w.load(there, "int32")
        w.store(y, here)
        w.store(x, there)

    def _subtract(self, i: str, j: str, pivot: Lane, after: str, rest: str) -> None:
        """From row i, right of column j, the multiple of row j that makes its number in column j zero; that factor is kept there."""
        w, dtype = self.w, self.dtype
        w.at(1)
        head = self._element(i, j)
        w.store(w.div(w.load(head, dtype), pivot), head)
        w.at(self.width)
        factor = w.neg(w.scalar(head, dtype))
        line, source = self._element(i, after), self._element(j, after)

        def part(k: str, mask: str | None) -> None:
            at = w.element(line, k, dtype)
            x = w.load(w.element(source, k, dtype), dtype, mask)
            w.store(w.fma(factor, x, w.load(at, dtype, mask)), at, mask)

        w.parts(rest, part)
