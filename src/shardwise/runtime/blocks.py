"""Block form: all shards of an array in one ndarray, leading dims for the device grid, trailing dims for the shard.

    grid ('x': 4, 'y': 2), global shape (8, 6)
    split by x, y    -> block (4, 2 | 2, 3)
    split by x       -> block (4, 1 | 2, 6)     the same on every y: stored once, extent 1
    replicated       -> block (1, 1 | 8, 6)

Comes in: the dense global value. Goes out: a strided view of it; the way back is a view too wherever strides allow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ndarray, Shape


class BlockForm:
    """How the dense value of one shape maps to its block over a grid.

    `dims[d]` are the grid axes (positions) that split dim `d`, major first.
    """

    __slots__ = ("block_shape", "dims", "grid", "inverse", "order", "plain", "shape", "split_shape")

    def __init__(self, shape: Shape, dims: tuple[tuple[int, ...], ...], grid: Shape) -> None:
        self.shape = shape
        self.dims = dims
        self.grid = grid
        used = {a for axes in dims for a in axes}
        free = [a for a in range(len(grid)) if a not in used]
        split: list[int] = [1] * len(free)  # grid axes that split nothing come first, with extent 1
        where = {a: i for i, a in enumerate(free)}
        shard_positions = []
        local = []
        for size, axes in zip(shape, dims, strict=True):
            ways = math.prod(grid[a] for a in axes)
            for a in axes:
                where[a] = len(split)
                split.append(grid[a])
            shard_positions.append(len(split))
            split.append(size // ways)
            local.append(size // ways)
        self.split_shape = tuple(split)
        self.order = tuple([where[a] for a in range(len(grid))] + shard_positions)
        self.inverse = tuple(int(i) for i in np.argsort(self.order)) if self.order else ()
        self.block_shape = tuple(grid[a] if a in used else 1 for a in range(len(grid))) + tuple(local)
        self.plain = not used

    def from_dense(self, dense: Ndarray) -> Ndarray:
        """The block of a dense value: always a view."""
        if self.plain:
            return dense.reshape(self.split_shape) if self.grid else dense
        return dense.reshape(self.split_shape).transpose(self.order)

    def to_dense(self, block: Ndarray) -> Ndarray:
        """The dense value of a block: a view where the strides allow it, else one copy.

        Where the block has extent 1 on an axis that splits a dim, the value is the same in every part; where it has
        extent n on a replicated axis, the first replica is taken.
        """
        if not self.grid:
            return block
        if block.shape != self.block_shape:
            lead = len(self.grid)
            extents = self.block_shape[:lead]
            pick = tuple(slice(0, 1) if want == 1 else slice(None) for want in extents)
            block = np.broadcast_to(block[pick], self.block_shape)
        if self.plain:
            return block.reshape(self.shape)
        return block.transpose(self.inverse).reshape(self.shape)


@recent(4096)
def block_form(shape: Shape, dims: tuple[tuple[int, ...], ...], grid: Shape) -> BlockForm:
    """The (cached) BlockForm of a shape split by `dims` over `grid`; axes of size 1 split nothing, and make no other form."""
    cut = tuple([tuple([a for a in axes if grid[a] != 1]) for axes in dims])
    return BlockForm(shape, dims, grid) if cut == dims else block_form(shape, cut, grid)


@recent(4096)
def merged_axes(merged: Shape, sizes: Shape) -> tuple[Shape, ...]:
    """For each axis of a grid, the places of the axes of a finer grid over the same devices that it is made of."""
    groups: list[list[int]] = []
    at = 0
    for n in merged:
        group: list[int] = []
        while math.prod(sizes[i] for i in group) < n:
            group.append(at)
            at += 1
        groups.append(group)
    assert all(sizes[i] == 1 for i in range(at, len(sizes))), f"{sizes} does not refine {merged}"
    return tuple(map(tuple, groups))


class MeshOnGrid:
    """The blocks of a value over a mesh, and over a grid that refines the mesh, where each device keeps its own copy.

    `extents`: how many coordinates of each grid axis this process owns.
    """

    __slots__ = ("extents", "lead", "parts")

    def __init__(self, mesh: Shape, grid: Shape, extents: Shape) -> None:
        self.parts = merged_axes(mesh, grid)
        self.lead, self.extents = len(mesh), extents

    def on_grid(self, block: Ndarray) -> Ndarray:
        """The block over the grid of one over the mesh."""
        shape = [1] * len(self.extents)
        for n, part in zip(block.shape, self.parts, strict=False):
            for g in part if n != 1 else ():
                shape[g] = self.extents[g]
        return block.reshape(*shape, *block.shape[self.lead :])

    def on_mesh(self, block: Ndarray) -> Ndarray:
        """The block over the mesh of one over the grid."""
        shape: list[int] = []
        for part in self.parts:
            n = 1
            for g in part if any(block.shape[g] != 1 for g in part) else ():
                block = expand_dim(block, g, self.extents[g])
                n *= self.extents[g]
            shape.append(n)
        return block.reshape(*shape, *block.shape[len(self.extents) :])


def expand_dim(block: Ndarray, dim: int, n: int) -> Ndarray:
    """`block` with extent `n` in leading dim `dim` (a view)."""
    if block.shape[dim] == n:
        return block
    return np.broadcast_to(block, (*block.shape[:dim], n, *block.shape[dim + 1 :]))


# NumPy's `moveaxis` and `expand_dims` check and sort at each call, which takes microseconds: of few dims an order is found once.


@recent(4096)
def _order(ndim: int, sources: Shape, targets: Shape) -> Shape:
    sources, targets = tuple([d % ndim for d in sources]), tuple([d % ndim for d in targets])
    order = [d for d in range(ndim) if d not in sources]
    for target, source in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source)
    return tuple(order)


@recent(4096)
def _with_ones(dims: Shape) -> tuple[Any, ...]:
    return (*[None if d in dims else slice(None) for d in range(max(dims) + 1)], ...)


def with_dim_at(x: Ndarray, source: int, target: int) -> Ndarray:
    """`x` with its dim `source` at the place `target` (a view); negative numbers count from the end."""
    return x if source == target else x.transpose(_order(x.ndim, (source,), (target,)))


def in_front(x: Ndarray, dims: Shape) -> Ndarray:
    """`x` with `dims` as its first ones, in their order (a view)."""
    places = tuple(range(len(dims)))
    return x if dims == places else x.transpose(_order(x.ndim, dims, places))


def from_front(x: Ndarray, dims: Shape) -> Ndarray:
    """`x` with its first dims at the places `dims` (a view)."""
    places = tuple(range(len(dims)))
    return x if dims == places else x.transpose(_order(x.ndim, places, dims))


def with_ones(x: Ndarray, dims: Iterable[int]) -> Ndarray:
    """`x` with new dims of size 1, whose places in the result are `dims` (a view)."""
    places = tuple(dims)
    return x[_with_ones(places)] if places else x
