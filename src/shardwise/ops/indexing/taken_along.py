"""Compiled loops that read elements along rows, each at positions of its own row: `take_along_axis`."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import name_of
from shardwise.base.shapes import Ndarray
from shardwise.ops.indexing.row_loops import BY_SIZE, CHUNK, FEWEST, THREADS_FROM, index_type
from shardwise.ops.indexing.row_places import Places, PositionForm, number_at
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import available, thread_count
from shardwise.runtime.memory import pool


def take_along(table: Ndarray, position: Ndarray, fill: Any, *, wrap: bool = False) -> Ndarray | None:
    """``out[i, j] = table[i, position[i, j]]``; otherwise as `taken_rows`."""
    if position.size < FEWEST or not table.size or table.itemsize not in (1, 2, 4, 8) or table.dtype.hasobject:
        return None
    position = np.ascontiguousarray(position)
    places = Places.of(position.reshape(-1), None, table.shape[1])
    if not places.is_readable or not available():
        return None
    raw, out = table.view(BY_SIZE[table.itemsize]), pool.empty(position.shape, table.dtype)
    rows, columns = position.shape
    chunk = max(1, CHUNK // columns)
    fills = np.full(1, 0 if fill is None else fill, table.dtype)
    if raw.itemsize >= 4:  # gather instructions load 4 or 8 bytes
        index = index_type(places, table.shape[1])
        loop = _gather_along_loop(name_of(raw.dtype), name_of(position.dtype), index, wrap, fill is None)
    else:
        loop = _take_along_loop(name_of(raw.dtype), name_of(position.dtype), wrap, fill is None)
    threads = thread_count() if position.size >= THREADS_FROM else 1
    arrays = raw, position, out.view(raw.dtype), fills
    loop(-(-rows // chunk), (rows, columns, chunk, table.shape[1]), arrays, threads)
    return out


@recent(64)
def _gather_along_loop(dtype: str, position: str, index: str, wrap: bool, clip: bool) -> WorkLoop:
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
def _take_along_loop(dtype: str, position: str, wrap: bool, clip: bool) -> WorkLoop:
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
