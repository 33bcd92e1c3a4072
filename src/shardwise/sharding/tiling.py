"""Index arithmetic: the part of an array that each device holds.

A `Tiling` describes the parts of an array of known rank without naming devices: the devices, in the order of a sharding's
device list, form a grid (row-major); each array dim is split over some grid axes; the other axes replicate. The engine
needs only the tiling and the device list of a sharding.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.errors import IndivisibleError
from shardwise.base.shapes import Shape

Index = tuple[slice, ...]


class Tiling:
    """The layout of an array of rank `len(dims)` over a grid of devices; interned, so equality is identity.

    Attributes:
        mesh_shape: the grid; its row-major order is the device order.
        axis_names: one name per grid axis.
        dims: for each array dim the grid axes (by position) that split it, major first.
        ways: the number of parts of each array dim.
        num_devices: the size of the grid.
    """

    __slots__ = ("__weakref__", "_layout", "axis_names", "dims", "mesh_shape", "num_devices", "ways")

    mesh_shape: Shape
    axis_names: tuple[Any, ...]
    dims: tuple[Shape, ...]
    ways: Shape
    num_devices: int

    def __new__(cls, mesh_shape: Shape, axis_names: tuple[Any, ...], dims: tuple[Shape, ...]) -> Tiling:
        """Find the tiling with these parts, or make it."""
        key = (mesh_shape, axis_names, dims)
        known_tiling = _tilings.get(key)
        if known_tiling is not None:
            return known_tiling
        used = [axis for axes in dims for axis in axes]
        if len(used) != len(set(used)) or any(not 0 <= axis < len(mesh_shape) for axis in used):
            raise ValueError(f"Each grid axis splits at most one dim: grid {mesh_shape}, dims {dims}.")
        if len(axis_names) != len(mesh_shape):
            raise ValueError(f"Grid {mesh_shape} needs as many names as axes, got {axis_names}.")
        self = object.__new__(cls)
        for name, value in (
            ("mesh_shape", mesh_shape),
            ("axis_names", axis_names),
            ("dims", dims),
            ("ways", tuple([math.prod([mesh_shape[axis] for axis in axes]) for axes in dims])),
            ("num_devices", math.prod(mesh_shape)),
            ("_layout", None),
        ):
            object.__setattr__(self, name, value)
        return _tilings.setdefault(key, self)

    @property
    def ndim(self) -> int:
        """The rank of the arrays it describes."""
        return len(self.dims)

    @property
    def is_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        return all(ways == 1 for ways in self.ways)

    @property
    def replicated_axes(self) -> Shape:
        """The grid axes that split no dim."""
        used = {axis for axes in self.dims for axis in axes}
        return tuple(axis for axis in range(len(self.mesh_shape)) if axis not in used)

    @property
    def layout(self) -> tuple[tuple[Shape, ...], ...]:
        """Canonical form: per dim the digits `(stride, size)` of the device number that select its part.

        Two tilings over equally many devices place all shards equally exactly if their layouts are equal, regardless of
        the names and the shapes of their grids.
        """
        own_layout: tuple[tuple[Shape, ...], ...] | None = self._layout
        if own_layout is None:
            strides = _strides(self.mesh_shape)
            own_layout = tuple(_merge_digits((strides[a], self.mesh_shape[a]) for a in axes) for axes in self.dims)
            object.__setattr__(self, "_layout", own_layout)
        return own_layout

    def same_placement(self, other: Tiling) -> bool:
        """Whether both give every device number the same part of the array."""
        return self is other or (self.num_devices == other.num_devices and self.layout == other.layout)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}: tilings are immutable.")

    def __repr__(self) -> str:
        return f"Tiling(mesh_shape={self.mesh_shape}, axis_names={self.axis_names}, dims={self.dims})"

    def __reduce__(self) -> Any:
        return (Tiling, (self.mesh_shape, self.axis_names, self.dims))

    def __copy__(self) -> Tiling:
        return self

    def __deepcopy__(self, memo: Any) -> Tiling:
        return self


_tilings: weakref.WeakValueDictionary[Any, Tiling] = weakref.WeakValueDictionary()


def _strides(shape: Shape) -> Shape:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def _merge_digits(digits: Any) -> tuple[Shape, ...]:
    """Drop digits of size 1, and join digits that are contiguous in the device number."""
    merged_digits: list[tuple[int, int]] = []
    for stride, size in digits:
        if size == 1:
            continue
        if merged_digits and merged_digits[-1][0] == stride * size:
            merged_digits[-1] = (stride, merged_digits[-1][1] * size)
        else:
            merged_digits.append((stride, size))
    return tuple(merged_digits)


def replicated_tiling(num_devices: int, ndim: int) -> Tiling:
    """The tiling of rank `ndim` that gives the whole array to each of `num_devices` devices."""
    return Tiling((num_devices,), ("_0",), ((),) * ndim) if num_devices != 1 else Tiling((), (), ((),) * ndim)


def anonymous(mesh_shape: Shape, dims: tuple[Shape, ...]) -> Tiling:
    """A tiling over a grid whose axes are called `_0`, `_1`, ..."""
    return Tiling(mesh_shape, tuple(f"_{axis}" for axis in range(len(mesh_shape))), dims)


def shard_shape(tiling: Tiling, shape: Shape, subject: Any = None) -> Shape:
    """The shape of each device's part of an array.

    Args:
        tiling: of rank `len(shape)`.
        shape: of the whole array.
        subject: the subject of the error, by default the tiling.

    Raises:
        IndivisibleError: a dim's number of parts does not divide it.
    """
    return divide_shape(shape, tiling.ways, tiling if subject is None else subject)


def divide_shape(shape: Shape, ways: Shape, subject: Any) -> Shape:
    """`shape` with each dim divided by its number of ways; the error speaks of `subject`.

    Raises:
        IndivisibleError: a dim does not divide evenly.
    """
    if len(shape) != len(ways):
        raise ValueError(f"{subject} is for arrays of rank {len(ways)}, but the shape {shape} has rank {len(shape)}.")
    for dim, (size, count) in enumerate(zip(shape, ways, strict=True)):
        if size % count:
            raise IndivisibleError(indivisible_text(subject, dim, shape, ways))
    return tuple([size // count for size, count in zip(shape, ways, strict=True)])


def indivisible_text(subject: Any, dim: int, shape: Shape, ways: Sequence[int]) -> str:
    """The error text for dim `dim` of `shape`, which cannot be split evenly; it gives the next size that can."""
    label = subject if isinstance(subject, str) else f"Sharding {subject}"
    good = -(-shape[dim] // ways[dim]) * ways[dim]
    return (
        f"{label} implies that array axis {dim} is partitioned {ways[dim]} times, but the dimension size is "
        f"{shape[dim]} (full shape: {shape}, per-dimension tiling factors: {list(ways)} should evenly divide the "
        f"shape); the next size that works is {good}"
    )


def coordinates(tiling: Tiling) -> np.ndarray:
    """The part that each device holds: int64[num_devices, ndim]; entry `[i, d]` counts parts of dim `d`."""
    numbers = np.arange(tiling.num_devices)
    result = np.zeros((tiling.num_devices, tiling.ndim), np.int64)
    strides = _strides(tiling.mesh_shape)
    for dim, axes in enumerate(tiling.dims):
        for axis in axes:
            size = tiling.mesh_shape[axis]
            result[:, dim] = result[:, dim] * size + numbers // strides[axis] % size
    return result


@recent(1024)
def devices_indices(tiling: Tiling, shape: Shape) -> tuple[Index, ...]:
    """The part of an array that each device holds, in device order; an unsplit dim is `slice(None)`.

    Raises:
        IndivisibleError: a dim is split in more ways than divide it.
    """
    columns = []
    for dim, size in enumerate(divide_shape(shape, tiling.ways, tiling)):
        if tiling.ways[dim] == 1:
            columns.append([slice(None)] * tiling.num_devices)
        else:
            pieces = [slice(k * size, (k + 1) * size) for k in range(tiling.ways[dim])]
            columns.append([pieces[k] for k in _part_numbers(tiling, dim)])
    return tuple(zip(*columns, strict=True)) if columns else ((),) * tiling.num_devices


def _part_numbers(tiling: Tiling, dim: int) -> list[int]:
    """Column `dim` of `coordinates`, built from repeated lists: for few devices this avoids NumPy calls."""
    strides = _strides(tiling.mesh_shape)
    result: list[int] = []
    for axis in tiling.dims[dim]:
        size, stride = tiling.mesh_shape[axis], strides[axis]
        runs = [k for k in range(size) for _ in range(stride)]
        numbers = runs * (tiling.num_devices // len(runs))
        result = [k * size + n for k, n in zip(result, numbers, strict=True)] if result else numbers
    return result


def indices_of_coordinates(coords: np.ndarray, ways: Shape, shape: Shape, subject: Any) -> tuple[Index, ...]:
    """Turn part numbers, int[num_devices, ndim], into index tuples; the error speaks of `subject`.

    Raises:
        IndivisibleError: a dim does not divide evenly.
    """
    columns = []
    for dim, size in enumerate(divide_shape(shape, ways, subject)):
        if ways[dim] == 1:
            columns.append([slice(None)] * len(coords))
        else:
            pieces = [slice(k * size, (k + 1) * size) for k in range(ways[dim])]
            columns.append([pieces[k] for k in coords[:, dim].tolist()])
    return tuple(zip(*columns, strict=True)) if columns else ((),) * len(coords)


def replica_ids(tiling: Tiling, shape: Shape | None = None) -> tuple[int, ...]:
    """For each device, the number of devices before it that hold the same part.

    With `shape`, parts of a dim of size 0 count as the same part, as they have the same slice.
    """
    strides = _strides(tiling.mesh_shape)
    distinct = {axis for d, axes in enumerate(tiling.dims) for axis in axes if shape is None or shape[d] != 0}
    numbers = np.arange(tiling.num_devices)
    result = np.zeros(tiling.num_devices, np.int64)
    for axis, size in enumerate(tiling.mesh_shape):
        if axis not in distinct:
            result = result * size + numbers // strides[axis] % size
    return tuple(result.tolist())


def common_refinement(*mesh_shapes: Shape | Tiling) -> tuple[Shape, tuple[tuple[Shape, ...], ...]] | None:
    """The coarsest grid in which every axis of every given grid is a run of whole axes.

    All grids count the same devices in the same order. For `(2, 4)` and `(4, 2)` the refined grid is `(2, 2, 2)`,
    and their axes are `((0,), (1, 2))` and `((0, 1), (2,))`.

    Returns:
        The refined grid and, for each given grid, for each of its axes the refined axes, major first (none for an
        axis of size 1); or None if there is no such grid, as for `(2, 3)` and `(3, 2)`.
    """
    shapes = [s.mesh_shape if isinstance(s, Tiling) else tuple(s) for s in mesh_shapes]
    if len({math.prod(shape) for shape in shapes}) > 1:
        return None
    return _common_refinement(tuple(shapes))


@recent(4096)
def _common_refinement(shapes: tuple[Shape, ...]) -> tuple[Shape, tuple[tuple[Shape, ...], ...]] | None:
    cuts = {1}
    for shape in shapes:
        cuts.update(stride * size for stride, size in zip(_strides(shape), shape, strict=True))
    sorted_cuts = sorted(cuts, reverse=True)
    if any(larger % smaller for larger, smaller in pairwise(sorted_cuts)):
        return None
    sizes = tuple(larger // smaller for larger, smaller in pairwise(sorted_cuts))
    position = {cut: i for i, cut in enumerate(sorted_cuts)}
    parts = tuple(
        tuple(
            tuple(range(position[stride * size], position[stride]))
            for stride, size in zip(_strides(shape), shape, strict=True)
        )
        for shape in shapes
    )
    return sizes, parts


def refine(tiling: Tiling, mesh_shape: Shape, parts: tuple[Shape, ...], axis_names: tuple[Any, ...]) -> Tiling:
    """The same placement over a finer grid, with the `parts` that `common_refinement` gave for the tiling."""
    dims = tuple(tuple(fine for axis in axes for fine in parts[axis]) for axes in tiling.dims)
    return Tiling(mesh_shape, axis_names, dims)


def tiling_of_coordinates(coords: np.ndarray) -> Tiling | None:
    """Find a grid that explains the parts of all devices.

    Args:
        coords: int[num_devices, ndim], as `coordinates` returns.

    Returns:
        An anonymous tiling, or None if the devices in their order form no such grid.
    """
    count, ndim = coords.shape
    if count == 0 or coords[0].any():
        return None
    digits: list[tuple[int, int, int, int]] = []  # stride, size, dim (-1: replicated), weight; minor first
    stride = 1
    while stride < count:
        rest = count // stride
        step = coords[stride]
        changes = np.flatnonzero(step)
        if len(changes) > 1:
            return None
        line = coords[: rest * stride : stride]
        follows = (line == np.arange(len(line))[:, None] * step).all(axis=1)
        run = len(line) if follows.all() else int(np.argmin(follows))
        size = max((d for d in range(2, run + 1) if rest % d == 0), default=0)
        if size == 0:
            return None
        dim = int(changes[0]) if len(changes) else -1
        digits.append((stride, size, dim, int(step[dim]) if len(changes) else 0))
        stride *= size
    digits.reverse()
    dims = []
    for dim in range(ndim):
        axes = [axis for axis, digit in enumerate(digits) if digit[2] == dim]
        dims.append(tuple(sorted(axes, key=lambda axis: -digits[axis][3])))
    tiling = anonymous(tuple(digit[1] for digit in digits), tuple(dims))
    return tiling if (coordinates(tiling) == coords).all() else None


def coordinates_of_indices(indices: Sequence[Any], shape: Shape) -> np.ndarray | None:
    """Turn index tuples, one per device, into part numbers; None if the parts form no even grid of the array.

    Entries may be slices of step 1, or integers, which stand for parts of length one.
    """
    if not indices:
        return None
    bounds = np.empty((len(indices), len(shape), 2), np.int64)
    for i, index in enumerate(indices):
        index = index if isinstance(index, tuple) else (index,)
        if len(index) > len(shape):
            return None
        index = index + (slice(None),) * (len(shape) - len(index))
        for dim, (entry, size) in enumerate(zip(index, shape, strict=True)):
            if isinstance(entry, slice):
                start, stop, step = entry.indices(size)
                if step != 1:
                    return None
            else:
                start, stop = int(entry), int(entry) + 1
            bounds[i, dim] = start, stop
    lengths = bounds[:, :, 1] - bounds[:, :, 0]
    if (lengths != lengths[0]).any() or (lengths[0] < 0).any():
        return None
    coords = np.zeros((len(indices), len(shape)), np.int64)
    for dim, size in enumerate(shape):
        length = int(lengths[0, dim])
        starts = bounds[:, dim, 0]
        if length == 0:
            if size:
                return None
            continue
        if size % length or (starts % length).any():
            return None
        coords[:, dim] = starts // length
        if len(np.unique(coords[:, dim])) != size // length:
            return None
    return coords
