"""Compiled loops that read, put or combine rows of a table at given positions, and check bounds as they move each row.

A position is one number, or one for each of the table's leading dims: `grid` has the sizes of these dims and the steps between rows.

Threads that write divide the columns among them; with few columns, one thread does all. Repeated positions combine every row, in
order. Threads that read divide the positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.runtime.loops import Function, Loop, lanes_of
from shardwise.runtime.machine import TYPES, Lane, Lanes, available, run_in_parts, thread_count
from shardwise.runtime.memory import pool

Block = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Grid:
    """The dims that the numbers of a position count in.

    Attributes:
        sizes: of the dim of each number.
        steps: from one row of that dim to the next, in rows of the table.
    """

    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @classmethod
    def of(cls, shape: Sequence[int], dims: Sequence[int]) -> Grid:
        """The grid of a table whose leading dims have `shape`, with positions whose numbers are for the dims `dims`."""
        return cls(tuple(shape[d] for d in dims), tuple(math.prod(shape[d + 1 :]) for d in dims))


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
    position: Block,
    rows: Block,
    ufunc: Any,
    *,
    grid: Grid | None = None,
    wrap: bool = False,
    clip: bool = False,
) -> bool:
    """``table[position[i]] = ufunc(table[position[i]], rows[i])`` for each i in order; `ufunc` None puts the rows.

    `wrap`: negative positions count from the end. Positions out of bounds are skipped, or clamped if `clip`. Returns False, and
    changes nothing, if no code exists. `table` is C-contiguous, of shape (n, columns); `position` has one dim, or, with a `grid`,
    a second one for the numbers of each position.
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
    places = _places(table, grid)
    loop = _combining(ufunc, dtype.name, position.dtype.name, len(places) // 2, columns < 4, wrap, clip)
    if columns < _COLUMNS and rows.size >= max(_SHARED, _MANY * table.size) and _apart(ufunc, dtype):
        _by_segments(loop, table, position, rows, places, ufunc, threads)
        return True
    width = columns if threads == 1 else max(_COLUMNS, -(-columns // (2 * threads)))
    units = -(-columns // width)
    loop(units, (len(position), columns, width, *places), (table, position, rows), threads)
    return True


def _places(table: Block, grid: Grid | None) -> tuple[int, ...]:
    """The sizes of the dims that positions count in, and the steps of each, as the loops get them."""
    return (len(table), 1) if grid is None else (*grid.sizes, *grid.steps)


def _place_names(dims: int) -> tuple[str, ...]:
    return (*(f"size{c}" for c in range(dims)), *(f"step{c}" for c in range(dims)))


def _apart(ufunc: Any, dtype: np.dtype[Any]) -> bool:
    """Whether partial results are as accurate as one sum: narrow floats round too much."""
    return ufunc is not None and (dtype.kind in "iu" or dtype.itemsize >= 4)


def _by_segments(
    loop: Loop, table: Block, position: Block, rows: Block, places: tuple[int, ...], ufunc: Any, threads: int
) -> None:
    """Many rows with few columns: a few parts of them are combined into separate tables, which are then combined in order."""
    (size, columns), count = table.shape, len(position)
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
            loop(1, (len(given[1]), columns, columns, *places), given, 1)

    run_in_parts(work, _SEGMENTS, 1, threads)
    for part in parts:
        (np.add if ufunc is np.subtract else ufunc)(table, part, out=table)


def taken_rows(
    table: Block, position: Block, fill: Any, *, grid: Grid | None = None, wrap: bool = False
) -> Block | None:
    """``table[position]``; positions out of bounds are clamped, or give `fill` if that is not None.

    `wrap`: negative positions count from the end. Returns None if no code exists. `table` is C-contiguous, of shape
    (n, columns); `position` has one dim, or, with a `grid`, a second one for the numbers of each position.
    """
    count = len(position)
    elements = count * table.shape[1]
    if elements < FEWEST or not len(table) or table.itemsize not in _BY_SIZE or table.dtype.hasobject:
        return None
    if not _handles(position) or not available():
        return None
    raw = table.view(_BY_SIZE[table.itemsize])
    columns = raw.shape[1]
    places = _places(table, grid)
    out = pool.empty((count, table.shape[1]), table.dtype)
    fills = np.full(table.shape[1], 0 if fill is None else fill, table.dtype)
    chunk = max(1, _CHUNK // max(columns, 1))
    units = -(-count // chunk)
    threads = thread_count() if elements >= _SHARED else 1
    if columns == 1 and raw.itemsize >= 4:  # gather instructions load 4 or 8 bytes
        index = "int32" if _fits_int32(position) and len(table) < 1 << 31 else "int64"
        loop = _gathering(raw.dtype.name, position.dtype.name, len(places) // 2, index, wrap, fill is None)
    else:
        loop = _taking(raw.dtype.name, position.dtype.name, len(places) // 2, columns < 4, wrap, fill is None)
    numbers = (count, columns, chunk, *places)
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


def _row(w: Function, i: str, position: str, dims: int, wrap: bool, clip: bool) -> tuple[str, str]:
    """The register of the row at position i, and an i1: whether each of its numbers is within its dim."""
    row, within = "0", "true"
    first = i if dims == 1 else w.integer("mul", i, str(dims))
    for c in range(dims):
        at, inside = _number(w, first if c == 0 else w.integer("add", first, str(c)), position, f"%size{c}", wrap, clip)
        if dims == 1:
            return at, inside
        at = w.integer("mul", at, f"%step{c}")
        row = at if c == 0 else w.integer("add", row, at)
        within = inside if within == "true" else w.value(f"and i1 {within}, {inside}")
    return row, within


def _number(w: Function, i: str, position: str, size: str, wrap: bool, clip: bool) -> tuple[str, str]:
    """The register of number i among those of all positions, and an i1: whether it is within a dim of `size`."""
    at = w.value(f"load {TYPES[position]}, ptr {w.element('%position', i, position)}, align 1")
    if TYPES[position] != "i64":
        at = w.value(f"{'sext' if position.startswith('int') else 'zext'} {TYPES[position]} {at} to i64")
    if wrap:
        negative = w.test("slt", at, 0)
        at = w.pick(negative, w.integer("add", at, size), at)
    if clip:
        at = w.least(at, w.integer("sub", size, "1"))
        negative = w.test("slt", at, 0)
        return w.pick(negative, 0, at), "true"
    return at, w.test("ult", at, size)


@recent(128)
def _combining(ufunc: Any, dtype: str, position: str, dims: int, single: bool, wrap: bool, clip: bool) -> Loop:
    """Unit: some columns of all rows."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%width")
        columns = w.least("%width", w.integer("sub", "%columns", begin))
        table, rows = w.element("%table", begin, dtype), w.element("%rows", begin, dtype)

        def row(i: str, _: list[str]) -> None:
            at, inside = _row(w, i, position, dims, wrap, clip)

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
    return Loop(("count", "columns", "width", *_place_names(dims)), ("table", "position", "rows"), width, body)


@recent(64)
def _gathering(dtype: str, position: str, dims: int, index: str, wrap: bool, clip: bool) -> Loop:
    """Unit: a run of positions in a table of one column, vector by vector; `index` is the type of positions in registers."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        count = w.integer("sub", w.least("%count", w.integer("add", begin, "%chunk")), begin)
        spread = lambda name: w.convert(w.splat(name, "int64"), index)  # noqa: E731
        zero, one, fill = w.constant(0, index), w.constant(1, index), w.scalar("%fills", dtype)
        sizes, steps = ([spread(f"%{name}{c}") for c in range(dims)] for name in ("size", "step"))
        lasts = [w.sub(size, one) for size in sizes]
        lanes = w.sequence(index)

        def numbers(k: str, left: str, c: int, mask: str | None) -> Lane:
            if dims == 1:
                return w.convert(w.load(w.element("%position", k, position), position, mask), index)
            first = w.element("%position", w.integer("add", w.integer("mul", k, str(dims)), str(c)), position)
            place = lanes if mask is None else w.minimum(lanes, w.sub(spread(left), one))
            return w.convert(w.gather(first, w.mul(place, w.constant(dims, index)), position), index)

        def part(j: str, mask: str | None) -> None:
            k = w.integer("add", begin, j)
            left = w.integer("sub", count, j)
            row, within = None, None
            for c in range(dims):
                at = numbers(k, left, c, mask)
                if wrap:
                    at = w.select(w.compare("lt", at, zero), w.add(at, sizes[c]), at)
                if clip:
                    at = w.maximum(w.minimum(at, lasts[c]), zero)
                else:
                    inside = w.binary("and", w.compare("lt", at, sizes[c]), w.compare("ge", at, zero))
                    within = inside if within is None else w.binary("and", within, inside)
                at = at if dims == 1 else w.mul(at, steps[c])
                row = at if row is None else w.add(row, at)
            assert row is not None
            # Masked-out lanes have position 0, which is in the table.
            w.store(w.gather("%table", row, dtype, within, fill), w.element("%out", k, dtype), mask)

        w.parts(count, part)

    return Loop(
        ("count", "columns", "chunk", *_place_names(dims)),
        ("table", "position", "out", "fills"),
        lanes_of(dtype, index),
        body,
    )


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
                at, inside = _number(w, k, position, "%size", wrap, clip)
                here = w.element(table, at, dtype)
                if not clip:
                    here = w.value(f"select i1 {inside}, ptr {here}, ptr %fills")
                w.store(w.load(here, dtype), w.element("%out", k, dtype))

            w.loop(0, "%columns", element, occurs=False)

        w.loop(begin, end, row)

    return Loop(("count", "columns", "chunk", "size"), ("table", "position", "out", "fills"), 1, body)


@recent(64)
def _taking(dtype: str, position: str, dims: int, single: bool, wrap: bool, clip: bool) -> Loop:
    """Unit: a run of positions."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%count", w.integer("add", begin, "%chunk"))

        def row(i: str, _: list[str]) -> None:
            at, inside = _row(w, i, position, dims, wrap, clip)
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
    return Loop(("count", "columns", "chunk", *_place_names(dims)), ("table", "position", "out", "fills"), width, body)
