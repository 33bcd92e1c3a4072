"""Compiled loops that read, put or combine rows of a table at given positions, and check bounds as they move each row.

Threads that write divide the columns among them; with few columns, one thread does all. Repeated positions combine every row, in
order. Threads that read divide the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.indexing.row_places import Places, PositionDims, PositionForm, RowVectors, number_at, row_at
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.loops import Call, Function, WorkLoop, lanes_of
from shardwise.runtime.machine import RARE, TYPES, Lane, Lanes, available, run_in_parts, thread_count
from shardwise.runtime.memory import pool

Block = np.ndarray[Any, Any]


FEWEST = 1 << 12  # elements; from here on a compiled loop is faster
_SHARED = 1 << 16  # elements; from here on a second thread is faster
_COLUMNS = 64  # least number of columns per thread
_CHUNK = 1 << 14  # elements that a thread reads per chunk
_SEGMENTS = 4  # tables over which threads divide many rows with few columns
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
_BY_SIZE = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}  # types of the same size


def combined_rows(
    table: Block,
    position: Block | Sequence[Block],
    rows: Block,
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
    # NumPy leaves open which of two zeros is greater.
    exact = ufunc in (np.minimum, np.maximum) and table.dtype.kind not in "biu"
    if (rows.size < FEWEST and not exact) or not rows.size or ufunc not in _WRITERS or not available():
        return False
    places = Places.of(position, grid, len(table))
    if not places.is_readable:
        return False
    rows = np.ascontiguousarray(rows)
    if ufunc is None and table.itemsize in _BY_SIZE:
        table, rows = (x.view(_BY_SIZE[x.itemsize]) for x in (table, rows))
    elif table.dtype.kind == "c" and ufunc in (np.add, np.subtract):
        table, rows = (x.view(x.real.dtype) for x in (table, rows))
    dtype = table.dtype
    if dtype.name not in TYPES or dtype.kind == "c" or not dtype.isnative:
        return False
    if dtype.kind == "b" and ufunc not in (np.minimum, np.maximum):
        return False
    columns = table.shape[1]
    threads = thread_count() if rows.size >= _SHARED else 1
    if columns < _COLUMNS and rows.size >= max(_SHARED, _MANY * table.size) and _apart(ufunc, dtype):
        loop = _combining_loop(ufunc, dtype, columns, places.form(wrap, clip), _index(places, len(table)))
        _by_segments(loop, table, places, rows, ufunc, threads)
        return True
    call = _combiner(ufunc, dtype, table.shape, *places.kind, wrap, clip, threads)
    call(address(table), address(rows), *map(address, places.columns))
    return True


def _index(places: Places, size: int) -> str:
    """The type of positions in registers."""
    return "int32" if places.fits_int32 and size < 1 << 31 else "int64"


def _combining_loop(ufunc: Any, dtype: np.dtype[Any], columns: int, form: PositionForm, index: str) -> WorkLoop:
    if columns == 1:
        return _combining_elements(ufunc, dtype.name, form, index)
    return _combining(ufunc, dtype.name, form, _known(columns))


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
    threads: int,
) -> Call:
    """The call that combines `count` rows with a table of that shape, on the addresses of the table, the rows and the columns."""
    places, columns = Places.like(count, apart, number, grid), shape[1]
    loop = _combining_loop(ufunc, dtype, columns, places.form(wrap, clip), _index(places, shape[0]))
    width = columns if threads == 1 else max(_COLUMNS, -(-columns // (2 * threads)))
    units = -(-columns // width)
    return loop.call(units, (count, columns, width, *places.numbers), threads, costs.DRAFT_MOVED * count * columns)


def _apart(ufunc: Any, dtype: np.dtype[Any]) -> bool:
    """Whether partial results are as accurate as one sum: narrow floats round too much."""
    return ufunc is not None and (dtype.kind in "iu" or dtype.itemsize >= 4)


def _by_segments(loop: WorkLoop, table: Block, places: Places, rows: Block, ufunc: Any, threads: int) -> None:
    """Many rows with few columns: a few parts of them are combined into separate tables, which are then combined in order."""
    (size, columns), count = table.shape, len(places)
    if ufunc in (np.minimum, np.maximum):
        parts = np.repeat(table[None], _SEGMENTS, 0)
    else:
        start = 1 if ufunc is np.multiply else -0.0 if table.dtype.kind == "f" else 0  # 0 plus -0 is not -0
        parts = np.full((_SEGMENTS, size, columns), start, table.dtype)
    length = -(-count // _SEGMENTS)

    def work(run: slice) -> None:
        for k in range(run.start, run.stop):
            some = slice(k * length, min(count, (k + 1) * length))
            here = places[some]
            loop(1, (len(here), columns, columns, *here.numbers), (parts[k], rows[some], *here.columns), 1)

    run_in_parts(work, _SEGMENTS, 1, threads)
    for part in parts:
        (np.add if ufunc is np.subtract else ufunc)(table, part, out=table)


def taken_rows(
    table: Block,
    position: Block | Sequence[Block],
    fill: Any,
    *,
    grid: PositionDims | None = None,
    wrap: bool = False,
    run: int = 1,
) -> Block | None:
    """``table[position]``, of each position that row and those after it, `run` in all, which are in the table; positions out of bounds
    are clamped, or give `fill` if that is not None.

    `wrap`: negative positions count from the end. Returns None if no code exists. `table` is C-contiguous, of shape (n, columns);
    `position` as `Places.of` takes it.
    """
    if not len(table) or table.itemsize not in _BY_SIZE or table.dtype.hasobject or not available():
        return None
    places = Places.of(position, grid, len(table))
    count = len(places)
    columns = run * table.shape[1]
    elements = count * columns
    if elements < FEWEST or not places.is_readable:
        return None
    out = pool.empty((count, columns), table.dtype)
    filled = None if fill is None else np.asarray(fill, table.dtype).tobytes()
    threads = thread_count() if elements >= _SHARED else 1
    call, fills = _taker(table.dtype, table.shape, *places.kind, wrap, filled, run, threads)
    call(address(table), address(out), address(fills), *map(address, places.columns))
    return out


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
) -> tuple[Call, Block]:
    """The call that takes `count` times `run` rows of a table of that shape, on the addresses of the table, the result, as many fill
    values, which come along, and the columns.
    """
    places, (size, columns), raw = Places.like(count, apart, number, grid), shape, np.dtype(_BY_SIZE[dtype.itemsize])
    form = places.form(wrap, fill is None)
    fills = np.frombuffer((bytes(dtype.itemsize) if fill is None else fill) * columns * run, raw)
    columns = len(fills)
    chunk = max(1, _CHUNK // max(columns, 1))
    if columns == 1 and raw.itemsize >= 4:  # gather instructions load 4 or 8 bytes
        loop = _gathering(raw.name, form, _index(places, size))
    else:
        loop = _taking(raw.name, form, _known(columns), run)
    numbers = count, columns, chunk, *places.numbers
    return loop.call(-(-count // chunk), numbers, threads, costs.DRAFT_MOVED * count * columns), fills


def taken_along(table: Block, position: Block, fill: Any, *, wrap: bool = False) -> Block | None:
    """``out[i, j] = table[i, position[i, j]]``; otherwise as `taken_rows`."""
    if position.size < FEWEST or not table.size or table.itemsize not in (1, 2, 4, 8) or table.dtype.hasobject:
        return None
    position = np.ascontiguousarray(position)
    places = Places.of(position.reshape(-1), None, table.shape[1])
    if not places.is_readable or not available():
        return None
    raw, out = table.view(_BY_SIZE[table.itemsize]), pool.empty(position.shape, table.dtype)
    rows, columns = position.shape
    chunk = max(1, _CHUNK // columns)
    fills = np.full(1, 0 if fill is None else fill, table.dtype)
    if raw.itemsize >= 4:  # gather instructions load 4 or 8 bytes
        index = _index(places, table.shape[1])
        loop = _gathering_along(raw.dtype.name, position.dtype.name, index, wrap, fill is None)
    else:
        loop = _taking_along(raw.dtype.name, position.dtype.name, wrap, fill is None)
    threads = thread_count() if position.size >= _SHARED else 1
    arrays = raw, position, out.view(raw.dtype), fills
    loop(-(-rows // chunk), (rows, columns, chunk, table.shape[1]), arrays, threads)
    return out


def _known(columns: int) -> int:
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


def _width_names(form: PositionForm) -> tuple[str, ...]:
    return ("count", "columns", "width", *form.numbers)


@recent(128)
def _combining(ufunc: Any, dtype: str, form: PositionForm, known: int) -> WorkLoop:
    """Unit: some columns of all rows."""
    whole = str(known or "%columns")

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%width")
        columns = w.least("%width", w.integer("sub", "%columns", begin))
        table, rows = w.element("%table", begin, dtype), w.element("%rows", begin, dtype)

        def row(i: str, _: list[str]) -> None:
            at, inside = row_at(w, i, form)

            def move() -> None:
                there = w.element(table, w.integer("mul", at, whole), dtype)
                here = w.element(rows, w.integer("mul", i, whole), dtype)
                _along_columns(w, columns, known, lambda j, mask: step(there, here, j, mask))

            w.branch(inside, move)

        def step(there: str, here: str, j: str, mask: str | None) -> None:
            _combine(w, ufunc, w.element(there, j, dtype), w.element(here, j, dtype), dtype, mask)

        w.loop(0, "%count", row, occurs=False)

    return WorkLoop(_width_names(form), ("table", "rows", *form.arrays), lanes_of(dtype), body)


@recent(128)
def _combining_elements(ufunc: Any, dtype: str, form: PositionForm, index: str) -> WorkLoop:
    """Unit: all rows of a table of one column. Positions are computed in vectors, the elements there one after the other."""

    def body(w: Function, unit: str) -> None:
        width = w.width
        vectors = RowVectors(w, form, index)

        def one(i: str, _: list[str]) -> None:
            w.at(1)
            at, inside = row_at(w, i, form)
            w.branch(inside, lambda: element(i, at))
            w.at(width)

        def element(i: str, at: str) -> None:
            w.at(1)
            _combine(w, ufunc, w.element("%table", at, dtype), w.element("%rows", i, dtype), dtype)

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

        rest = w.integer("urem", "%count", width)
        whole = w.integer("sub", "%count", rest)
        w.loop(0, whole, vector, step=width, occurs=False)
        w.loop(whole, "%count", one, occurs=False)

    return WorkLoop(_width_names(form), ("table", "rows", *form.arrays), lanes_of(dtype, index), body)


def _combine(w: Function, ufunc: Any, target: str, source: str, dtype: str, mask: str | None = None) -> None:
    """Combine the vector at one address with that at another."""
    new = w.load(source, dtype, mask)
    old = new if ufunc is None else w.load(target, dtype, mask)
    w.store(w.narrowed(_WRITERS[ufunc](w, old, new)), target, mask)


@recent(64)
def _gathering(dtype: str, form: PositionForm, index: str) -> WorkLoop:
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
def _gathering_along(dtype: str, position: str, index: str, wrap: bool, clip: bool) -> WorkLoop:
    """Unit: a run of rows, vector by vector; `index` is the type of positions in registers."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))
        zero = w.constant(0, index)
        size = w.convert(w.splat("%size", "int64"), index)
        last = w.sub(size, w.constant(1, index))
        fill = w.scalar("%fills", dtype)

        def row(i: str, _: list[str]) -> None:
            table = w.element("%table", w.integer("mul", i, "%size"), dtype)
            first = w.integer("mul", i, "%columns")

            def part(j: str, mask: str | None) -> None:
                k = w.integer("add", first, j)
                at = w.convert(w.load(w.element("%position", k, position), position, mask), index)
                if wrap:
                    at = w.select(w.compare("lt", at, zero), w.add(at, size), at)
                if clip:
                    at, inside = w.maximum(w.minimum(at, last), zero), None
                else:
                    inside = w.binary("and", w.compare("lt", at, size), w.compare("ge", at, zero))
                # Masked-out lanes have position 0, which is in the table.
                w.store(w.gather(table, at, dtype, inside, fill), w.element("%out", k, dtype), mask)

            w.parts("%columns", part)

        w.loop(begin, end, row)

    return WorkLoop(
        ("count", "columns", "chunk", "size"), ("table", "position", "out", "fills"), lanes_of(dtype, index), body
    )


@recent(64)
def _taking_along(dtype: str, position: str, wrap: bool, clip: bool) -> WorkLoop:
    """Unit: a run of rows."""
    form = PositionForm(position, 1, True, wrap, clip)

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def row(i: str, _: list[str]) -> None:
            table = w.element("%table", w.integer("mul", i, "%size"), dtype)
            first = w.integer("mul", i, "%columns")

            def element(j: str, _: list[str]) -> None:
                k = w.integer("add", first, j)
                at, inside = number_at(w, w.element("%position", k, position), "%size", form)
                here = w.element(table, at, dtype)
                if not clip:
                    here = w.value(f"select i1 {inside}, ptr {here}, ptr %fills")
                w.store(w.load(here, dtype), w.element("%out", k, dtype))

            w.loop(0, "%columns", element, occurs=False)

        w.loop(begin, end, row)

    return WorkLoop(("count", "columns", "chunk", "size"), ("table", "position", "out", "fills"), 1, body)


@recent(64)
def _taking(dtype: str, form: PositionForm, known: int, run: int) -> WorkLoop:
    """Unit: some positions; each takes `run` rows."""
    whole = str(known or "%columns")

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def row(i: str, _: list[str]) -> None:
            at, inside = row_at(w, i, form)
            row = w.integer("udiv", whole, run) if run > 1 else whole
            here = w.element("%table", w.integer("mul", at, row), dtype)
            if not form.clip:
                here = w.value(f"select i1 {inside}, ptr {here}, ptr %fills")
            there = w.element("%out", w.integer("mul", i, whole), dtype)

            def move(j: str, mask: str | None) -> None:
                w.store(w.load(w.element(here, j, dtype), dtype, mask), w.element(there, j, dtype), mask)

            _along_columns(w, "%columns", known, move)

        w.loop(begin, end, row)

    return WorkLoop(_chunk_names(form), ("table", "out", "fills", *form.arrays), lanes_of(dtype), body)
