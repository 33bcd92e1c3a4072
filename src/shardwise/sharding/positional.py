"""`PositionalSharding`: a grid of device sets with the array's rank, without axis names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.sharding import tiling as tilings
from shardwise.sharding.backend import default_memory_kind, device_list
from shardwise.sharding.device import Device
from shardwise.sharding.hlo_sharding import HloSharding, OpSharding
from shardwise.sharding.sharding import ImmutableSharding, checked_memory_kind
from shardwise.sharding.tiling import Tiling


class _DeviceSet:
    """Positions of the devices that hold one part; an array element, so it must not be a sequence itself."""

    __slots__ = ("_label", "positions")

    def __init__(self, positions: tuple[int, ...], devices: tuple[Device, ...]):
        self.positions = positions
        self._label = ", ".join(str(number) for number in sorted(devices[i].id for i in positions))

    def __repr__(self) -> str:
        return f"{{CPU {self._label}}}"


class PositionalSharding(ImmutableSharding):
    """A grid of device sets: the size of its dim `d` is the number of parts of dim `d` of an array.

    `reshape`, `transpose` and `replicate` make other grids of the same devices. A value must have the grid's rank.

    Args:
        devices: (nested sequence or array of) `Device`; its shape is the grid's.
        memory_kind: None for the default.

    Raises:
        ValueError: there is no device, one appears twice, or there is no such memory.
        TypeError: an entry is no `Device`.
    """

    __slots__ = ("_memory_kind", "_positions", "_tiling", "device_list")  # pyright: ignore[reportIncompatibleMethodOverride]

    # int64[*grid, k]: the last dim lists, in ascending order, the positions of the devices that share a part.
    _positions: np.ndarray

    def __init__(self, devices: Any, *, memory_kind: str | None = None):
        grid = devices if isinstance(devices, np.ndarray) else _grid(devices)
        flat = tuple(grid.ravel().tolist())
        if not flat:
            raise ValueError(f"PositionalSharding.__init__ requires at least one device, got {devices}")
        for entry in flat:
            if not isinstance(entry, Device):
                raise TypeError(f"PositionalSharding takes devices, as devices() lists them; got {entry!r}.")
        if len(set(flat)) != len(flat):
            raise ValueError("PositionalSharding takes each device once; a device appears twice in its list.")
        positions = np.arange(len(flat)).reshape(*grid.shape, 1)
        self._fill(device_list(flat), positions, checked_memory_kind(memory_kind))

    def _fill(self, devices: tuple[Device, ...], positions: np.ndarray, memory_kind: str | None) -> None:
        put = object.__setattr__
        put(self, "device_list", devices)
        put(self, "_positions", positions)
        put(self, "_memory_kind", memory_kind)
        put(self, "_tiling", ())

    def _remake(self, positions: np.ndarray) -> PositionalSharding:
        copy = object.__new__(PositionalSharding)
        copy._fill(self.device_list, positions, self._memory_kind)
        return copy

    @classmethod
    def from_tiling(
        cls, devices: Sequence[Device], tiling: Tiling, *, memory_kind: str | None = None
    ) -> PositionalSharding:
        """The grid over these devices, in this order, that places arrays as the tiling does."""
        order = [axis for axes in tiling.dims for axis in axes] + list(tiling.replicated_axes)
        numbers = np.arange(tiling.num_devices).reshape(tiling.mesh_shape).transpose(order)
        new_sharding = object.__new__(cls)
        positions = np.sort(numbers.reshape(*tiling.ways, -1), axis=-1)
        new_sharding._fill(device_list(devices), positions, checked_memory_kind(memory_kind))
        return new_sharding

    @property
    def shape(self) -> Shape:
        """The shape of the grid."""
        return self._positions.shape[:-1]

    @property
    def ndim(self) -> int:
        """The rank of the grid, and of the arrays that it places."""
        return self._positions.ndim - 1

    @property
    def T(self) -> PositionalSharding:
        """The grid with its dims reversed."""
        return self.transpose()

    def reshape(self, *shape: Any) -> PositionalSharding:
        """The same sets in a grid of another shape (one size may be -1).

        Raises:
            ValueError: the sizes do not match.
        """
        sizes = tuple(shape[0]) if len(shape) == 1 and np.iterable(shape[0]) else shape
        cells = math.prod(self.shape)
        try:
            numbers = np.arange(cells).reshape(sizes)
        except ValueError:
            raise ValueError(
                f"cannot reshape a PositionalSharding of {cells} device sets and shape {self.shape} into shape {sizes}"
            ) from None
        return self._remake(self._positions.reshape(*numbers.shape, -1))

    def transpose(self, *axes: Any) -> PositionalSharding:
        """The grid with its dims permuted, by default reversed."""
        if len(axes) == 1 and (axes[0] is None or np.iterable(axes[0])):
            axes = () if axes[0] is None else tuple(axes[0])
        order = tuple(np.lib.array_utils.normalize_axis_tuple(axes, self.ndim)) if axes else range(self.ndim)[::-1]
        return self._remake(self._positions.transpose(*order, self.ndim))

    def replicate(self, axis: Any = None, keepdims: bool = True) -> PositionalSharding:
        """Merge the sets along some grid dims (None: all); their devices then hold the same part.

        Args:
            axis: one dim or a tuple of dims.
            keepdims: keep merged dims with size 1, or drop them.

        Raises:
            ValueError: the grid has no such dim.
        """
        merged_dims = (
            tuple(range(self.ndim)) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, self.ndim)
        )
        kept_dims = tuple(dim for dim in range(self.ndim) if dim not in merged_dims)
        positions = self._positions.transpose(*kept_dims, *merged_dims, self.ndim)
        shape = tuple(
            1 if dim in merged_dims else size
            for dim, size in enumerate(self.shape)
            if keepdims or dim not in merged_dims
        )
        return self._remake(np.sort(positions.reshape(*shape, -1), axis=-1))

    @property
    def memory_kind(self) -> str:
        """The memory that the parts live in."""
        return self._memory_kind or default_memory_kind()

    def with_memory_kind(self, kind: str) -> PositionalSharding:
        """The same grid in another memory."""
        copy = object.__new__(PositionalSharding)
        copy._fill(self.device_list, self._positions, checked_memory_kind(kind))
        return copy

    @property
    def is_fully_replicated(self) -> bool:
        """Whether there is only one set."""
        return math.prod(self.shape) == 1

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError if the value's rank is not the grid's."""
        if len(aval_shape) != self.ndim:
            raise ValueError(
                f"Sharding {self} is only valid for values of rank {self.ndim}, but was applied to a value of rank "
                f"{len(aval_shape)}. Use its reshape() to give it that rank."
            )

    def _coordinates(self) -> np.ndarray:
        coords = np.empty((len(self.device_list), self.ndim), np.int64)
        cells = np.indices(self._positions.shape).reshape(self.ndim + 1, -1).T
        coords[self._positions.ravel()] = cells[:, : self.ndim]
        return coords

    def tiling(self, ndim: int, shape: Shape | None = None) -> Tiling | None:
        """The placement over an anonymous grid; None if the devices, in their order, form no grid.

        Raises:
            ValueError: `ndim` is not the grid's rank.
        """
        if ndim != self.ndim:
            self.check_compatible_aval((1,) * ndim)
        if self._tiling == ():
            object.__setattr__(self, "_tiling", tilings.tiling_of_coordinates(self._coordinates()))
        return self._tiling  # type: ignore[return-value]

    def devices_indices_map(self, global_shape: Shape) -> dict[Device, tuple[slice, ...]]:
        """For each device the part of an array of `global_shape` that it holds.

        Raises:
            ValueError: the rank is not the grid's, or a dim does not divide evenly.
        """
        shape = tuple(global_shape)
        self.check_compatible_aval(shape)
        indices = tilings.indices_of_coordinates(self._coordinates(), self.shape, shape, self)
        return dict(zip(self.device_list, indices, strict=True))

    def shard_shape(self, global_shape: Shape) -> Shape:
        """The shape of each device's part.

        Raises:
            ValueError: the rank is not the grid's, or a dim does not divide evenly.
        """
        shape = tuple(global_shape)
        self.check_compatible_aval(shape)
        return tilings.divide_shape(shape, self.shape, self)

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        if self.is_fully_replicated:
            return HloSharding.replicate()
        copies = self._positions.shape[-1]
        tiles = self._positions if copies > 1 else self._positions[..., 0]
        return HloSharding(OpSharding.Type.OTHER, tiles, (OpSharding.Type.REPLICATED,) if copies > 1 else ())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, PositionalSharding)
            and self.device_list is other.device_list
            and self._memory_kind == other._memory_kind
            and np.array_equal(self._positions, other._positions)
        )

    def __hash__(self) -> int:
        return hash((self.device_list, self._memory_kind, self._positions.shape, self._positions.tobytes()))

    def __repr__(self) -> str:
        sets = np.empty(self.shape, object)
        for place in np.ndindex(self.shape):
            sets[place] = _DeviceSet(tuple(self._positions[place].tolist()), self.device_list)
        name = type(self).__name__
        body = np.array2string(sets, prefix=f"{name}(", suffix=")", max_line_width=100) if self.ndim else repr(sets[()])
        return f"{name}({body}, memory_kind={self.memory_kind}, shape={self.shape})"

    def __reduce__(self) -> Any:
        # Pickling reaches the devices, which refuse.
        return (PositionalSharding, (list(self.device_list),))


def _grid(devices: Any) -> np.ndarray:
    if isinstance(devices, Device):
        grid = np.empty((), object)
        grid[()] = devices
        return grid
    return np.array(devices, object)
