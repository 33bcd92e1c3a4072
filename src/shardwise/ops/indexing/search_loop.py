"""Binary search of many values in sorted rows, in machine code: a vector of values at a time, without branches."""

from __future__ import annotations

import math

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import name_of
from shardwise.base.shapes import Ndarray, Shape
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import Lane, available, thread_count
from shardwise.runtime.memory import pool

FEWEST = 1 << 10  # values; from here on a compiled loop is faster than NumPy's search in one row
FEWEST_OF_ROWS = 1 << 6  # the same beside bisections of all rows at once
_CHUNK = 1 << 12  # values per chunk of a thread
_THREADS_FROM = 1 << 14  # values; from here on a second thread is faster


def search_sorted(lead: int, a: Ndarray, v: Ndarray, right: bool) -> Ndarray | None:
    """int32 positions of `v` in the sorted rows of `a`, as by `np.searchsorted`; None if no code exists. The first `lead` dims of both are
    loop dims: rows that differ are searched for values of their own.
    """
    loops = np.broadcast_shapes(a.shape[:lead], v.shape[:lead])
    size, values = a.shape[-1], math.prod(v.shape[lead:])
    if a.size == size:  # all values are one run
        rows, values = 1, v.size
        fewest = FEWEST
    else:
        rows = math.prod(loops)
        fewest = FEWEST_OF_ROWS
    if rows * values < fewest or not 0 < size < 1 << 31 or a.dtype.kind not in "iuf" or a.dtype.itemsize not in (4, 8):
        return None
    if not (a.dtype.isnative and v.dtype == a.dtype and available()):
        return None
    places = _places(a.shape[:lead], v.shape[:lead], loops) if rows > 1 else _ONE_ROW
    a, v = np.ascontiguousarray(a), np.ascontiguousarray(v)
    out = pool.empty((*loops, *v.shape[lead:]), np.int32)
    # The search halves the range until one element is left; each step reads one element, which always exists.
    threads = thread_count() if out.size >= _THREADS_FROM else 1
    parts = -(-values // _CHUNK)
    _loop(name_of(a.dtype), right)(rows * parts, (size, values, _CHUNK, parts), (a, v, out, places), threads)
    return out


_ONE_ROW = np.zeros(2, np.int64)


@recent(32)
def _places(rows: Shape, runs: Shape, loops: Shape) -> np.ndarray:
    """Which row, and which run of values, each of `loops` has: their numbers in pairs. Extents of 1 are for all."""
    numbers = [np.broadcast_to(np.arange(math.prod(s)).reshape(s), loops).reshape(-1) for s in (rows, runs)]
    return np.stack(numbers, -1).astype(np.int64)


@recent(32)
def _loop(dtype: str, right: bool) -> WorkLoop:
    """Unit: a part of a run of values. The position is ``base``, plus one if the element there comes before the value."""

    def body(w: Function, unit: str) -> None:
        loop, part = w.integer("udiv", unit, "%parts"), w.integer("urem", unit, "%parts")
        begin = w.integer("mul", part, "%chunk")
        count = w.least("%chunk", w.integer("sub", "%values", begin))
        pair = w.integer("shl", loop, 1)
        row = w.integer("mul", w.entry("%places", pair), "%size")
        run = w.integer("mul", w.entry("%places", w.integer("add", pair, 1)), "%values")
        table = w.element("%a", row, dtype)
        values = w.element("%v", w.integer("add", run, begin), dtype)
        out = w.element("%out", w.integer("add", w.integer("mul", loop, "%values"), begin), "int32")

        def comes_before(x: Lane, y: Lane) -> Lane:
            """Whether element `x` comes before the insertion position of value `y`; NaN is greatest and equal to itself."""
            first, second = (y, x) if right else (x, y)
            less = w.compare("lt", first, second)
            if x.floating:
                odd = w.binary("and", w.isnan(second), w.binary("xor", w.isnan(first), w.constant(True, "bool")))
                less = w.binary("or", less, odd)
            return w.binary("xor", less, w.constant(True, "bool")) if right else less

        def step(i: str, mask: str | None) -> None:
            y = w.load(w.element(values, i, dtype), dtype, mask, w.constant(0, dtype))

            def long(held: list[str]) -> str:
                return w.test("ugt", held[0], 1)

            def halve(held: list[str]) -> list[str]:
                left, base = held[0], Lane(held[1], "int64")
                half = w.value(f"lshr i64 {left}, 1")
                middle = w.add(base, w.splat(half, "int64"))
                # The element before the middle decides; the remaining half may be one element longer than needed.
                before = w.gather(table, w.sub(middle, w.constant(1, "int64")), dtype)
                next_base = w.select(comes_before(before, y), middle, base)
                return [w.integer("sub", left, half), next_base.ref]

            carry = [("i64", "%size"), (w.vector("i64"), "zeroinitializer")]
            base = Lane(w.repeat(carry, long, halve)[1], "int64")
            last = w.convert(comes_before(w.gather(table, base, dtype), y), "int64")
            w.store(w.convert(w.add(base, last), "int32"), w.element(out, i, "int32"), mask)

        w.parts(count, step)

    return WorkLoop(("size", "values", "chunk", "parts"), ("a", "v", "out", "places"), lanes_of(dtype), body)
