"""Loops along a dim that devices split: in one process their parts are one loop, if all blocks step evenly from part to part.

Then values that a collective puts together from pieces of the whole dim (`Collective.boxes`) are read where they lie, as those of one
device are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray, Shape
from shardwise.runtime.env import Env
from shardwise.runtime.fused.space import Graph, InputAccess
from shardwise.runtime.loops import align_block


@dataclass(frozen=True, slots=True)
class SplitLoop:
    """The `loop` of a dim and the loops `leads` of the grid axes that split it, the first one major; `sizes`: the devices along each."""

    loop: int
    leads: tuple[int, ...]
    sizes: Shape

    def loops(self, full: Shape) -> Shape:
        """The extents with one loop for all."""
        extents = list(full)
        extents[self.loop] *= math.prod(self.sizes)
        for lead in self.leads:
            extents[lead] = 1
        return tuple(extents)

    def block(self, full: Shape, shape: Shape, steps: Shape) -> tuple[Shape, Shape] | None:
        """Extents and strides of a block for these loops; None where it does not step evenly."""
        loops = [d for d in (*self.leads, self.loop) if full[d] != 1]
        if all(shape[d] == 1 or not steps[d] for d in loops):  # the same all along
            return self.put_number(shape, 1), self.put_number(steps, 0, 0)
        if any(shape[d] != full[d] for d in loops):
            return None
        step, n = steps[loops[-1]], 1
        for d in reversed(loops):
            if steps[d] != step * n:
                return None
            n *= full[d]
        return self.put_number(shape, n), self.put_number(steps, step, 0)

    def put_number(self, numbers: Shape, number: int, rest: int = 1) -> Shape:
        """`numbers` with this one at the loop of the dim, and `rest` at the others."""
        out = list(numbers)
        for lead in self.leads:
            out[lead] = rest
        out[self.loop] = number
        return tuple(out)

    def piece_step(self, block: Ndarray) -> int | None:
        """Bytes from position to position of the whole dim of a block, which may be the same on all devices."""
        step, n = block.strides[self.loop], block.shape[self.loop]
        if all(block.shape[d] == 1 for d in self.leads):
            return step
        for lead, size in zip(reversed(self.leads), reversed(self.sizes), strict=True):
            if size == 1:
                continue
            if block.shape[lead] != size:
                return None
            if n == 1:
                step = block.strides[lead]
            elif block.strides[lead] != step * n:
                return None
            n *= size
        return step


def lines_of(graph: Graph, env: Env) -> tuple[SplitLoop, ...] | None:
    """The dims along which values are put together from pieces of the devices' parts; None if another value's pieces lie otherwise."""
    found: dict[int, tuple[str, ...]] = {}
    for pieces in graph.joins.values():
        if found.setdefault(pieces[0].along, pieces[0].over) != pieces[0].over:
            return None
    lines = tuple(
        SplitLoop(env.lead + along, tuple(env.dim(a) for a in over), tuple(env.size(a) for a in over))
        for along, over in found.items()
        if over
    )
    leads = [d for line in lines for d in line.leads]
    return lines if len(set(leads)) == len(leads) else None


def block_loops(
    access: InputAccess, block: Ndarray, lead: int, full: Shape, lines: Sequence[SplitLoop]
) -> tuple[Shape, Shape, int] | None:
    """Extents and strides of a block per loop, and the bytes from where it begins to where element 0 of the loops would lie.

    None where it does not step evenly along one of `lines`. `full`: the extents of the loops before those of lines are one.
    """
    shape, steps = align_block(block, access.places, lead, len(full))
    d = None if access.along is None else lead + access.along
    for line in lines:
        if line.loop != d:
            found = line.block(full, shape, steps)
            if found is None:
                return None
            shape, steps = found
    if d is None:
        return shape, steps, 0
    line = next((line for line in lines if line.loop == d), None)
    step = block.strides[d]  # pieces of one element have the step of the other pieces
    if line is not None:
        found = line.piece_step(block)
        if found is None:
            return None
        step, shape, steps = found, line.put_number(shape, block.shape[d]), line.put_number(steps, 0, 0)
    return shape, (*steps[:d], step, *steps[d + 1 :]), -access.start * step


def table_loops(access: InputAccess, block: Ndarray, lead: int, full: Shape) -> tuple[Shape, Shape, int]:
    """The same of a table: what positions add is not counted."""
    shape, steps = [1] * len(full), [0] * len(full)
    for d in range(lead):
        if block.shape[d] != 1:
            shape[d], steps[d] = block.shape[d], block.strides[d]
    for d, loop in enumerate(access.places, lead):
        if loop is not None:
            shape[lead + loop], steps[lead + loop] = full[lead + loop], block.strides[d]
    return tuple(shape), tuple(steps), 0
