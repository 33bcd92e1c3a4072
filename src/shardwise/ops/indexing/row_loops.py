"""Compiled loops that read, put or combine rows of a table at given positions, and check bounds as they move each row.

Threads that write divide the rows of the table among them, where these have enough columns; where there are few positions, also the
columns. Repeated positions combine every row, in order. Threads that read divide the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ndarray
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.indexing.row_places import Places, PositionDims, PositionForm, RowVectors, row_at
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.copies import row_major
from shardwise.runtime.loops import Call, Function, WorkLoop, lanes_of
from shardwise.runtime.machine import RARE, TYPES, Lane, Lanes, available, thread_count
from shardwise.runtime.memory import pool

FEWEST = 1 << 12  # elements; from here on a compiled loop is faster
COMBINED_FEWEST = 1 << 9  # the same for combined rows: NumPy takes 100 ns for an element
THREADS_FROM = 1 << 16  # elements; from here on a second thread is faster
_COLUMNS = 64  # least number of columns per thread
# How many rows ahead so many cache lines are prefetched; the processor itself sees that the lines after these follow each other.
_AHEAD, _LINES = 4, 4
CHUNK = 1 << 14  # elements that a thread reads per chunk
_FEW = 4  # positions per class of rows; where there are fewer, threads divide the columns, too
_RUNS = 4  # parts, each with a table of its own, into which threads divide many rows with few columns
_MANY = 8  # times the table's size; with this many elements or more, rows are divided over tables


def _put(w: Lanes, old: Lane, new: Lane) -> Lane:
    return new


_WRITERS = {
    None: _put,
    np.add: Lanes.add,
    np.subtract: Lanes.sub,
    np.multiply: Lanes.mul,
    np.minimum: ir.MIN.write,
    np.maximum: ir.MAX.write,
}
BY_SIZE = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}  # types of the same size


def combined_rows(
    table: Ndarray,
    position: Ndarray | Sequence[Ndarray],
    rows: Ndarray,
    ufunc: Any,
    *,
    grid: PositionDims | None = None,
    wrap: bool = False,
    clip: bool = False,
) -> bool:
    """``table[position[i]] = ufunc(table[position[i]], rows[i])`` for each i in order; `ufunc` None puts the rows.

    `wrap`: negative positions count from the end. Positions out of bounds are skipped, or clamped if `clip`. Returns False, and
    changes nothing, if no code exists. `table` is C-contiguous, of shape (n, columns); `position` as `Places.of` takes it.
    """
    combiner = row_combiner(table.shape, table.dtype, position, rows, ufunc, grid=grid, wrap=wrap, clip=clip)
    if combiner is None:
        return False
    combiner.combine(table)
    return True


class RowCombiner(NamedTuple):
    """A compiled call that combines rows with a table.

    Attributes:
        call: the call, on the addresses of the table, the rows and the columns.
        rows: the rows, as the call reads them.
        columns: of the positions.
        ufunc: that of elements.
        runs: the parts of the rows, each of which is combined with a table of its own.
    """

    call: Call
    rows: Ndarray
    columns: tuple[Ndarray, ...]
    ufunc: Any
    runs: int

    def combine(self, table: Ndarray) -> None:
        """Combine the rows with those of a table."""
        self.combine_at(table, address(self.rows), [address(c) for c in self.columns])

    def combine_at(self, table: Ndarray, rows: int, columns: Sequence[int]) -> None:
        """Combine rows at this address, which lie as `rows`, with those of a table, at positions whose columns lie at these addresses."""
        if self.rows.dtype != table.dtype:
            table = table.view(self.rows.dtype)
        tables = table if self.runs == 1 else _tables(table, self.ufunc, self.runs)
        self.call(address(tables), rows, *columns)
        if self.runs > 1:
            merge: Any = np.add if self.ufunc is np.subtract else self.ufunc
            for part in tables:
                merge(table, part, out=table)


def row_combiner(
    shape: Sequence[int],
    dtype: np.dtype[Any],
    position: Ndarray | Sequence[Ndarray],
    rows: Ndarray,
    ufunc: Any,
    *,
    grid: PositionDims | None = None,
    wrap: bool = False,
    clip: bool = False,
    fewest: int | None = None,
) -> RowCombiner | None:
    """How `combined_rows` does it, for any table of this shape and type; None if no code exists, or where it would not pay: for fewer
    elements than `fewest`.
    """
    # NumPy leaves open which of two zeros is greater.
    exact = ufunc in (np.minimum, np.maximum) and dtype.kind not in "biu"
    if (
        (rows.size < (COMBINED_FEWEST if fewest is None else fewest) and not exact)
        or not rows.size
        or ufunc not in _WRITERS
        or not available()
    ):
        return None
    places = Places.of(position, grid, shape[0])
    if not places.is_readable:
        return None
    rows = _readable(rows)
    if ufunc is None and dtype.itemsize in BY_SIZE:
        rows = rows.view(BY_SIZE[rows.itemsize])
    elif dtype.kind == "c" and ufunc in (np.add, np.subtract):
        rows = rows.view(rows.real.dtype)
    if not _combines(ufunc, rows.dtype):
        return None
    size, width = shape[0], shape[1] * dtype.itemsize // rows.itemsize
    threads = thread_count() if rows.size >= THREADS_FROM else 1
    many = width < _COLUMNS and rows.size >= max(THREADS_FROM, _MANY * size * width)
    runs = _RUNS if many and _apart(ufunc, rows.dtype) else 1
    step = rows.strides[0] // rows.itemsize
    call = _combiner(ufunc, rows.dtype, (size, width), *places.kind, wrap, clip, step, runs, threads)
    return RowCombiner(call, rows, places.columns, ufunc, runs)


@recent(256)
def _combines(ufunc: Any, dtype: np.dtype[Any]) -> bool:
    """Whether loops combine elements of this type."""
    if dtype.name not in TYPES or dtype.kind == "c" or not dtype.isnative:
        return False
    return dtype.kind != "b" or ufunc in (np.minimum, np.maximum)


def _readable(rows: Ndarray) -> Ndarray:
    """`rows` as loops read them: the elements of each lie side by side. Rows that are all the same stay one row."""
    step, apart = rows.strides
    if step == 0 or len(rows) == 1:
        return np.broadcast_to(np.ascontiguousarray(rows[:1]), rows.shape)
    if (apart == rows.itemsize or rows.shape[1] == 1) and step % rows.itemsize == 0:
        return rows
    return row_major(rows)


def index_type(places: Places, size: int) -> str:
    """The type of positions in registers."""
    return "int32" if places.fits_int32 and size < 1 << 31 else "int64"


def _combining_loop(ufunc: Any, dtype: np.dtype[Any], columns: int, form: PositionForm, index: str) -> WorkLoop:
    if columns == 1:
        return _combining_elements(ufunc, dtype.name, form, index)
    return _combine_loop(ufunc, dtype.name, form, _known_columns(columns))


@recent(256)
def _combiner(
    ufunc: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, int],
    count: int,
    apart: int,
    number: np.dtype[Any],
    grid: PositionDims,
    wrap: bool,
    clip: bool,
    step: int,
    runs: int,
    threads: int,
) -> Call:
    """The call that combines `count` rows, `step` elements apart, with a table of that shape, or each of `runs` parts of them with a table
    of its own, on the addresses of the tables, the rows and the columns.
    """
    places, (size, columns) = Places.like(count, apart, number, grid), shape
    loop = _combining_loop(ufunc, dtype, columns, places.form(wrap, clip), index_type(places, size))
    classes = parts = 1
    if threads > 1 and columns >= 2 * _COLUMNS:
        shares = 1 << (2 * threads - 1).bit_length()  # some are done sooner than others
        classes = min(shares, 1 << (count // _FEW).bit_length() >> 1 or 1)
        parts = max(1, min(shares // classes, columns // _COLUMNS))
    width, length = -(-columns // parts), -(-count // runs)
    numbers = count, length, size * columns, columns, width, parts, classes, step, *places.numbers
    return loop.call(runs * parts * classes, numbers, threads, costs.DRAFT_MOVED * count * columns)


def _apart(ufunc: Any, dtype: np.dtype[Any]) -> bool:
    """Whether partial results are as accurate as one sum: narrow floats round too much."""
    return ufunc is not None and (dtype.kind in "iu" or dtype.itemsize >= 4)


def _tables(table: Ndarray, ufunc: Any, runs: int) -> Ndarray:
    """Tables into which parts of many rows with few columns are combined; these are then combined with `table`, in order."""
    if ufunc in (np.minimum, np.maximum):
        return np.repeat(table[None], runs, 0)
    start = 1 if ufunc is np.multiply else -0.0 if table.dtype.kind == "f" else 0  # 0 plus -0 is not -0
    return np.full((runs, *table.shape), start, table.dtype)


def taken_rows(
    table: Ndarray,
    position: Ndarray | Sequence[Ndarray],
    fill: Any,
    *,
    grid: PositionDims | None = None,
    wrap: bool = False,
    run: int = 1,
) -> Ndarray | None:
    """``table[position]``, of each position that row and those after it, `run` in all, which are in the table; positions out of bounds
    are clamped, or give `fill` if that is not None.

    `wrap`: negative positions count from the end. Returns None if no code exists. `table` is C-contiguous, of shape (n, columns);
    `position` as `Places.of` takes it.
    """
    taker = row_taker(table.shape, table.dtype, position, fill, grid=grid, wrap=wrap, run=run)
    return None if taker is None else taker.take(table)


class RowTaker(NamedTuple):
    """How rows are taken from a table: the call, on the addresses of the table, the result, `fills` and the `columns` of the positions."""

    call: Call
    shape: tuple[int, int]
    fills: Ndarray
    columns: tuple[Ndarray, ...]

    def take(self, table: Ndarray) -> Ndarray:
        """The rows of a table."""
        out = pool.empty(self.shape, table.dtype)
        self.call(address(table), address(out), address(self.fills), *map(address, self.columns))
        return out


def row_taker(
    shape: Sequence[int],
    dtype: np.dtype[Any],
    position: Ndarray | Sequence[Ndarray],
    fill: Any,
    *,
    grid: PositionDims | None = None,
    wrap: bool = False,
    run: int = 1,
    fewest: int | None = None,
) -> RowTaker | None:
    """How `taken_rows` does it, for any table of this shape and type; None if no code exists, or for fewer elements than `fewest`."""
    size, width = shape
    if not size or dtype.itemsize not in BY_SIZE or dtype.hasobject or not available():
        return None
    places = Places.of(position, grid, size)
    count = len(places)
    columns = run * width
    elements = count * columns
    if elements < (FEWEST if fewest is None else fewest) or not places.is_readable:
        return None
    fill_bytes = None if fill is None else np.asarray(fill, dtype).tobytes()
    threads = thread_count() if elements >= THREADS_FROM else 1
    call, fills = _taker(dtype, (size, width), *places.kind, wrap, fill_bytes, run, threads)
    return RowTaker(call, (count, columns), fills, places.columns)


@recent(256)
def _taker(
    dtype: np.dtype[Any],
    shape: tuple[int, int],
    count: int,
    apart: int,
    number: np.dtype[Any],
    grid: PositionDims,
    wrap: bool,
    fill: bytes | None,
    run: int,
    threads: int,
) -> tuple[Call, Ndarray]:
    """The call that takes `count` times `run` rows of a table of that shape, on the addresses of the table, the result, as many fill
    values, which come along, and the columns.
    """
    places, (size, columns), raw = Places.like(count, apart, number, grid), shape, np.dtype(BY_SIZE[dtype.itemsize])
    form = places.form(wrap, fill is None)
    fills = np.frombuffer((bytes(dtype.itemsize) if fill is None else fill) * columns * run, raw)
    columns = len(fills)
    chunk = max(1, CHUNK // max(columns, 1))
    if columns == 1 and raw.itemsize >= 4:  # gather instructions load 4 or 8 bytes
        loop = _gather_loop(raw.name, form, index_type(places, size))
    else:
        loop = _take_loop(raw.name, form, _known_columns(columns), run)
    numbers = count, columns, chunk, *places.numbers
    return loop.call(-(-count // chunk), numbers, threads, costs.DRAFT_MOVED * count * columns), fills


def _known_columns(columns: int) -> int:
    """The number of columns that the text of a loop has; 0 where it gets the number, as of many columns, which threads divide."""
    return columns if columns <= _COLUMNS else 0


def _along_columns(w: Function, columns: str, known: int, body: Callable[[str, str | None], object]) -> None:
    """`body(first column, mask)` for the vectors of a row. Those of a known number of columns need no masks, and get narrower."""
    if not known:
        w.parts(columns, body)
        return
    width, first = w.width, 0
    while first < known:
        here = min(width, 1 << ((known - first).bit_length() - 1))
        w.at(here)
        body(str(first), None)
        first += here
    w.at(width)


def _combining_names(form: PositionForm) -> tuple[str, ...]:
    return ("count", "length", "table_size", "columns", "width", "parts", "classes", "step", *form.numbers)


class _CombinedRun:
    """The share of one unit of a combining loop: columns `begin` to `end` of a run of rows, and the table for that run. The unit takes
    the rows whose number, modulo a power of two, is its own.
    """

    def __init__(self, w: Function, unit: str, dtype: str) -> None:
        self.w, self.dtype = w, dtype
        self._last = w.integer("sub", "%classes", 1)
        self._class, others = w.value(f"and i64 {unit}, {self._last}"), w.integer("udiv", unit, "%classes")
        run, part = w.integer("udiv", others, "%parts"), w.integer("urem", others, "%parts")
        first = w.integer("mul", part, "%width")
        self.columns = w.least("%width", w.integer("sub", "%columns", first))
        self.begin = w.integer("mul", run, "%length")
        self.end = w.least("%count", w.integer("add", self.begin, "%length"))
        here = w.integer("add", w.integer("mul", run, "%table_size"), first)
        self._table, self._rows = w.element("%table", here, dtype), w.element("%rows", first, dtype)

    def owns(self, at: str, inside: str) -> str:
        """An i1: whether row `at` of the table, if it is `inside`, is the unit's."""
        w = self.w
        own = w.test("eq", w.value(f"and i64 {at}, {self._last}"), self._class)
        return own if inside == "true" else w.value(f"and i1 {own}, {inside}")

    def target(self, at: str, columns: str | int) -> str:
        """The address of row `at` of the table."""
        return self.w.element(self._table, self.w.integer("mul", at, columns), self.dtype)

    def source(self, i: str) -> str:
        """The address of row i of those that are combined with it."""
        return self.w.element(self._rows, self.w.integer("mul", i, "%step"), self.dtype)


@recent(128)
def _combine_loop(ufunc: Any, dtype: str, form: PositionForm, known: int) -> WorkLoop:
    """Unit: some columns of a run of rows."""

    def body(w: Function, unit: str) -> None:
        part = _CombinedRun(w, unit, dtype)

        def row(i: str, _: list[str]) -> None:
            at, inside = row_at(w, i, form)

            def move() -> None:
                there, here = part.target(at, known or "%columns"), part.source(i)
                _along_columns(w, part.columns, known, lambda j, mask: step(there, here, j, mask))

            w.branch(inside if known else part.owns(at, inside), move)  # few columns are not divided

        def step(there: str, here: str, j: str, mask: str | None) -> None:
            _combine(w, ufunc, w.element(there, j, dtype), w.element(here, j, dtype), dtype, mask)

        w.loop(part.begin, part.end, row, occurs=False)

    return WorkLoop(_combining_names(form), ("table", "rows", *form.arrays), lanes_of(dtype), body)


@recent(128)
def _combining_elements(ufunc: Any, dtype: str, form: PositionForm, index: str) -> WorkLoop:
    """Unit: a run of rows of a table of one column. Positions are computed in vectors, the elements there one after the other."""

    def body(w: Function, unit: str) -> None:
        width, part = w.width, _CombinedRun(w, unit, dtype)
        vectors = RowVectors(w, form, index)

        def one(i: str, _: list[str]) -> None:
            w.at(1)
            at, inside = row_at(w, i, form)
            w.branch(inside, lambda: element(i, at))
            w.at(width)

        def element(i: str, at: str) -> None:
            w.at(1)
            _combine(w, ufunc, part.target(at, 1), part.source(i), dtype)

        def vector(i: str, _: list[str]) -> None:
            w.at(width)
            rows, within = vectors.at(i)

            def all_inside() -> None:
                for k in range(width):
                    at = w.value(f"extractelement <{width} x {rows.type}> {rows.ref}, i64 {k}")
                    at = at if rows.type == "i64" else w.value(f"sext {rows.type} {at} to i64")
                    element(w.integer("add", i, k), at)
                w.at(width)

            def one_by_one() -> None:
                w.loop(i, w.integer("add", i, width), one)

            if within is None:
                all_inside()
                return
            outside = w.some(w.binary("xor", within, w.constant(True, "bool")))
            w.branch(outside, one_by_one, all_inside, mark=RARE)

        rest = w.integer("urem", w.integer("sub", part.end, part.begin), width)
        whole = w.integer("sub", part.end, rest)
        w.loop(part.begin, whole, vector, step=width, occurs=False)
        w.loop(whole, part.end, one, occurs=False)

    return WorkLoop(_combining_names(form), ("table", "rows", *form.arrays), lanes_of(dtype, index), body)


def _combine(w: Function, ufunc: Any, target: str, source: str, dtype: str, mask: str | None = None) -> None:
    """Combine the vector at one address with that at another."""
    new = w.load(source, dtype, mask)
    old = new if ufunc is None else w.load(target, dtype, mask)
    w.store(w.round_narrow(_WRITERS[ufunc](w, old, new)), target, mask)


@recent(64)
def _gather_loop(dtype: str, form: PositionForm, index: str) -> WorkLoop:
    """Unit: a run of positions in a table of one column, vector by vector; `index` is the type of positions in registers."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        count = w.integer("sub", w.least("%count", w.integer("add", begin, "%chunk")), begin)
        vectors, fill = RowVectors(w, form, index), w.scalar("%fills", dtype)

        def part(j: str, mask: str | None) -> None:
            k = w.integer("add", begin, j)
            rows, within = vectors.at(k, w.integer("sub", count, j), mask)
            w.store(w.gather("%table", rows, dtype, within, fill), w.element("%out", k, dtype), mask)

        w.parts(count, part)

    return WorkLoop(_chunk_names(form), ("table", "out", "fills", *form.arrays), lanes_of(dtype, index), body)


def _chunk_names(form: PositionForm) -> tuple[str, ...]:
    return ("count", "columns", "chunk", *form.numbers)


@recent(64)
def _take_loop(dtype: str, form: PositionForm, known: int, run: int) -> WorkLoop:
    """Unit: some positions; each takes `run` rows."""
    whole = str(known or "%columns")

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def row(i: str, _: list[str]) -> None:
            at, inside = row_at(w, i, form)
            size = w.integer("udiv", whole, run) if run > 1 else whole
            here = w.element("%table", w.integer("mul", at, size), dtype)
            if not form.clip:
                here = w.value(f"select i1 {inside}, ptr {here}, ptr %fills")
            there = w.element("%out", w.integer("mul", i, whole), dtype)
            if not known:
                later = row_at(w, w.least(w.integer("add", i, _AHEAD), w.integer("sub", end, 1)), form)[0]
                for line in range(_LINES):
                    w.prefetch(
                        w.advance_address(w.element("%table", w.integer("mul", later, size), dtype), line, 64),
                        writes=False,
                    )

            def move(j: str, mask: str | None) -> None:
                w.store(w.load(w.element(here, j, dtype), dtype, mask), w.element(there, j, dtype), mask)

            _along_columns(w, "%columns", known, move)

        w.loop(begin, end, row)

    return WorkLoop(_chunk_names(form), ("table", "out", "fills", *form.arrays), lanes_of(dtype), body)
