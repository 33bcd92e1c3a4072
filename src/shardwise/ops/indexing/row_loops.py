"""Compiled loops that read, put or combine rows of a table at given positions, and check bounds as they move each row.

Threads that write divide the columns among them; with few columns, one thread does all. Repeated positions combine every row, in
order. Threads that read divide the positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.runtime.loops import Function, Loop, lanes_of
from shardwise.runtime.machine import TYPES, Lane, Lanes, available, run_in_parts, thread_count
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
    table: Block, position: Block, rows: Block, ufunc: Any, *, wrap: bool = False, clip: bool = False
) -> bool:
    """``table[position[i]] = ufunc(table[position[i]], rows[i])`` for each i in order; `ufunc` None puts the rows.

    `wrap`: negative positions count from the end. Positions out of bounds are skipped, or clamped if `clip`. Returns False, and
    changes nothing, if no code exists. `table` is C-contiguous, of shape (n, columns).
    """
    if rows.size < FEWEST or ufunc not in _WRITERS or not _handles(position) or not available():
        return False
    rows = np.ascontiguousarray(rows)
    if ufunc is None and table.itemsize in _BY_SIZE:
        table, rows = (x.view(_BY_SIZE[x.itemsize]) for x in (table, rows))
    elif table.dtype.kind == "c" and ufunc in (np.add, np.subtract):
        table, rows = (x.view(x.real.dtype) for x in (table, rows))
    dtype = table.dtype
    if dtype.name not in TYPES or not dtype.isnative:
        return False
    if dtype.kind == "b" and ufunc not in (np.minimum, np.maximum):
        return False
    columns = table.shape[1]
    threads = thread_count() if rows.size >= _SHARED else 1
    position = np.ascontiguousarray(position)
    loop = _combining(ufunc, dtype.name, position.dtype.name, columns < 4, wrap, clip)
    if columns < _COLUMNS and rows.size >= max(_SHARED, _MANY * table.size) and _apart(ufunc, dtype):
        _by_segments(loop, table, position, rows, ufunc, threads)
        return True
    width = columns if threads == 1 else max(_COLUMNS, -(-columns // (2 * threads)))
    units = -(-columns // width)
    loop(units, (position.size, columns, width, len(table)), (table, position, rows), threads)
    return True


def _apart(ufunc: Any, dtype: np.dtype[Any]) -> bool:
    """Whether partial results are as accurate as one sum: narrow floats round too much."""
    return ufunc is not None and (dtype.kind in "iu" or dtype.itemsize >= 4)


def _by_segments(loop: Loop, table: Block, position: Block, rows: Block, ufunc: Any, threads: int) -> None:
    """Many rows with few columns: a few parts of them are combined into separate tables, which are then combined in order."""
    (size, columns), count = table.shape, position.size
    if ufunc in (np.minimum, np.maximum):
        parts = np.repeat(table[None], _SEGMENTS, 0)
    else:
        start = 1 if ufunc is np.multiply else -0.0 if table.dtype.kind == "f" else 0  # 0 plus -0 is not -0
        parts = np.full((_SEGMENTS, size, columns), start, table.dtype)
    length = -(-count // _SEGMENTS)

    def work(run: slice) -> None:
        for k in range(run.start, run.stop):
            some = slice(k * length, min(count, (k + 1) * length))
            given = parts[k], position[some], rows[some]
            loop(1, (len(given[1]), columns, columns, size), given, 1)

    run_in_parts(work, _SEGMENTS, 1, threads)
    for part in parts:
        (np.add if ufunc is np.subtract else ufunc)(table, part, out=table)


def taken_rows(table: Block, position: Block, fill: Any, *, wrap: bool = False) -> Block | None:
    """``table[position]``; positions out of bounds are clamped, or give `fill` if that is not None.

    `wrap`: negative positions count from the end. Returns None if no code exists. `table` is C-contiguous, of shape
    (n, columns), and `position` has one dim.
    """
    elements = position.size * table.shape[1]
    if elements < FEWEST or not len(table) or table.itemsize not in _BY_SIZE or table.dtype.hasobject:
        return None
    if not _handles(position) or not available():
        return None
    raw = table.view(_BY_SIZE[table.itemsize])
    columns = raw.shape[1]
    out = pool.empty((position.size, table.shape[1]), table.dtype)
    fills = np.full(table.shape[1], 0 if fill is None else fill, table.dtype)
    chunk = max(1, _CHUNK // max(columns, 1))
    units = -(-position.size // chunk)
    threads = thread_count() if elements >= _SHARED else 1
    loop = _taking(raw.dtype.name, position.dtype.name, columns < 4, wrap, fill is None)
    numbers = (position.size, columns, chunk, len(table))
    loop(units, numbers, (raw, np.ascontiguousarray(position), out.view(raw.dtype), fills), threads)
    return out


def taken_along(table: Block, position: Block, fill: Any, *, wrap: bool = False) -> Block | None:
    """``out[i, j] = table[i, position[i, j]]``; otherwise as `taken_rows`."""
    if position.size < FEWEST or not table.size or table.itemsize not in (1, 2, 4, 8) or table.dtype.hasobject:
        return None
    if not _handles(position) or not available():
        return None
    raw, out = table.view(_BY_SIZE[table.itemsize]), pool.empty(position.shape, table.dtype)
    rows, columns = position.shape
    chunk = max(1, _CHUNK // columns)
    fills = np.full(1, 0 if fill is None else fill, table.dtype)
    if raw.itemsize >= 4:  # gather instructions load 4 or 8 bytes
        index = "int32" if _fits_int32(position) and table.shape[1] < 1 << 31 else "int64"
        loop = _gathering_along(raw.dtype.name, position.dtype.name, index, wrap, fill is None)
    else:
        loop = _taking_along(raw.dtype.name, position.dtype.name, wrap, fill is None)
    threads = thread_count() if position.size >= _SHARED else 1
    arrays = raw, np.ascontiguousarray(position), out.view(raw.dtype), fills
    loop(-(-rows // chunk), (rows, columns, chunk, table.shape[1]), arrays, threads)
    return out


def _handles(position: Block) -> bool:
    return position.dtype.kind in "iu" and position.dtype.isnative and position.dtype.name != "uint64"


def _fits_int32(position: Block) -> bool:
    return position.itemsize < 4 or position.dtype == np.int32


def _row(w: Function, i: str, position: str, wrap: bool, clip: bool) -> tuple[str, str]:
    """The register of position i, and an i1: whether it is within the table of `%size` rows."""
    at = w.value(f"load {TYPES[position]}, ptr {w.element('%position', i, position)}, align 1")
    if TYPES[position] != "i64":
        at = w.value(f"{'sext' if position.startswith('int') else 'zext'} {TYPES[position]} {at} to i64")
    if wrap:
        negative = w.test("slt", at, 0)
        at = w.pick(negative, w.integer("add", at, "%size"), at)
    if clip:
        at = w.least(at, w.integer("sub", "%size", "1"))
        negative = w.test("slt", at, 0)
        return w.pick(negative, 0, at), "true"
    return at, w.test("ult", at, "%size")


@recent(128)
def _combining(ufunc: Any, dtype: str, position: str, single: bool, wrap: bool, clip: bool) -> Loop:
    """Unit: some columns of all rows."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%width")
        columns = w.least("%width", w.integer("sub", "%columns", begin))
        table, rows = w.element("%table", begin, dtype), w.element("%rows", begin, dtype)

        def row(i: str, _: list[str]) -> None:
            at, inside = _row(w, i, position, wrap, clip)

            def move() -> None:
                there = w.element(table, w.integer("mul", at, "%columns"), dtype)
                here = w.element(rows, w.integer("mul", i, "%columns"), dtype)
                w.parts(columns, lambda j, mask: step(there, here, j, mask))

            w.branch(inside, move)

        def step(there: str, here: str, j: str, mask: str | None) -> None:
            target = w.element(there, j, dtype)
            new = w.load(w.element(here, j, dtype), dtype, mask)
            old = new if ufunc is None else w.load(target, dtype, mask)
            w.store(w.narrowed(_WRITERS[ufunc](w, old, new)), target, mask)

        w.loop(0, "%count", row, occurs=False)

    width = 1 if single else lanes_of(dtype)
    return Loop(("count", "columns", "width", "size"), ("table", "position", "rows"), width, body)


@recent(64)
def _gathering_along(dtype: str, position: str, index: str, wrap: bool, clip: bool) -> Loop:
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

    return Loop(
        ("count", "columns", "chunk", "size"), ("table", "position", "out", "fills"), lanes_of(dtype, index), body
    )


@recent(64)
def _taking_along(dtype: str, position: str, wrap: bool, clip: bool) -> Loop:
    """Unit: a run of rows."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def row(i: str, _: list[str]) -> None:
            table = w.element("%table", w.integer("mul", i, "%size"), dtype)
            first = w.integer("mul", i, "%columns")

            def element(j: str, _: list[str]) -> None:
                k = w.integer("add", first, j)
                at, inside = _row(w, k, position, wrap, clip)
                here = w.element(table, at, dtype)
                if not clip:
                    here = w.value(f"select i1 {inside}, ptr {here}, ptr %fills")
                w.store(w.load(here, dtype), w.element("%out", k, dtype))

            w.loop(0, "%columns", element, occurs=False)

        w.loop(begin, end, row)

    return Loop(("count", "columns", "chunk", "size"), ("table", "position", "out", "fills"), 1, body)


@recent(64)
def _taking(dtype: str, position: str, single: bool, wrap: bool, clip: bool) -> Loop:
    """Unit: a run of positions."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def row(i: str, _: list[str]) -> None:
            at, inside = _row(w, i, position, wrap, clip)
            here = w.element("%table", w.integer("mul", at, "%columns"), dtype)
            if not clip:
                here = w.value(f"select i1 {inside}, ptr {here}, ptr %fills")
            there = w.element("%out", w.integer("mul", i, "%columns"), dtype)
            w.parts(
                "%columns",
                lambda j, mask: w.store(
                    w.load(w.element(here, j, dtype), dtype, mask), w.element(there, j, dtype), mask
                ),
            )

        w.loop(begin, end, row)

    width = 1 if single else lanes_of(dtype)
    return Loop(("count", "columns", "chunk", "size"), ("table", "position", "out", "fills"), width, body)
