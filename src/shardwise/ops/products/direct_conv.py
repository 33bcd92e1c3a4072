"""Convolutions in machine code that read the windows where they lie, without laying them out as matrices.

Comes in: a padded operand and a kernel, as `im2col` arranges them. Goes out: the result, or None where matrix products do better.
A tile of the result stays in registers while it goes through all taps and channels.

| features | a vector holds | a number for all lanes |
|---|---|---|
| last | features of the kernel | the operand's element at a place |
| first | neighbouring places of the operand | the kernel's element of a feature |
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ints, Ndarray
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.loops import Call, Function, WorkLoop, lanes_of
from shardwise.runtime.machine import Lane, available, itemsize, target, thread_count

_LEAST = 1 << 14  # multiplications: as matrices 90 us are spent on laying out windows, whatever their size, and 10 so
_KERNEL = 1 << 20  # bytes of the kernel for a block of features, which should stay in the cache of second level
_FEWEST = 4  # channels
_SHORTEST = 6  # places in a row, so that enough sums are independent of each other
_UNITS = 4  # of work per thread, at least
_SUMS = 24, 12  # vectors of sums in registers: with 32 registers, and with 16


def direct_call(
    x: Ndarray, kernel: Ints, counts: Ints, moved: Sequence[int], inner: Sequence[int], features_last: bool
) -> DirectCall | None:
    """How to compute the products of windows of `x` with kernels of the shape `kernel`; None where this is not the way to do it.

    `x` is (N, space, C) or (N, C, space), kernels (O, C, taps), results (N, counts, O) or (N, O, counts), and contiguous. `moved` and
    `inner` are bytes in `x` between places of the window, and between its taps.
    """
    features, channels, *taps = kernel
    dtype, size, row = x.dtype, x.itemsize, counts[-1]
    if not pays(dtype, kernel, len(x) * prod(counts), row, features_last):
        return None
    if x.strides[-1] != size if features_last else moved[-1] != size:
        return None
    offsets, lines = _offsets(tuple(taps), tuple(inner)), _offsets(counts[:-1], tuple(moved[:-1]))
    if features_last:
        width = _width(dtype.name, features)
        kernel_order, whole = (*range(2, len(kernel)), 1, 0), -(-features // width) * width
        steps = moved[-1], x.strides[0]
        loop, blocks = _features_last(dtype.name, len(offsets), channels, features, len(lines), row, *steps)
    else:
        kernel_order, whole = (1, *range(2, len(kernel)), 0), features
        steps = x.strides[1], x.strides[0]
        loop, blocks = _features_first(dtype.name, len(offsets), channels, features, len(lines), row, *steps)
    work = len(x) * prod(counts) * prod(kernel)
    threads = thread_count() if work >= costs.PRODUCT_SHARED else 1
    parts = min(len(lines), max(1, _UNITS * threads // (len(x) * blocks)))
    numbers = parts, -(-len(lines) // parts)
    call = loop.call(len(x) * blocks * parts, numbers, threads, costs.DRAFT_PRODUCT * work)
    return DirectCall(call, kernel_order, whole, (offsets, lines))


class DirectCall(NamedTuple):
    """Computes ``out`` from `x` and a kernel (O, C, taps), in arrays that lie as `direct_call` was told.

    Attributes:
        call: of the machine code.
        kernel_order: the order of the kernel's dims in its memory; features are last.
        whole: features with those that fill the last vector.
        tables: how many bytes places and lines lie behind the first.
    """

    call: Call
    kernel_order: Ints
    whole: int
    tables: tuple[Ndarray, Ndarray]

    def __call__(self, x: Ndarray, kernel: Ndarray, out: Ndarray) -> None:
        w = kernel.transpose(self.kernel_order)
        features = w.shape[-1]
        if self.whole == features:
            w = np.ascontiguousarray(w)
        else:
            given, w = w, np.zeros((*w.shape[:-1], self.whole), w.dtype)
            w[..., :features] = given
        self.call(*[address(a) for a in (x, w, out, *self.tables)])


def _width(dtype: str, features: int) -> int:
    """Lanes of a vector of features: few features have short vectors."""
    return min(lanes_of(dtype), 1 << (features - 1).bit_length())


def pays(dtype: np.dtype[Any], kernel: Ints, places: int, row: int, features_last: bool) -> bool:
    """Whether this is the way for a kernel (O, C, taps) and a result of `places` places, `row` of them in a row."""
    features, depth = kernel[0], prod(kernel[1:])
    if dtype.name not in ("float32", "float64") or not available():
        return False
    lanes = lanes_of(dtype.name)
    if places * features * depth < _LEAST or depth * 2 * lanes * dtype.itemsize > _KERNEL:
        return False
    if not features_last and (features < lanes or kernel[1] < _FEWEST):  # signals and images: as matrices they are thin
        return row >= 2 * lanes
    return row >= (_SHORTEST if features_last else lanes)


@recent(512)
def _offsets(sizes: Ints, steps: Ints) -> Ndarray:
    """How many bytes each of the places lies behind the first, row by row."""
    places = np.indices(sizes, np.int64).reshape(len(sizes), prod(sizes))
    return np.array(steps, np.int64) @ places


def _most() -> int:
    return _SUMS[0] if target().wide else _SUMS[1]


@recent(128)
def _features_last(
    dtype: str, taps: int, channels: int, features: int, lines: int, row: int, step: int, sample: int
) -> tuple[WorkLoop, int]:
    """Unit: some lines of a block of features of a sample. Goes out also: how many blocks there are."""
    size = itemsize(dtype)
    width = _width(dtype, features)
    vectors = -(-features // width)
    wide = next(n for n in (2, 3, 1) if vectors % n == 0)
    blocks, block, whole = vectors // wide, wide * width, vectors * width
    tiles = -(-row // (_most() // wide))
    most = -(-row // tiles)
    long = most * (row - tiles * (most - 1))  # places in tiles of `most`; the others have one less

    def body(w: Function, unit: str) -> None:
        w.at(width)
        number, place, begin, end = _unit(w, unit, blocks, lines)
        first = w.integer("mul", place, block)
        x, out = (
            w.advance_address("%x", number, sample),
            w.advance_address("%out", number, lines * row * features * size),
        )
        kernel, into = w.element("%kernel", first, dtype), w.element(out, first, dtype)
        masks: list[str | None] = [None] * wide
        if features % width:
            rest = w.integer("sub", features, first)
            masks = [w.below(w.integer("sub", rest, v * width)) for v in range(wide)]

        def line(i: str, _: list[str]) -> None:
            source = _at(w, x, "%lines", i)
            target = w.advance_address(into, i, row * features * size)
            w.loop(0, long, lambda place, _: tile(source, target, place, most), step=most)
            w.loop(long, row, lambda place, _: tile(source, target, place, most - 1), step=most - 1)

        def tile(source: str, target: str, place: str, n: int) -> None:
            here, there = w.advance_address(source, place, step), w.advance_address(target, place, features * size)

            def tap(t: str, sums: list[Lane]) -> list[Lane]:
                given, factors = _at(w, here, "%offsets", t), w.advance_address(kernel, t, channels * whole * size)

                def channel(c: str, sums: list[Lane]) -> list[Lane]:
                    row_of = w.advance_address(factors, c, whole * size)
                    right = [w.load(w.advance_address(row_of, v, width * size), dtype) for v in range(wide)]
                    at = w.element(given, c, dtype)
                    left = [w.scalar(w.advance_address(at, r, step), dtype) for r in range(n)]
                    return [w.fma(left[i // wide], right[i % wide], s) for i, s in enumerate(sums)]

                return w.accumulate(0, channels, channel, sums)

            sums = w.accumulate(0, taps, tap, [w.constant(0, dtype)] * (n * wide))
            for i, s in enumerate(sums):
                at = w.advance_address(w.advance_address(there, i // wide, features * size), i % wide, width * size)
                w.store(s, at, masks[i % wide])

        w.loop(begin, end, line, occurs=False)

    return WorkLoop(("parts", "span"), ("x", "kernel", "out", "offsets", "lines"), width, body), blocks


@recent(128)
def _features_first(
    dtype: str, taps: int, channels: int, features: int, lines: int, row: int, step: int, sample: int
) -> tuple[WorkLoop, int]:
    """The same with features in front of space; `step`: bytes from channel to channel. Blocks may overlap."""
    width, size = lanes_of(dtype), itemsize(dtype)
    wide = max(1, min(max(2, _most() // (2 * features)), row // width))  # sums enough, also of few features
    blocks = -(-features // (_most() // wide))
    block = -(-features // blocks)

    def body(w: Function, unit: str) -> None:
        number, place, begin, end = _unit(w, unit, blocks, lines)
        first = w.least(w.integer("mul", place, block), features - block)
        x = w.advance_address("%x", number, sample)
        out = w.advance_address(
            w.advance_address("%out", number, features * lines * row * size), first, lines * row * size
        )
        kernel = w.element("%kernel", first, dtype)

        def line(i: str, _: list[str]) -> None:
            source, target = _at(w, x, "%lines", i), w.advance_address(out, i, row * size)
            w.row(
                row, lambda place: tile(w.element(source, place, dtype), w.element(target, place, dtype)), wide * width
            )

        def tile(here: str, there: str) -> None:
            def channel(c: str, sums: list[Lane]) -> list[Lane]:
                given, factors = w.advance_address(here, c, step), w.advance_address(kernel, c, taps * features * size)

                def tap(t: str, sums: list[Lane]) -> list[Lane]:
                    at, column = _at(w, given, "%offsets", t), w.advance_address(factors, t, features * size)
                    right = [w.load(w.advance_address(at, v, width * size), dtype) for v in range(wide)]
                    left = [w.scalar(w.advance_address(column, o, size), dtype) for o in range(block)]
                    return [w.fma(left[i // wide], right[i % wide], s) for i, s in enumerate(sums)]

                return w.accumulate(0, taps, tap, sums)

            sums = w.accumulate(0, channels, channel, [w.constant(0, dtype)] * (block * wide))
            for i, s in enumerate(sums):
                w.store(
                    s,
                    w.advance_address(w.advance_address(there, i // wide, lines * row * size), i % wide, width * size),
                )

        w.loop(begin, end, line, occurs=False)

    return WorkLoop(("parts", "span"), ("x", "kernel", "out", "offsets", "lines"), width, body), blocks


def _unit(w: Function, unit: str, blocks: int, lines: int) -> tuple[str, str, str, str]:
    """A unit's sample, its block of features, and where its lines begin and end."""
    part, rest = w.integer("urem", unit, "%parts"), w.integer("udiv", unit, "%parts")
    begin = w.integer("mul", part, "%span")
    end = w.least(w.integer("add", begin, "%span"), lines)
    return w.integer("udiv", rest, blocks), w.integer("urem", rest, blocks), begin, end


def _at(w: Function, place: str, table: str, index: str) -> str:
    """The address behind `place` by the bytes that a table has at `index`."""
    offset = w.value(f"load i64, ptr {w.element(table, index, 'int64')}, align 8")
    return w.advance_address(place, offset, 1)
