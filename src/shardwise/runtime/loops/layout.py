"""How loops meet memory: their order, which of them are one, tiles, and how results are laid out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray, Shape
from shardwise.runtime import costs
from shardwise.runtime.loops.tables import TableForm
from shardwise.runtime.memory import pool
from shardwise.runtime.strided import strided_view


@dataclass(frozen=True, slots=True)
class Result:
    """How a result is allocated: `shape` in memory order, then transposed and cut to the block.

    `lines`: loops that stand for several dims, with those dims and the extents of all but the last, which is the loop's own.
    """

    dtype: Any
    shape: Shape
    order: Shape | None  # None: memory order is the block's own
    block: Shape
    lines: tuple[tuple[int, Shape, Shape], ...] = ()

    def empty(self) -> Ndarray:
        """A new block, with arbitrary contents."""
        return self.view_dense(pool.empty(self.shape, self.dtype))

    def view_dense(self, dense: Ndarray) -> Ndarray:
        """An array of `shape` as the block."""
        if self.order is not None:
            dense = dense.transpose(self.order)
        for loop, dims, sizes in self.lines:
            shape, k = dense.shape, len(dims)
            dense = dense.reshape(*shape[:loop], *sizes, shape[loop] // math.prod(sizes), *shape[loop + 1 :])
            for i, d in enumerate(dims):
                dense = dense.swapaxes(d, loop + i)
            dense = dense.squeeze(tuple(range(loop, loop + k)))
        return dense.reshape(self.block) if dense.shape != self.block else dense

    def hollow(self) -> Ndarray:
        """An array with the block's shape and strides, and no memory."""
        strides = dense_steps(self.shape, self.dtype.itemsize)
        return self.view_dense(strided_view(np.empty(1, self.dtype), self.shape, strides, writeable=False))


@dataclass(frozen=True, slots=True)
class Met:
    """How the loops of a group meet its operands and results: extents per loop (grid axes, then dims of the full shape), loops in
    memory order, and per access, then per result, the strides in bytes.

    `numbers` are the operands that the accesses read. `streaming`: large results may be written past the cache. `apart`: loops
    whose index is needed, since values are put together from pieces along them; `shifts`: bytes from where an operand begins to
    where element 0 of the loops would lie, per access, if that is not the same. `tables`: of operands that are read at positions, the
    number of the access, its form, and the numbers that `TableForm.names` names. `once`: no element is computed twice, since results
    lie over operands.
    """

    full: Shape
    reduced: tuple[bool, ...]
    order: tuple[int, ...]
    numbers: tuple[int, ...]
    shapes: tuple[Shape, ...]  # of the accesses
    strides: tuple[Shape, ...]
    results: tuple[Result, ...]
    streaming: bool = True
    apart: frozenset[int] = frozenset()
    shifts: tuple[int, ...] = ()
    tables: tuple[tuple[int, TableForm, Shape], ...] = ()
    once: bool = False


def align_block(block: Ndarray, places: Sequence[int | None], lead: int, n: int) -> tuple[Shape, Shape]:
    """Extents and strides of a block per loop: grid axes, then dims of the full shape, of which `places` names one per own dim."""
    shape, strides = [1] * n, [0] * n
    for d in range(lead):
        shape[d] = block.shape[d]
        strides[d] = block.strides[d] if block.shape[d] != 1 else 0
    for i, d in enumerate(places, lead):
        if d is not None and block.shape[i] != 1:
            shape[lead + d] = block.shape[i]
            strides[lead + d] = block.strides[i]
    return tuple(shape), tuple(strides)


def place_result(
    dtype: Any,
    extents: Shape,
    order: Sequence[int],
    block: Shape,
    lines: tuple[tuple[int, Shape, Shape], ...] = (),
) -> Result:
    """The result with an extent per loop, dense in this order of loops, seen as a block of that shape."""
    inverse = tuple(int(d) for d in np.argsort(order))
    same = inverse == tuple(range(len(order)))
    return Result(dtype, tuple(extents[d] for d in order), None if same else inverse, block, lines)


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


def dense_steps(shape: Shape, itemsize: int) -> Shape:
    """Bytes between neighbours along each dim of an array in C order."""
    steps = list[int]()
    for n in reversed(shape):
        steps.append(itemsize)
        itemsize *= n
    return tuple(reversed(steps))


def merge_loops(extents: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
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


def _divisor(n: int, least: int, most: int) -> int | None:
    """The greatest divisor of `n` within bounds."""
    return next((k for k in range(min(n, most), least - 1, -1) if n % k == 0), None)


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of loops: the `kept` ones lie around a unit of work, which consists of `inner` and the loops `around` it.

    Vectors run along `lane`.
    """

    kept: Sequence[int]
    around: Sequence[int]
    inner: int
    lane: int

    @property
    def along(self) -> bool:
        """Whether vectors run along the innermost loop of a unit."""
        return self.lane == self.inner


@dataclass(frozen=True, slots=True)
class MemoryLoops:
    """Loops from the outermost to the innermost: extents, which are reduced, and per access and result the strides in bytes.

    `apart` has the loop of each dim, counted from the end, that is one of its own.
    """

    extents: list[int]
    reduced: list[bool]
    strides: list[list[int]]
    apart: dict[int, int] = field(default_factory=dict[int, int])

    @staticmethod
    def of(met: Met) -> MemoryLoops:
        """The loops in memory order, neighbours of one kind made one where every operand steps evenly through both.

        There is at least one loop, and one that is reduced if any is, be its extent 1.
        """
        extents = [met.full[d] for d in met.order]
        reduced = [met.reduced[d] for d in met.order]
        strides = [[own[d] for d in met.order] for own in met.strides]
        found = MemoryLoops([], [], [[] for _ in strides])
        start = 0
        while start < len(extents):
            end = start + 1
            if met.order[start] in met.apart:
                found.apart[met.order[start] - len(met.full)] = len(found.extents)
            else:
                while end < len(extents) and (reduced[end] == reduced[start] or extents[end] == 1):
                    if met.order[end] in met.apart:
                        break
                    end += 1
            sizes, steps = merge_loops(extents[start:end], [s[start:end] for s in strides])
            if sizes != [1]:
                found._append(sizes, reduced[start], steps)
            start = end
        if any(reduced) > any(found.reduced) or not found.extents:
            found._append([1], any(reduced), [[0] for _ in strides])
        return found

    def roles(self, lane: int) -> Roles:
        """The roles of the loops where vectors run along `lane`.

        Accumulators go on in a unit of work: its loops are the reduced ones, or `lane` alone where none is reduced.
        """
        inside = [d for d, reduced in enumerate(self.reduced) if reduced] or [lane]
        inner = lane if lane in inside else inside[-1]
        around = [d for d in inside if d != inner]
        return Roles([d for d in range(len(self.extents)) if d not in inside and d != lane], around, inner, lane)

    def _append(self, extents: Sequence[int], reduced: bool, strides: Sequence[Sequence[int]]) -> None:
        self.extents.extend(extents)
        self.reduced.extend([reduced] * len(extents))
        for own, more in zip(self.strides, strides, strict=True):
            own.extend(more)

    def cut_into_tiles(self, sizes: Sequence[int], least: int) -> MemoryLoops:
        """The loops cut into tiles, where an operand runs across the innermost loop but along another one of its kind.

        Then what comes into the cache with one of its elements is used before it leaves. Tiles divide the loops, and are at least
        `least` long; loops that have no such divisors stay whole. `sizes` are the bytes of an element of each access and result.
        """
        extents, inner = self.extents, len(self.extents) - 1
        for own, size in zip(self.strides, sizes, strict=True):
            along = next((d for d in range(inner) if abs(own[d]) == size), None)
            if along is None or abs(own[inner]) <= size or self.reduced[along] != self.reduced[inner]:
                continue
            rows, columns = _divisor(extents[along], 8, 64), _divisor(extents[inner], least, 2 * least)
            if rows is None or columns is None:
                return self
            whole = extents[along] // rows, extents[inner] // columns
            return MemoryLoops(
                [*extents[:along], whole[0], *extents[along + 1 : inner], whole[1], rows, columns],
                [*self.reduced, *[self.reduced[inner]] * 2],
                [
                    [*s[:along], s[along] * rows, *s[along + 1 : inner], s[inner] * columns, s[along], s[inner]]
                    for s in self.strides
                ],
            )
        return self


def streams(nbytes: int, strides: Sequence[int], row: int, itemsize: int) -> bool:
    """Whether a result of `nbytes`, dense along rows of `row` elements, is to be written past the cache.

    `strides` are those of the loops around the row. Such stores must be aligned, which the pool's large buffers are.
    """
    return nbytes >= costs.STREAMED_FROM and not any(s % 64 for s in (*strides, row * itemsize))
