"""`GSPMDSharding`: a tile assignment over a list of devices, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.sharding import tiling as tilings
from shardwise.sharding.backend import default_memory_kind, device_list
from shardwise.sharding.device import Device
from shardwise.sharding.hlo_sharding import HloSharding, OpSharding
from shardwise.sharding.sharding import ImmutableSharding, checked_memory_kind, rank_text
from shardwise.sharding.tiling import Tiling


class GSPMDSharding(ImmutableSharding):
    """Devices in order, and a tile assignment over their positions.

    Args:
        devices: the devices that the assignment numbers.
        op_sharding: an `OpSharding` or `HloSharding`.
        memory_kind: None for the default.

    Raises:
        ValueError: there are no devices, the assignment does not use each device once, or there is no such memory.
        TypeError: `op_sharding` is something else.
    """

    __slots__ = ("_hlo_sharding", "_memory_kind", "_tilings", "device_list")  # pyright: ignore[reportIncompatibleMethodOverride]

    _hlo_sharding: HloSharding

    def __init__(self, devices: Sequence[Device], op_sharding: Any, *, memory_kind: str | None = None):
        if len(devices) == 0:
            raise ValueError("GSPMDSharding requires at least one device, got []")
        if isinstance(op_sharding, OpSharding):
            op_sharding = HloSharding.from_proto(op_sharding)
        if not isinstance(op_sharding, HloSharding):
            raise TypeError(
                f"GSPMDSharding takes an OpSharding or HloSharding, not {op_sharding!r} of type "
                f"{type(op_sharding).__name__}. HloSharding.from_string reads the text form."
            )
        numbers = op_sharding.tile_assignment_devices()
        if op_sharding.is_tiled() and sorted(numbers) != list(range(len(devices))):
            raise ValueError(
                f"The tile assignment {op_sharding} must use each of the {len(devices)} devices, by its position in "
                "the list, exactly once."
            )
        if op_sharding.is_maximal() and not 0 <= numbers[0] < len(devices):
            raise ValueError(f"The assignment {op_sharding} names a device beyond the {len(devices)} given.")
        put = object.__setattr__
        put(self, "device_list", device_list(tuple(devices)))
        put(self, "_hlo_sharding", op_sharding)
        put(self, "_memory_kind", checked_memory_kind(memory_kind))
        put(self, "_tilings", {})

    @classmethod
    def get_replicated(cls, devices: Sequence[Device], *, memory_kind: str | None = None) -> GSPMDSharding:
        """The whole array on each of these devices."""
        return cls(devices, HloSharding.replicate(), memory_kind=memory_kind)

    @property
    def memory_kind(self) -> str:
        """The memory that the parts live in."""
        return self._memory_kind or default_memory_kind()

    def with_memory_kind(self, kind: str) -> GSPMDSharding:
        """The same assignment in another memory."""
        return GSPMDSharding(self.device_list, self._hlo_sharding, memory_kind=kind)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        return self._hlo_sharding.splits_nothing

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> HloSharding:
        return self._hlo_sharding

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError if the tile assignment has more dims than the array."""
        if not self.is_fully_replicated and self._hlo_sharding.rank > len(aval_shape):
            raise ValueError(rank_text(self, self._hlo_sharding.rank, len(aval_shape)))

    def tiling(self, ndim: int, shape: Shape | None = None) -> Tiling | None:
        """The placement over an anonymous grid; None if the device numbers form no grid.

        Raises:
            ValueError: arrays of this rank cannot have the sharding.
        """
        if ndim not in self._tilings:
            self._tilings[ndim] = self._find_tiling(ndim)
        return self._tilings[ndim]

    def _find_tiling(self, ndim: int) -> Tiling | None:
        if self.is_fully_replicated:
            return tilings.replicated_tiling(len(self.device_list), ndim)
        return tilings.tiling_of_coordinates(self._coordinates(ndim))

    def _coordinates(self, ndim: int) -> np.ndarray:
        if self.is_fully_replicated:
            return np.zeros((len(self.device_list), ndim), np.int64)
        if self._hlo_sharding.rank != ndim:
            if ndim < self._hlo_sharding.rank:
                raise ValueError(rank_text(self, self._hlo_sharding.rank, ndim))
            raise ValueError(
                f"Sharding {self} is only valid for values of rank {self._hlo_sharding.rank}, but was applied to a "
                f"value of rank {ndim}."
            )
        return self._hlo_sharding.coordinates()

    def _ways(self, ndim: int) -> Shape:
        return (1,) * ndim if self.is_fully_replicated else self._hlo_sharding.ways

    def devices_indices_map(self, global_shape: Shape) -> dict[Device, tuple[slice, ...]]:
        """For each device, in the given order, the part of an array of `global_shape` that it holds.

        Raises:
            ValueError: the rank is not the assignment's, or a dim does not divide evenly.
        """
        shape = tuple(global_shape)
        coords = self._coordinates(len(shape))
        indices = tilings.indices_of_coordinates(coords, self._ways(len(shape)), shape, self)
        return dict(zip(self.device_list, indices, strict=True))

    def shard_shape(self, global_shape: Shape) -> Shape:
        """The shape of each device's part.

        Raises:
            ValueError: the rank is not the assignment's, or a dim does not divide evenly.
        """
        shape = tuple(global_shape)
        self._coordinates(len(shape))
        return tilings.divide_shape(shape, self._ways(len(shape)), self)

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether both put the same parts of arrays of rank `ndim` on the same devices, in the same memory."""
        if isinstance(other, GSPMDSharding):
            return self == other
        return super().is_equivalent_to(other, ndim)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, GSPMDSharding)
            and self.device_list is other.device_list
            and self._memory_kind == other._memory_kind
            and self._key() == other._key()
        )

    def _key(self) -> Any:
        return None if self.is_fully_replicated else self._hlo_sharding.key()

    def __hash__(self) -> int:
        return hash((self.device_list, self._memory_kind, self._key()))

    def __repr__(self) -> str:
        return f"GSPMDSharding({self._hlo_sharding!r}, memory_kind={self.memory_kind})"

    def __reduce__(self) -> Any:
        # Pickling reaches the devices, which refuse.
        return (GSPMDSharding, (self.device_list, self._hlo_sharding))
