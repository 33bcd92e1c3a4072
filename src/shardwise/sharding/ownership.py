"""Ownership: the coordinates that each process owns in a device grid over several processes.

In: the ordered devices and the shape of their grid. Out: the coordinates that each process owns per axis. Where processes form a grid
themselves (each owns the product of one set of coordinates per axis, and along an axis two processes have the same set or nothing in
common) a process keeps its part of every array as one block, and a collective is one exchange. Devices in any other order work, too: then
each process keeps all of every array, and computes as one process with all devices would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.sharding.device import Device
from shardwise.sharding.tiling import Index

Coordinates = tuple[Shape, ...]  # per axis, ascending


@dataclass(frozen=True)
class Ownership:
    """The owners of a grid's parts: `owned[p]` holds the coordinates of process p per axis; processes without devices are absent.

    `kept_whole`: the processes form no grid, so that every one of them has all coordinates.
    """

    shape: Shape
    me: int
    owned: dict[int, Coordinates]
    kept_whole: bool = False

    @property
    def coordinates(self) -> Coordinates:
        """This process's coordinates per axis."""
        return self.owned[self.me]

    @property
    def extents(self) -> Shape:
        """The number of coordinates that this process owns per axis."""
        return tuple(len(c) for c in self.coordinates)

    @property
    def ranks(self) -> Shape:
        """The processes that own devices of the grid."""
        return tuple(self.owned)

    def undivided_axes(self) -> Shape:
        """The axes (by position) along which no process owns more than one coordinate: the same answer on all of them."""
        return tuple(a for a in range(len(self.shape)) if all(len(c[a]) == 1 for c in self.owned.values()))

    def __hash__(self) -> int:
        return hash((self.shape, self.me, tuple(self.owned.items())))

    def crossing_axes(self) -> Shape:
        """The axes (by position) along which this process does not own every coordinate, and so no process does."""
        return tuple(a for a, (n, c) in enumerate(zip(self.shape, self.coordinates, strict=True)) if len(c) != n)


def spans_processes(devices: Sequence[Device]) -> bool:
    """Whether some of the devices belong to other processes than this one."""
    if not devices or devices[0].client.topology.process_count == 1 or devices[0].client.stands_for_all:
        return False
    me = devices[0].client.process_index_
    return any(d.process_index != me for d in devices)


def takes_part(devices: Sequence[Device]) -> bool:
    """Whether this process owns one of the devices."""
    return len(devices) == 0 or devices[0].client.stands_for_all or any(d.is_local for d in devices)


@recent(4096)
def ownership(devices: tuple[Device, ...], shape: Shape) -> Ownership:
    """The owners of the grid of `shape` over `devices` (row-major).

    Raises:
        ValueError: this process owns none of the devices.
    """
    me, (own_grid, kept_whole) = devices[0].client.process_index_, _owned_coordinates(devices, shape)
    if me not in own_grid:
        raise ValueError(
            f"process {me} owns none of the {len(devices)} devices, which belong to the processes {list(own_grid)}, and so has no part "
            "to give or to keep. Use a mesh with devices of every process, or let only those processes take part."
        )
    return Ownership(shape, me, own_grid, kept_whole)


def is_kept_whole(devices: tuple[Device, ...], shape: Shape) -> bool:
    """Whether the processes that own the devices keep all of every array over the grid; this one need not own any."""
    return _owned_coordinates(devices, shape)[1]


@recent(4096)
def _owned_coordinates(devices: tuple[Device, ...], shape: Shape) -> tuple[dict[int, Coordinates], bool]:
    """The coordinates per axis of each process, and whether they are all, as the processes form no grid."""
    processes = np.array([d.process_index for d in devices]).reshape(shape)
    grid_by_process = {p: _sub_grid(processes == p) for p in np.unique(processes).tolist()}
    coords_by_process = {p: coords for p, coords in grid_by_process.items() if coords is not None}
    sets = [{coords[axis] for coords in coords_by_process.values()} for axis in range(len(shape))]
    in_grid = len(coords_by_process) == len(grid_by_process) and all(
        sum(map(len, of)) == n for of, n in zip(sets, shape, strict=True)
    )
    return (
        (coords_by_process, False)
        if in_grid
        else (dict.fromkeys(grid_by_process, tuple(tuple(range(n)) for n in shape)), True)
    )


def own_coordinates(devices: Sequence[Device], shape: Shape) -> Coordinates:
    """The coordinates of this process's devices per axis of a grid over `devices`."""
    mine = np.array([d.is_local for d in devices]).reshape(shape)
    return tuple(tuple(np.unique(column).tolist()) for column in np.nonzero(mine))


def _sub_grid(mine: np.ndarray) -> Coordinates | None:
    """The coordinates per axis if the marked places are a product of such; else None."""
    axes = range(mine.ndim)
    coords = tuple(tuple(np.flatnonzero(mine.any(axis=tuple(a for a in axes if a != axis))).tolist()) for axis in axes)
    return coords if mine[np.ix_(*coords)].all() else None


def arrange_devices(devices: Sequence[Device], shape: Shape) -> np.ndarray:
    """The devices in an array of `shape`: row-major, unless that would separate the devices of one process.

    In that case each process gets a block of the array, if its devices can form one. Blocks are as long as possible along
    the last axes.
    """
    grid = np.empty(len(devices), object)
    grid[:] = list(devices)
    plain = grid.reshape(shape)
    first: Any = grid[0] if grid.size else None
    if isinstance(first, Device) and first.client.stands_for_all:
        return plain
    owners = np.array([d.process_index for d in devices])
    if not owners.size or (owners == owners[0]).all():
        return plain
    processes, counts = np.unique(owners, return_counts=True)
    if len(set(counts.tolist())) != 1 or all(_sub_grid(owners.reshape(shape) == p) is not None for p in processes):
        return plain
    inner = _block(shape, int(counts[0]))
    if inner is None:
        return plain
    outer = tuple(n // i for n, i in zip(shape, inner, strict=True))
    blocks = np.stack([grid[owners == p] for p in processes]).reshape(*outer, *inner)
    rank = len(shape)
    return blocks.transpose([d for i in range(rank) for d in (i, rank + i)]).reshape(shape)


def _block(shape: Shape, count: int) -> Shape | None:
    """Sizes that divide those of `shape`, with the product `count`; larger sizes last."""
    if not shape:
        return () if count == 1 else None
    for last in range(min(shape[-1], count), 0, -1):
        if shape[-1] % last == 0 and count % last == 0:
            rest = _block(shape[:-1], count // last)
            if rest is not None:
                return (*rest, last)
    return None


def owned_positions(dims: tuple[Shape, ...], grid: Shape, coordinates: Coordinates) -> tuple[np.ndarray | None, ...]:
    """The parts of each array dim that the coordinates select, ascending along each axis; None: all of them.

    `dims[d]` are the grid axes that split dim d, major first.
    """
    positions: list[np.ndarray | None] = []
    for axes in dims:
        if all(len(coordinates[a]) == grid[a] for a in axes):
            positions.append(None)
            continue
        position = np.zeros(1, np.int64)
        for a in axes:
            position = (position[:, None] * grid[a] + np.array(coordinates[a])).ravel()
        positions.append(position)
    return tuple(positions)


def local_part(value: np.ndarray, ways: Shape, positions: Sequence[np.ndarray | None]) -> np.ndarray:
    """The parts of a whole array at `positions` of its dims, which are split in `ways`; a view if the parts are contiguous."""
    for d, where in enumerate(positions):
        if where is None:
            continue
        shape = value.shape
        size = shape[d] // ways[d]
        before = (slice(None),) * d
        if (np.diff(where) == 1).all():
            value = value[(*before, slice(int(where[0]) * size, (int(where[-1]) + 1) * size))]
        else:
            rows = (where[:, None] * size + np.arange(size)).ravel()
            value = value[(*before, rows)]
    return value


def local_index(index: Index, shape: Shape, ways: Shape, positions: Sequence[np.ndarray | None]) -> Index:
    """The index, in this process's own array, of the part at the global `index`."""
    out = []
    for d, entry in enumerate(index):
        where = positions[d]
        if where is None or entry.start is None:
            out.append(entry)
            continue
        size = shape[d] // ways[d]
        at = int(np.flatnonzero(where == entry.start // size)[0]) if size else 0
        out.append(slice(at * size, (at + 1) * size))
    return tuple(out)
