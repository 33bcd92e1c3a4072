"""Kernels of `dynamic_update_slice`: overwrite a window of an array; each device writes the part of the window that it holds.

Comes in: blocks of operand, update and starts. Goes out: a block with the window written, in the operand's own memory if the call
is its last use. Starts are usually the same on all devices and then are numbers: the window is a slice of the block, of the parts of
devices joined, or slices of the parts of a few. Where starts differ, windows are written row by row, by the call that scatters take
(`scatter_kernel`) or as `windows.write_windows` does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from shardwise.base.shapes import Axes, DimAxes, Ndarray
from shardwise.ops.devices.split_dims import cut, join, own_parts
from shardwise.ops.indexing.scatter_kernel import ScatterKernel
from shardwise.ops.indexing.window_numbers import GatherScatterMode, ScatterDimensionNumbers
from shardwise.ops.indexing.windows import OverwritingKernel, along, as_positions, write_windows
from shardwise.runtime.copies import copy_dense
from shardwise.runtime.env import Env

_FEW_PARTS = 6  # devices' parts written one by one: 0.6 us each; joining them takes 4 us
_MOST_ROWS = 1 << 12  # rows of windows whose positions are written down for a scatter's call
_LARGE = 1 << 16  # bytes; to copy fewer of an operand that could be overwritten takes less than to write many parts


def clamp_start(start: int, n: int, limit: int, wrap: bool) -> int:
    """`start` clamped to 0..limit; with `wrap` a negative one first counts from the end `n`."""
    return min(max(start + n if wrap and start < 0 else start, 0), limit)


def first_start(start: Ndarray, n: int, limit: int, wrap: bool) -> Ndarray:
    """`clamp_start` for a block of starts, as intp."""
    start = as_positions(start)
    if wrap:
        start = np.where(start < 0, start + n, start)
    return np.minimum(np.maximum(start, 0), limit)


class UpdateKernel(OverwritingKernel):
    """The kernel for operands and updates of given shapes, without loop dims. It overwrites an operand that is last used by the call,
    if nothing else refers to it.
    """

    def __init__(
        self, env: Env, shape: Sequence[int], sizes: Sequence[int], wrap: Sequence[bool], axes: DimAxes | None
    ) -> None:
        """`axes`: the mesh axes that split dims of the operand, but not of the update."""
        self._env, self._wrap, lead = env, wrap, env.lead
        self._split = axes or ((),) * len(shape)
        self._sizes = [math.prod(map(env.size, axes)) * n for axes, n in zip(self._split, shape, strict=True)]
        cut = [d for d, n in enumerate(sizes) if n != self._sizes[d]]
        self._own = [(d, 2 + d, self._sizes[d], self._sizes[d] - sizes[d], wrap[d]) for d in cut if not self._split[d]]
        self._others = [2 + d for d in range(len(shape)) if d not in cut or self._split[d]]
        self._parts = [SplitDim(env, d, shape[d], sizes[d], wrap[d], a) for d, a in enumerate(self._split) if a]
        self._whole: list[slice] = [slice(None)] * (lead + len(shape))
        loops = [1] * lead
        for axis in itertools.chain(*self._split):
            loops[env.dim(axis)] = env.extent(axis)
        self._loops = tuple(loops)  # loop dims of the result
        self._lead, self._ones = lead, (1,) * lead
        self._window = tuple(sizes[: max(cut, default=-1) + 1])  # the window's dims up to the last one that is cut
        self._scatter: ScatterKernel | None = None
        # The starts of the dims that are split, and the places last found for them.
        self._found: tuple[list[int], list[list[_Place]]] = [], []

    def run(self, blocks: tuple[Ndarray, ...], owned: bool) -> Ndarray:
        """`owned`: the kernel may overwrite the operand."""
        lead, window = self._lead, self._whole.copy()
        operand, update = blocks[0], blocks[1]
        for k in self._others:
            if blocks[k].size != 1:
                return self._at_places(blocks, owned)
        for d, k, n, limit, wraps in self._own:
            start = blocks[k]
            if start.size != 1:
                return self._at_places(blocks, owned)
            first = start.item()
            if first < 0:
                first = max(first + n, 0) if wraps else 0
            if first > limit:
                first = limit
            window[lead + d] = slice(first, first + self._sizes[d] - limit)
        loops = operand.shape[:lead]
        part_places: list[list[_Place]] | None = None
        if self._parts:
            starts = [blocks[2 + p.dim].item() for p in self._parts]
            known_starts, part_places = self._found
            if starts != known_starts:
                part_places = [p.places(at) for p, at in zip(self._parts, starts, strict=True)]
                self._found = starts, part_places
            if math.prod(map(len, part_places)) > _FEW_PARTS:
                result = self._over_joined(operand, update, window, starts, owned)
                if result is not None:
                    return result
            if loops != self._loops:
                loops = np.broadcast_shapes(loops, self._loops)
        # np.broadcast_shapes takes as long as the rest.
        if update.shape[:lead] != loops and update.shape[:lead] != self._ones:
            loops = np.broadcast_shapes(loops, update.shape[:lead])
        alike = loops == operand.shape[:lead]
        if owned and alike:
            out = operand
        else:
            out = copy_dense(operand if alike else np.broadcast_to(operand, loops + operand.shape[lead:]))
        if part_places is None:
            out[tuple(window)] = update
            return out
        source = self._whole.copy()
        for places in itertools.product(*part_places):
            for place in places:
                window[lead + place.dim], source[lead + place.dim] = place.window, place.source
                for axis, at in place.devices:
                    window[axis] = at
                    if update.shape[axis] != 1:
                        source[axis] = at
            out[tuple(window)] = update[tuple(source)]
        return out

    def _over_joined(
        self, operand: Ndarray, update: Ndarray, window: list[slice], starts: Sequence[int], owned: bool
    ) -> Ndarray | None:
        """The result if this process's parts are joined first, so that the window is one slice of them. None where they lie apart, or
        where it would take a copy that writing them one by one does not.
        """
        env, lead = self._env, self._lead
        joined_parts = join(env, operand, self._split, update)
        if joined_parts is None:
            return None
        out, is_copy = joined_parts.block, not np.may_share_memory(joined_parts.block, operand)
        if is_copy and owned and out.nbytes > _LARGE:
            return None
        loops = np.broadcast_shapes(out.shape[:lead], update.shape[:lead])
        if loops != out.shape[:lead]:
            out, is_copy = np.broadcast_to(out, loops + out.shape[lead:]), False
            owned = False
        source = self._whole.copy()
        for part, start in zip(self._parts, starts, strict=True):
            d, offset = lead + part.dim, part.first(start) - joined_parts.begins[part.dim]
            begin, end = max(offset, 0), min(offset + part.size, out.shape[d])
            window[d], source[d] = slice(begin, max(begin, end)), slice(begin - offset, max(begin, end) - offset)
        if not (is_copy or owned):
            out = copy_dense(out)
        out[tuple(window)] = update[tuple(source)]
        return cut(env, out, self._split)

    def _at_places(self, blocks: Sequence[Ndarray], owned: bool) -> Ndarray:
        """The result if starts differ between devices."""
        env, lead = self._env, self._lead
        operand, update, *starts = blocks
        if not self._parts and self._window and update.size:
            rows = self._by_scatter(operand, update, starts, owned)
            if rows is not None:
                return rows
        parts = own_parts(env, operand, self._split if self._parts else None, *starts, update)
        block = parts.block
        firsts = {
            d: first_start(start, n, n - update.shape[lead + d], self._wrap[d])
            for d, (start, n) in enumerate(zip(starts, self._sizes, strict=True))
        }
        own = {d: (begin, block.shape[lead + d]) for d, begin in parts.begins.items()}
        owned = owned or not np.may_share_memory(block, operand)
        out = write_windows(block, lead, firsts, update.shape[lead:], (), update, None, None, True, own, owned)
        return cut(env, out, self._split) if parts.are_joined else out

    def _by_scatter(self, operand: Ndarray, update: Ndarray, starts: Sequence[Ndarray], owned: bool) -> Ndarray | None:
        """The result by the call for rows at known positions, in dims that no device splits; None where there are too many rows."""
        lead, window = self._lead, self._window
        loops = np.broadcast_shapes(*[s.shape[:lead] for s in starts])
        if math.prod(loops) * math.prod(window) > _MOST_ROWS:
            return None
        positions: list[Ndarray] = []
        for d, size in enumerate(window):
            n, limit = self._sizes[d], self._sizes[d] - size
            at = np.empty((*loops, *window, 1), np.int64)
            start = first_start(starts[d], n, limit, self._wrap[d])
            np.add(start.reshape(start.shape + (1,) * (len(window) + 1)), along(size, d, len(window) + 1), out=at)
            positions.append(at)
        if self._scatter is None:
            self._scatter = _scatter_of_rows(self._env, len(window), operand.ndim - lead)
        return self._scatter.run((operand, *positions, update), owned)


def _scatter_of_rows(env: Env, count: int, rank: int) -> ScatterKernel:
    """The kernel that puts rows of operands of that rank at positions in their first `count` dims, which are all in bounds."""
    dims = tuple(range(count))
    params = {
        "dimension_numbers": ScatterDimensionNumbers(tuple(range(count, rank)), dims, dims),
        "mode": GatherScatterMode.PROMISE_IN_BOUNDS,
        "unique_indices": True,
        "wrap_negative": False,
        "operand_axes": None,
        "update_axes": (),
        "combine": "",
    }
    return ScatterKernel(env, params)


class _Place:
    """The overlap of one device's part of a dim with the window: the device's coordinates, and slices of its part and the update."""

    __slots__ = ("devices", "dim", "source", "window")

    def __init__(self, dim: int, devices: Sequence[tuple[int, slice]], begin: int, end: int, offset: int) -> None:
        self.dim, self.devices = dim, devices
        self.window, self.source = slice(begin, end), slice(begin + offset, end + offset)


class SplitDim:
    """A dim with `part` elements on each device along `axes`, and a window of `size` elements in it."""

    def __init__(self, env: Env, dim: int, part: int, size: int, wrap: bool, axes: Axes) -> None:
        self.dim, self.size, self._part, self._wrap = dim, size, part, wrap
        counts = [env.size(a) for a in axes]
        self._whole = part * math.prod(counts)
        self._devices: list[list[tuple[int, slice]] | None] = []  # by position: leading dims and the index along each
        for position in range(math.prod(counts)):
            device_slices = []
            for axis, at in zip(axes, np.unravel_index(position, counts), strict=True):
                here = _local(env, axis, int(at))
                if here is not None:
                    device_slices.append((env.dim(axis), slice(here, here + 1)))
            self._devices.append(device_slices if len(device_slices) == len(axes) else None)

    def first(self, start: int) -> int:
        """The clamped begin of a window requested at `start`."""
        return clamp_start(start, self._whole, self._whole - self.size, self._wrap)

    def places(self, start: int) -> list[_Place]:
        """The overlaps of this process's devices with the window."""
        part, size = self._part, self.size
        if not part:
            return []
        start = self.first(start)
        places: list[_Place] = []
        for k in range(start // part, -(-(start + size) // part)):
            devices = self._devices[k]
            if devices is not None:
                begin, end = max(start - k * part, 0), min(start + size - k * part, part)
                places.append(_Place(self.dim, devices, begin, end, k * part - start))
        return places


def _local(env: Env, axis: str, at: int) -> int | None:
    """The index of a coordinate of an axis in this process's blocks; None if another process owns it."""
    if env.processes is None:
        return at
    own = list(env.processes.coordinates[env.dim(axis)])
    return own.index(at) if at in own else None


def update_window(
    env: Env, operand: Ndarray, update: Ndarray, *starts: Ndarray, wrap: Sequence[bool], operand_axes: DimAxes | None
) -> Ndarray:
    """The op's kernel on blocks of any shapes."""
    lead = env.lead
    return UpdateKernel(env, operand.shape[lead:], update.shape[lead:], wrap, operand_axes)(operand, update, *starts)
