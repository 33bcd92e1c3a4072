"""`Sharding`: the description of an array's layout over devices.

Users may write subclasses: `devices_indices_map` and `device_set` are enough, the rest follows from them. The engine
reads only two members of every sharding: `device_list`, the ordered devices, and `tiling(ndim)`, the index arithmetic
over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shardwise.base.collections_given import given_items
from shardwise.base.html import text_html
from shardwise.base.shapes import Shape
from shardwise.sharding import tiling as tilings
from shardwise.sharding.backend import default_memory_kind, device_list, memory_kinds, no_such_memory
from shardwise.sharding.device import Device
from shardwise.sharding.tiling import Index, Tiling


class Sharding:
    """The layout of a logical array over one or more devices.

    A subclass gives `devices_indices_map` (and `device_set`, or `_device_assignment` if order matters), or
    `device_list` and `tiling`; either pair determines all other members.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return text_html(repr(self))

    # Members that a subclass defines.

    @property
    def device_set(self) -> set[Device]:
        """The devices that hold a part of the array."""
        return set(self.device_list)

    @property
    def device_list(self) -> tuple[Device, ...]:
        """The devices in order, interned: equal lists are one object. Our subclasses keep it in a slot, which reads faster."""
        return _cache_on_sharding(self, "device_list", self._find_device_list)

    def _find_device_list(self) -> tuple[Device, ...]:
        kind = type(self)
        if kind._device_assignment is not Sharding._device_assignment:
            return device_list(self._device_assignment)
        if kind.device_set is not Sharding.device_set:
            return device_list(sorted(self.device_set, key=lambda device: device.id))
        raise NotImplementedError(f"{kind.__name__} must define device_set (or _device_assignment).")

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return self.device_list

    def devices_indices_map(self, global_shape: Shape) -> Mapping[Device, Index | None]:
        """For each device the part of an array of `global_shape` that it holds, in device order.

        Raises:
            ValueError: the sharding does not fit the shape.
        """
        tiling = self.tiling(len(global_shape))
        if tiling is None:
            raise NotImplementedError(f"{type(self).__name__} must define devices_indices_map.")
        tilings.shard_shape(tiling, tuple(global_shape), self)
        return dict(zip(self.device_list, tilings.devices_indices(tiling, tuple(global_shape)), strict=True))

    def tiling(self, ndim: int, shape: Shape | None = None) -> Tiling | None:
        """The placement of arrays of rank `ndim` over `device_list`; None if no grid describes it.

        Args:
            ndim: rank of the array.
            shape: the array's shape, if known. A sharding given only by its index map is evaluated for this shape, or
                else for two invented shapes.
        """
        if type(self).devices_indices_map is Sharding.devices_indices_map:
            return None
        if shape is not None:
            shape = tuple(shape)
            return _cache_on_sharding(self, shape, lambda: self._tiling_for(shape))
        return _cache_on_sharding(self, ndim, lambda: self._tiling_for_any(ndim))

    def _tiling_for_any(self, ndim: int) -> Tiling | None:
        count = len(self.device_list)
        try:
            first, second = self._tiling_for((count,) * ndim), self._tiling_for((2 * count,) * ndim)
        except Exception:  # a map written for one shape may fail in any way for another
            return None
        return first if first is second else None

    def _tiling_for(self, shape: Shape) -> Tiling | None:
        indices = self.devices_indices_map(shape)
        coords = tilings.coordinates_of_indices([indices[device] for device in self.device_list], shape)
        return None if coords is None else tilings.tiling_of_coordinates(coords)

    # Members that follow from them.

    @property
    def memory_kind(self) -> str | None:
        """The memory that the parts live in; None if not given."""
        return None

    def with_memory_kind(self, kind: str) -> Sharding:
        """The same sharding in another memory."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say how to change its memory kind. Define with_memory_kind."
        )

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return len(self.device_list)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices that this process owns."""
        return {device for device in self.device_set if device.is_local}

    @property
    def _addressable_device_assignment(self) -> tuple[Device, ...]:
        return tuple(device for device in self.device_list if device.is_local)

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process owns any of the devices."""
        return any(device.is_local for device in self.device_list)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process owns all of the devices."""
        return all(device.is_local for device in self.device_list)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array.

        For a sharding given only by its index map, its parts of arrays of rank 1 decide, unless a subclass overrides this.
        """
        if len(self.device_list) == 1:
            return True
        one_dim = self.tiling(1)
        return one_dim is not None and one_dim.is_replicated

    def addressable_devices_indices_map(self, global_shape: Shape) -> Mapping[Device, Index | None]:
        """`devices_indices_map` for the devices that this process owns."""
        indices = self.devices_indices_map(global_shape)
        return {device: index for device, index in indices.items() if device.is_local}

    def shard_shape(self, global_shape: Shape) -> Shape:
        """The shape of each device's part of an array of `global_shape`.

        Raises:
            ValueError: the sharding does not fit the shape.
        """
        shape = given_items(global_shape, "shard_shape takes a tuple of ints")
        if type(self).tiling is Sharding.tiling:
            return _shape_of_index(next(iter(self.devices_indices_map(shape).values())), shape)
        tiling = self.tiling(len(shape))
        if tiling is None:
            raise NotImplementedError(f"{type(self).__name__} must define shard_shape where it has no tiling.")
        return tilings.shard_shape(tiling, shape, self)

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError if arrays of this rank cannot have this sharding."""

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether both put the same parts of arrays of rank `ndim` on the same devices, in the same memory."""
        if self is other:
            return True
        if not isinstance(other, Sharding):
            return False
        try:
            if self.device_list is not other.device_list or _memory(self) != _memory(other):
                return False
            mine, theirs = self.tiling(ndim), other.tiling(ndim)
        except ValueError:  # without devices, or a spec longer than the rank
            return False
        if mine is None or theirs is None:
            return self == other
        return mine.same_placement(theirs)


def _cache_on_sharding(sharding: Sharding, key: Any, find: Callable[[], Any]) -> Any:
    """The value of `find()`, cached on the sharding if its class has room for attributes."""
    room = getattr(sharding, "__dict__", None)
    if room is None:
        return find()
    results = room.setdefault("_kept", {})
    if key not in results:
        results[key] = find()
    return results[key]


def _memory(sharding: Sharding) -> str:
    return sharding.memory_kind or default_memory_kind()


def _shape_of_index(index: Any, shape: Shape) -> Shape:
    index = index if isinstance(index, tuple) else (index,)
    result = []
    for entry, size in zip(index, shape, strict=False):
        if isinstance(entry, slice):
            result.append(len(range(*entry.indices(size))))
    return (*result, *shape[len(index) :])


def checked_memory_kind(kind: str | None) -> str | None:
    """The kind in the form that shardings store: None means the default, so that the default follows the dialect.

    Raises:
        ValueError: there is no such memory.
    """
    if kind is None or kind == default_memory_kind():
        return None
    if kind not in memory_kinds():
        raise ValueError(no_such_memory(kind))
    return kind


def rank_text(placed: object, least: int, rank: int) -> str:
    """The error text for a value whose rank is too small for the sharding or the spec."""
    scalar = " For scalars the PartitionSpec should be P()" if rank == 0 else ""
    kind = "Sharding" if isinstance(placed, Sharding) else "PartitionSpec"
    return (
        f"{kind} {placed} is only valid for values of rank at least {least}, but was applied to a value of rank "
        f"{rank}.{scalar}"
    )


class ImmutableSharding(Sharding):
    """A sharding that this library defines: interned or value-compared, immutable, safe to share."""

    __slots__ = ("__weakref__",)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}: shardings are immutable.")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self
