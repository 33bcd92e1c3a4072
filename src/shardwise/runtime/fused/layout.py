"""How fused loops meet memory: the order of the loops, which of them are one, and how results are laid out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise.runtime.blocks import Ndarray
from shardwise.runtime.memory import pool

Shape = tuple[int, ...]

STREAMED_BYTES = 1 << 25  # results from which on the cache is of no use to who reads them next


@dataclass(frozen=True, slots=True)
class Result:
    """How a result is allocated: `shape` in memory order, then transposed and cut to the block."""

    dtype: Any
    shape: Shape
    order: Shape | None  # None: memory order is the block's own
    block: Shape

    def empty(self) -> Ndarray:
        """A new block, with arbitrary contents."""
        return self.seen(pool.empty(self.shape, self.dtype))

    def seen(self, dense: Ndarray) -> Ndarray:
        """An array of `shape` as the block."""
        if self.order is not None:
            dense = dense.transpose(self.order)
        return dense.reshape(self.block) if dense.shape != self.block else dense


@dataclass(frozen=True, slots=True)
class Met:
    """How the loops of a group meet its operands and results: extents per loop (grid axes, then dims of the full shape), loops in
    memory order, and per access, then per result, the strides in bytes.

    `numbers` are the operands that the accesses read. `streaming`: large results may be written past the cache.
    """

    full: Shape
    reduced: tuple[bool, ...]
    order: tuple[int, ...]
    numbers: tuple[int, ...]
    shapes: tuple[Shape, ...]  # of the accesses
    strides: tuple[Shape, ...]
    results: tuple[Result, ...]
    streaming: bool = True

    def sorted(self) -> tuple[list[int], list[bool], list[list[int]]]:
        """Extents, whether loops are reduced, and strides, with the loops in memory order."""
        order = self.order
        return (
            [self.full[d] for d in order],
            [self.reduced[d] for d in order],
            [[s[d] for d in order] for s in self.strides],
        )


@dataclass(frozen=True, slots=True)
class Work:
    """A group's function with the job of one thread that does all of it, and the bytes of memory that it needs meanwhile.

    It takes pointers to the accesses' operands, the results, and that memory (`extra` of them, at these offsets).
    """

    kernel: Any
    job: Any
    bytes: int = 0
    extra: tuple[int, ...] = ()


def lined_up(blocks: Sequence[Ndarray], lead: int, core: Shape) -> tuple[list[Shape], list[Shape]]:
    """Shapes and strides of the blocks as loops over ``lead + len(core)`` dims see them; a dim that broadcasts has stride 0."""
    shapes, strides = [], []
    for block in blocks:
        missing = lead + len(core) - block.ndim
        shape = block.shape[:lead] + (1,) * missing + block.shape[lead:]
        steps = block.strides[:lead] + (0,) * missing + block.strides[lead:]
        shapes.append(shape)
        strides.append(tuple(0 if n == 1 else s for n, s in zip(shape, steps, strict=True)))
    return shapes, strides


def placed(dtype: Any, extents: Shape, order: Sequence[int], block: Shape) -> Result:
    """The result with an extent per loop, dense in this order of loops, seen as a block of that shape."""
    inverse = tuple(int(d) for d in np.argsort(order))
    same = inverse == tuple(range(len(order)))
    return Result(dtype, tuple(extents[d] for d in order), None if same else inverse, block)


def memory_order(full: Shape, shapes: Sequence[Shape], strides: Sequence[Shape]) -> list[int]:
    """The dims of `full` from the farthest apart in memory to the nearest, by the largest operand that tells."""
    judges = sorted(range(len(shapes)), key=lambda i: -math.prod(shapes[i]))

    def outside(a: int, b: int) -> bool:
        """Whether dim a belongs outside of dim b, for a < b."""
        for i in judges:
            if strides[i][a] and strides[i][b]:
                return abs(strides[i][a]) >= abs(strides[i][b])
        return True

    ranked: list[int] = []
    long = [d for d, n in enumerate(full) if n != 1]
    for d in long:  # by insertion: where nothing tells, the dims keep their order
        at = len(ranked)
        while at and not outside(ranked[at - 1], d):
            at -= 1
        ranked.insert(at, d)
    order = list(range(len(full)))
    for slot, d in zip(long, ranked, strict=True):
        order[slot] = d
    return order


def dense_strides(extents: Shape, order: Sequence[int], itemsize: int) -> Shape:
    """Strides of a dense array with these extents in this memory order; 0 where the extent is 1."""
    strides = [0] * len(extents)
    step = itemsize
    for d in reversed(order):
        if extents[d] != 1:
            strides[d] = step
            step *= extents[d]
    return tuple(strides)


def merged(extents: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The same loops, with neighbours made one where every operand steps evenly through both; at least one loop."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(extents):
        if n == 1:
            continue
        if sizes and all(own[-1] == s[d] * n for own, s in zip(steps, strides, strict=True)):
            sizes[-1] *= n
            for own, s in zip(steps, strides, strict=True):
                own[-1] = s[d]
        else:
            sizes.append(n)
            for own, s in zip(steps, strides, strict=True):
                own.append(s[d])
    if not sizes:
        return [1], [[0] for _ in strides]
    return sizes, steps


def tiled(extents: list[int], strides: list[list[int]], sizes: Sequence[int], least: int) -> None:
    """Cut the loops into tiles, in place, where an operand runs across the innermost loop but along another one.

    Then what comes into the cache with one of its elements is used before it leaves. Tiles divide the loops, and are at least
    `least` long; loops that have no such divisors stay whole.
    """
    inner = len(extents) - 1
    for own, size in zip(strides, sizes, strict=True):
        along = next((d for d in range(inner) if abs(own[d]) == size), None)
        if along is None or abs(own[inner]) <= size:
            continue
        rows, columns = _divisor(extents[along], 8, 64), _divisor(extents[inner], least, 2 * least)
        if rows is None or columns is None:
            return
        whole = extents[along] // rows, extents[inner] // columns
        extents[along : inner + 1] = [whole[0], *extents[along + 1 : inner], whole[1], rows, columns]
        for s in strides:
            s[along : inner + 1] = [s[along] * rows, *s[along + 1 : inner], s[inner] * columns, s[along], s[inner]]
        return


def _divisor(n: int, least: int, most: int) -> int | None:
    """The greatest divisor of `n` within bounds."""
    return next((k for k in range(min(n, most), least - 1, -1) if n % k == 0), None)


def streams(nbytes: int, strides: Sequence[int], row: int, itemsize: int) -> bool:
    """Whether a result of so many bytes, dense along rows of `row` elements, is to be written past the cache.

    `strides` are those of the loops around the row. Such stores must be aligned, which the pool's large buffers are.
    """
    return nbytes >= STREAMED_BYTES and not any(s % 64 for s in (*strides, row * itemsize))
