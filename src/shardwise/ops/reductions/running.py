"""Compiled running reductions of large blocks: a vector at a time along rows, whole rows at a time along other dims.

Within a vector the scan doubles its distance in each step; only the vector's total is carried to the next vector. A few long rows
are cut into pieces: a first pass finds each piece's total, then each piece starts from the total of the pieces before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import name_of
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.runtime import extrema
from shardwise.runtime.copies import row_major
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import TYPES, Lane, Lanes, available, libm, thread_count
from shardwise.runtime.memory import pool

FEWEST = 1 << 13  # elements; from here on a compiled loop is faster
_PIECE = 1 << 14  # least number of elements of a row per thread
_COLUMNS = 1 << 10  # columns per chunk of a thread
_THREADS_FROM = 1 << 17  # elements; from here on a second thread is faster


def _log_add(w: Lanes, x: Lane, y: Lane) -> Lane:
    """``log(exp(x) + exp(y))``; for two equal values, also infinite ones, ``x + log(2)``."""
    apart = w.select(w.compare("eq", x, y), w.like(0, x), w.abs(w.sub(x, y)))
    return w.add(ir.MAX.write(w, x, y), libm.log1p(w, libm.exp(w, w.neg(apart))))


@dataclass(frozen=True)
class RunningReduction:
    """A running reduction: its ufunc, its code on vectors, its identity by dtype, and its initial value."""

    ufunc: Any
    write: Callable[[Lanes, Lane, Lane], Lane]
    identity: Callable[[np.dtype[Any]], Any]
    # The initial value if not the identity: sums begin with 0.0, so that they are never -0.0.
    begin: float | None = None

    def combine_initial(self, x: Ndarray) -> Ndarray:
        """`x` (partial results, or a row's start) combined with the initial value; `x` may be overwritten."""
        if self.begin is None or x.dtype.kind in "iu":
            return x
        return self.ufunc(x, x.dtype.type(self.begin), out=x)


def _bound_function(least: bool) -> Callable[[np.dtype[Any]], Any]:
    def dtype_bound(dtype: np.dtype[Any]) -> Any:
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            return info.min if least else info.max
        return -np.inf if least else np.inf

    return dtype_bound


class _Extremum:
    """NumPy's `maximum` or `minimum` with zeros ordered as in `extrema`: a running maximum is -0.0 only if all zeros so far are."""

    def __init__(self, reduction: str) -> None:
        self._reduction = reduction
        self._ufunc, self._sign = (np.maximum, np.logical_and) if reduction == "max" else (np.minimum, np.logical_or)

    def __call__(self, x: Ndarray, y: Ndarray, out: Ndarray) -> Ndarray:
        """Like the ufunc's call."""
        out[...] = extrema.function(self._reduction, x.dtype)(x, y)
        return out

    def accumulate(self, x: Ndarray, axis: int, dtype: Any) -> Ndarray:
        """Like the ufunc's `accumulate`."""
        out = self._ufunc.accumulate(x, axis=axis, dtype=dtype)
        if extrema.has_signs(out.dtype) and np.count_nonzero(out) != out.size:
            zeros = np.where(self._sign.accumulate(np.signbit(x), axis=axis), out.dtype.type(-0.0), out.dtype.type(0.0))
            np.copyto(out, zeros, where=np.equal(out, 0))
        return out


class _LogSum:
    """NumPy's `logaddexp`, for complex numbers too: the logarithm of the sum of two powers, its phase within half a turn."""

    def __call__(self, x: Ndarray, y: Ndarray, out: Ndarray) -> Ndarray:
        """Like the ufunc's call."""
        if x.dtype.kind != "c":
            return np.logaddexp(x, y, out=out)
        high = np.maximum(x, y)
        out[...] = high + np.log1p(np.exp(x + y - 2 * high))
        out.imag -= 2 * np.pi * np.rint(out.imag / (2 * np.pi))
        return out

    def accumulate(self, x: Ndarray, axis: int, dtype: Any) -> Ndarray:
        """Like the ufunc's `accumulate`."""
        if x.dtype.kind != "c":
            return np.logaddexp.accumulate(x, axis=axis, dtype=dtype)
        out = np.array(x, dtype)
        rows = np.moveaxis(out, axis, 0)
        for i in range(1, len(rows)):
            self(rows[i - 1, ...], rows[i, ...], out=rows[i, ...])
        return out


SUM = RunningReduction(
    np.add, Lanes.add, lambda dtype: -0.0 if dtype.kind == "f" else 0, 0.0
)  # 0.0 plus -0.0 is not -0.0
PRODUCT = RunningReduction(np.multiply, Lanes.mul, lambda dtype: 1)
MAXIMUM = RunningReduction(_Extremum("max"), ir.MAX.write, _bound_function(True))
MINIMUM = RunningReduction(_Extremum("min"), ir.MIN.write, _bound_function(False))
LOG_SUM = RunningReduction(_LogSum(), _log_add, _bound_function(True))


def accumulate_dim(running: RunningReduction, x: Ndarray, dim: int, reverse: bool) -> Ndarray | None:
    """The running reduction along `dim`, in the block's dtype and order of dims; None where NumPy is as fast or no code exists."""
    n, dtype = x.shape[dim], x.dtype
    if x.size < FEWEST or n < 2 or dtype.kind not in "iuf" or name_of(dtype) not in TYPES or not dtype.isnative:
        return None
    if (dtype.itemsize < 4 and dtype.kind == "f") or not available():
        return None
    order = sorted(range(x.ndim), key=lambda d: (-abs(x.strides[d]), d))
    dense = x.transpose(order)
    if not dense.flags.c_contiguous:
        order = [*(d for d in range(x.ndim) if d != dim), dim] if x.strides[dim] == dtype.itemsize else [*range(x.ndim)]
        dense = row_major(x.transpose(order))
    at = order.index(dim)
    outer, inner = math.prod(dense.shape[:at]), math.prod(dense.shape[at + 1 :])
    out = pool.empty(dense.shape, dtype)
    if inner == 1:
        _along_rows(running, dense, out, outer, n, reverse)
    else:
        width = _COLUMNS if outer * inner >= 2 * _COLUMNS else max(64, inner // thread_count())
        blocks = -(-inner // width)
        loop = _column_loop(running, name_of(dtype), reverse)
        loop(outer * blocks, (n, inner, blocks, width), (dense, out), None if x.size >= _THREADS_FROM else 1)
    return out.transpose(np.argsort(order))


def _along_rows(running: RunningReduction, x: Ndarray, out: Ndarray, rows: int, n: int, reverse: bool) -> None:
    dtype = x.dtype
    threads = thread_count() if x.size >= _THREADS_FROM else 1
    pieces = 1 if rows >= 4 * threads or threads == 1 else max(1, min(4 * threads, n // _PIECE))
    size = -(-n // pieces)
    begins = running.combine_initial(np.full((rows, pieces), running.identity(dtype), dtype))
    numbers = (n, pieces, size)
    if pieces > 1:
        totals = np.empty_like(begins)
        _row_loop(running, name_of(dtype), reverse, False)(rows * pieces, numbers, (x, out, begins, totals), threads)
        own, others = (slice(None, -1), slice(1, None)) if reverse else (slice(1, None), slice(None, -1))
        ordered_totals = totals[:, ::-1] if reverse else totals
        upto = running.combine_initial(running.ufunc.accumulate(ordered_totals, axis=1, dtype=dtype))
        begins[:, own] = (upto[:, ::-1] if reverse else upto)[:, others]
    _row_loop(running, name_of(dtype), reverse, True)(rows * pieces, numbers, (x, out, begins, begins), threads)


@recent(128)
def _row_loop(running: RunningReduction, dtype: str, reverse: bool, writes: bool) -> WorkLoop:
    """Unit: a piece of a contiguous row, started from `begins`. `writes`: store all values in `out`, else only the last in `totals`."""

    def body(w: Function, unit: str) -> None:
        identity = w.constant(running.identity(np.dtype(dtype)), dtype)
        row, part = w.integer("udiv", unit, "%pieces"), w.integer("urem", unit, "%pieces")
        begin = w.integer("mul", part, "%size")
        count = w.least("%size", w.integer("sub", "%n", begin))
        first = w.integer("add", w.integer("mul", row, "%n"), begin)
        source, target = w.element("%x", first, dtype), w.element("%out", first, dtype)
        v = w.vector(TYPES[dtype])
        start = w.scalar(w.element("%begins", unit, dtype), dtype)

        def step(i: str, mask: str | None, carry: Lane) -> Lane:
            x = w.load(w.element(source, i, dtype), dtype, mask, identity)
            reach = 1
            while reach < w.width:
                x = running.write(w, _shift_lanes(w, x, identity, -reach if reverse else reach), x)
                reach *= 2
            if writes:
                w.store(running.write(w, carry, x), w.element(target, i, dtype), mask)
            return running.write(w, carry, w.first(x if reverse else w.rotate_lanes(x, w.width - 1)))

        rest = w.integer("urem", count, w.width)
        whole = w.integer("sub", count, rest)
        last = w.integer("sub", count, w.width)  # reversed, the last vector is first; the remainder is at the start

        def vector(i: str, held: list[Lane]) -> list[Lane]:
            return [step(w.integer("sub", last, i) if reverse else i, None, held[0])]

        (end,) = w.accumulate(0, whole, vector, [start], w.width, occurs=False)
        some = w.test("ne", rest, 0)
        (ref,) = w.branch(some, lambda: [step("0" if reverse else whole, w.below(rest), end).ref], [end.ref], [v])
        if not writes:
            one = w.value(f"extractelement {v} {ref}, i64 0")
            w.line(f"store {TYPES[dtype]} {one}, ptr {w.element('%totals', unit, dtype)}, align 1")

    return WorkLoop(("n", "pieces", "size"), ("x", "out", "begins", "totals"), lanes_of(dtype), body)


def _shift_lanes(w: Lanes, x: Lane, other: Lane, by: int) -> Lane:
    """Lane i has the value of lane ``i - by``; `other` where there is none."""
    n, v = w.width, w.vector(x.type)
    places = [i - by if 0 <= i - by < n else n + i for i in range(n)]
    mask = ", ".join(f"i32 {p}" for p in places)
    return w.let(f"shufflevector {v} {x.ref}, {v} {other.ref}, <{n} x i32> <{mask}>", x.dtype)


@recent(128)
def _column_loop(running: RunningReduction, dtype: str, reverse: bool) -> WorkLoop:
    """Unit: some columns of one of the ``(n, inner)`` matrices, row after row."""

    def body(w: Function, unit: str) -> None:
        matrix, part = w.integer("udiv", unit, "%blocks"), w.integer("urem", unit, "%blocks")
        begin = w.integer("mul", part, "%width")
        columns = w.least("%width", w.integer("sub", "%inner", begin))
        size = w.integer("mul", "%n", "%inner")
        first = w.integer("add", w.integer("mul", matrix, size), begin)
        if reverse:
            first = w.value(f"add i64 {first}, {w.integer('sub', size, '%inner')}")
        source, target = w.element("%x", first, dtype), w.element("%out", first, dtype)
        back = w.integer("sub", "0", "%inner") if not reverse else "%inner"

        def first_row(j: str, mask: str | None) -> None:
            x = w.load(w.element(source, j, dtype), dtype, mask)
            if running.begin is not None and x.floating:
                x = running.write(w, w.like(running.begin, x), x)
            w.store(x, w.element(target, j, dtype), mask)

        w.parts(columns, first_row)

        def row(i: str, _: list[str]) -> None:
            at = w.integer("mul", i, "%inner")
            if reverse:
                at = w.integer("sub", "0", at)
            here, there = w.element(source, at, dtype), w.element(target, at, dtype)
            before = w.element(there, back, dtype)

            def step(j: str, mask: str | None) -> None:
                sum_ = w.load(w.element(before, j, dtype), dtype, mask)
                x = w.load(w.element(here, j, dtype), dtype, mask)
                w.store(running.write(w, sum_, x), w.element(there, j, dtype), mask)

            w.parts(columns, step)

        w.loop(1, "%n", row, occurs=False)

    return WorkLoop(("n", "inner", "blocks", "width"), ("x", "out"), lanes_of(dtype), body)
