"""Binary search of many values in one sorted array, in machine code: a vector of values at a time, without branches."""

from __future__ import annotations

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import name_of
from shardwise.base.shapes import Ndarray
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import Lane, available, thread_count
from shardwise.runtime.memory import pool

FEWEST = 1 << 10  # values; from here on a compiled loop is faster
_CHUNK = 1 << 12  # values per chunk of a thread
_THREADS_FROM = 1 << 14  # values; from here on a second thread is faster


def search_sorted(a: Ndarray, v: Ndarray, right: bool) -> Ndarray | None:
    """int32 positions of `v` in the sorted 1-dimensional `a`, as by `np.searchsorted`; None if no code exists."""
    if v.size < FEWEST or not 0 < a.size < 1 << 31 or a.dtype.kind not in "iuf" or a.dtype.itemsize not in (4, 8):
        return None
    if not (a.dtype.isnative and v.dtype == a.dtype and available()):
        return None
    a, v = np.ascontiguousarray(a), np.ascontiguousarray(v)
    out = pool.empty(v.shape, np.int32)
    # The search halves the range until one element is left; each step reads one element, which always exists.
    threads = thread_count() if v.size >= _THREADS_FROM else 1
    units = -(-v.size // _CHUNK)
    _loop(name_of(a.dtype), right)(units, (a.size, v.size, _CHUNK), (a, v, out), threads)
    return out


@recent(32)
def _loop(dtype: str, right: bool) -> WorkLoop:
    """Unit: a run of values. The position is ``base``, plus one if the element there comes before the value."""

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        count = w.least("%chunk", w.integer("sub", "%values", begin))
        values, out = w.element("%v", begin, dtype), w.element("%out", begin, "int32")

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
                before = w.gather("%a", w.sub(middle, w.constant(1, "int64")), dtype)
                next_base = w.select(comes_before(before, y), middle, base)
                return [w.integer("sub", left, half), next_base.ref]

            carry = [("i64", "%size"), (w.vector("i64"), "zeroinitializer")]
            base = Lane(w.repeat(carry, long, halve)[1], "int64")
            last = w.convert(comes_before(w.gather("%a", base, dtype), y), "int64")
            w.store(w.convert(w.add(base, last), "int32"), w.element(out, i, "int32"), mask)

        w.parts(count, step)

    return WorkLoop(("size", "values", "chunk"), ("a", "v", "out"), lanes_of(dtype), body)
