"""`SingleDeviceSharding`: the whole array on one device."""

from __future__ import annotations

import weakref
from typing import Any

from shardwise.base.shapes import Shape
from shardwise.sharding import tiling as tilings
from shardwise.sharding.backend import default_memory_kind, device_list
from shardwise.sharding.device import Device
from shardwise.sharding.sharding import ImmutableSharding, checked_memory_kind
from shardwise.sharding.tiling import Index, Tiling


class SingleDeviceSharding(ImmutableSharding):
    """The whole array on one device; one object per device and memory kind.

    Args:
        device: the device.
        memory_kind: None for the default.

    Raises:
        TypeError: `device` is no `Device`.
        ValueError: there is no such memory.
    """

    __slots__ = ("_memory_kind", "device_list")  # pyright: ignore[reportIncompatibleMethodOverride]

    def __new__(cls, device: Any, *, memory_kind: str | None = None) -> SingleDeviceSharding:
        """Find the sharding with these parts, or make it."""
        known_sharding = _single.get((device, None)) if memory_kind is None and isinstance(device, Device) else None
        if known_sharding is not None:
            return known_sharding
        if not isinstance(device, Device):
            raise TypeError(f"SingleDeviceSharding takes a Device, as devices() lists them; got {device!r}.")
        kind = checked_memory_kind(memory_kind)
        known_sharding = _single.get((device, kind))
        if known_sharding is not None:
            return known_sharding
        self = object.__new__(cls)
        object.__setattr__(self, "_memory_kind", kind)
        object.__setattr__(self, "device_list", device_list((device,)))
        return _single.setdefault((device, kind), self)

    @property
    def _device(self) -> Device:
        return self.device_list[0]

    @property
    def memory_kind(self) -> str:
        """The memory that the array lives in."""
        return self._memory_kind or default_memory_kind()

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """The same device, another memory."""
        return SingleDeviceSharding(self._device, memory_kind=kind)

    @property
    def device_set(self) -> set[Device]:
        """The device."""
        return {self._device}

    @property
    def num_devices(self) -> int:
        """One."""
        return 1

    @property
    def is_fully_replicated(self) -> bool:
        """Always: the device holds the whole array."""
        return True

    def tiling(self, ndim: int, shape: Shape | None = None) -> Tiling:
        """The grid without axes."""
        known_tiling = _whole.get(ndim)
        if known_tiling is None:
            known_tiling = _whole.setdefault(ndim, tilings.replicated_tiling(1, ndim))
        return known_tiling

    def devices_indices_map(self, global_shape: Shape) -> dict[Device, Index]:
        """The device, with the whole array."""
        return {self._device: (slice(None),) * len(global_shape)}

    def shard_shape(self, global_shape: Shape) -> Shape:
        """The whole shape."""
        return tuple(global_shape)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self.memory_kind})"

    def __reduce__(self) -> Any:
        return (SingleDeviceSharding, (self._device,))


_single: weakref.WeakValueDictionary[Any, SingleDeviceSharding] = weakref.WeakValueDictionary()
_whole: dict[int, Tiling] = {}
