"""Binary search of many values in one sorted array, in machine code: a vector of values at a time, without branches."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.runtime.machine.lanes import STORED, Lane
from shardwise.runtime.machine.threads import thread_count
from shardwise.runtime.machine.units import Loop, Vectors, available, lanes_of
from shardwise.runtime.memory import pool

Block = np.ndarray[Any, Any]

FEWEST = 1 << 10  # values from which a compiled loop pays
_CHUNK = 1 << 12  # values that a thread takes at a time
_SHARED = 1 << 14  # from which a second thread pays


def searched(a: Block, v: Block, right: bool) -> Block | None:
    """int32 positions of `v` in the sorted 1-dimensional `a`, as `np.searchsorted` finds them; None if there is no code for it."""
    if v.size < FEWEST or not 0 < a.size < 1 << 31 or a.dtype.kind not in "iuf" or a.dtype.itemsize not in (4, 8):
        return None
    if not (a.dtype.isnative and v.dtype == a.dtype and available()):
        return None
    a, v = np.ascontiguousarray(a), np.ascontiguousarray(v)
    out = pool.empty(v.shape, np.int32)
    # Steps of the search: halving until one element is left; each looks at one element, which is always there.
    threads = thread_count() if v.size >= _SHARED else 1
    units = -(-v.size // _CHUNK)
    _loop(a.dtype.name, right)(units, (a.size, v.size, _CHUNK), (a, v, out), threads)
    return out


@recent(32)
def _loop(dtype: str, right: bool) -> Loop:
    """Unit: a run of values. The position is ``base``, plus one if the element there comes before the value."""

    def body(w: Vectors) -> None:
        begin = w.value("mul i64 %u, %chunk")
        count = w.least("%chunk", w.value(f"sub i64 %values, {begin}"))
        values, out = w.place("%v", begin, dtype), w.place("%out", begin, "int32")
        ones, pointers = w.vector("i1"), f"<{w.width} x ptr>"
        stored = w.vector(STORED[dtype])
        name = f"llvm.masked.gather.{w.suffix(dtype)[:-3]}.v{w.width}p0"
        w.declare(name, f"declare {stored} @{name}({pointers}, i32, {ones}, {stored})")
        whole = "<" + ", ".join(["i1 true"] * w.width) + ">"

        def element(at: Lane) -> Lane:
            places = w.value(f"getelementptr {STORED[dtype]}, ptr %a, {w.vector('i64')} {at.ref}")
            return Lane(
                w.value(f"call {stored} @{name}({pointers} {places}, i32 1, {ones} {whole}, {stored} poison)"), dtype
            )

        def comes_before(x: Lane, y: Lane) -> Lane:
            """Whether element `x` stands before the place of value `y`; NaN is the greatest of all, and equal to itself."""
            first, second = (y, x) if right else (x, y)
            less = w.compare("lt", first, second)
            if x.floating:
                odd = w.binary("and", w.isnan(second), w.binary("xor", w.isnan(first), w.constant(True, "bool")))
                less = w.binary("or", less, odd)
            return w.binary("xor", less, w.constant(True, "bool")) if right else less

        def step(i: str, mask: str | None) -> None:
            y = w.load(w.place(values, i, dtype), dtype, mask, w.constant(0, dtype))
            head, inside, after, before = w.name("head"), w.name("halve"), w.name("found"), w.label
            left, base = "%" + w.name("left"), Lane("%" + w.name("base"), "int64")
            w.line(f"br label %{head}")
            w.start(head)
            at = len(w.lines)
            w.lines += ["", ""]
            w.line(f"br i1 {w.value(f'icmp ugt i64 {left}, 1')}, label %{inside}, label %{after}")
            w.start(inside)
            half = w.value(f"lshr i64 {left}, 1")
            middle = w.add(base, w.splat(half, "int64"))
            # The element before the middle decides; the half that is left may be one longer than needed.
            one = w.constant(1, "int64")
            further = comes_before(element(w.sub(middle, one)), y)
            next_base = w.select(further, middle, base)
            next_left = w.value(f"sub i64 {left}, {half}")
            w.lines[at] = f"  {left} = phi i64 [ %size, %{before} ], [ {next_left}, %{w.label} ]"
            w.lines[at + 1] = (
                f"  {base.ref} = phi {w.vector('i64')} [ zeroinitializer, %{before} ], [ {next_base.ref}, %{w.label} ]"
            )
            w.line(f"br label %{head}")
            w.start(after)
            last = w.convert(comes_before(element(base), y), "int64")
            w.store(w.convert(w.add(base, last), "int32"), w.place(out, i, "int32"), mask)

        w.vectors(count, step)

    return Loop(("size", "values", "chunk"), ("a", "v", "out"), lanes_of(dtype), body)
