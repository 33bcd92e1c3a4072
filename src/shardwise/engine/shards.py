"""`Shard`: one device's part of an array, and the places of all parts, computed once per signature.

Comes in: an Array. Goes out: one Shard per device, whose `data` is a single-device Array on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ndarray
from shardwise.engine.signature import Signature, signature
from shardwise.ir import ShapedArray
from shardwise.sharding import Device, NamedSharding, Sharding, SingleDeviceSharding
from shardwise.sharding.ownership import local_index, ownership
from shardwise.sharding.tiling import Index, replica_ids

if TYPE_CHECKING:
    from shardwise.engine.array import ArrayImpl


class ShardData:
    """The data that the shards of an array read. It does not refer to the array, so that no cycle waits for the garbage collector."""

    __slots__ = ("_dense", "_error", "block", "kind", "sig")

    def __init__(self, array: ArrayImpl) -> None:
        self.kind = type(array)
        self.sig, self.block, self._dense = array._sig, array._block, array._dense
        self._error: Callable[[], Exception] | None = None  # makes the error that is raised once the array is deleted

    @property
    def dense(self) -> Ndarray:
        """The array's value, as its own `dense`."""
        dense = self._dense
        if dense is None:
            if self.block is None:
                assert self._error is not None
                raise self._error()
            dense = self._dense = self.sig.form.to_dense(self.block)
        return dense

    def forget(self, error: Callable[[], Exception]) -> None:
        """Let go of the memory: the array is deleted."""
        self.block = self._dense = None
        self._error = error


class ShardPlace:
    """The place of a device's part in all arrays of one signature."""

    __slots__ = ("_cut", "_sig", "at", "device", "index", "local", "nothing", "replica_id", "whole")

    def __init__(
        self, whole: Signature, at: tuple[int, ...], device: Device, index: Index, replica_id: int, nothing: bool
    ) -> None:
        self.whole = whole
        self.at = at  # the device's coordinates in the grid; () if the data is cut from the dense value
        self.device = device
        self.index = index
        self.replica_id = replica_id
        self.local = device.is_local
        self.nothing = nothing  # the part adds nothing to a sum over devices
        self._sig: Signature | None = None
        # For the last block (nearly all of a signature have one shape): its shape, the part's index, and the part's shape if the part
        # repeats elements.
        self._cut: tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...] | None] = (), (), None

    def data(self, held: ShardData) -> ArrayImpl:
        """The part of an array: a view, not a copy. RuntimeError if the array was deleted."""
        block = held.block
        if block is None or not self.at:
            part = held.dense[(*self._own_index(), ...)]
        else:
            shape, cut, whole_shape = self._cut
            if block.shape != shape:
                _, cut, whole_shape = self._cut = self._cut_of(block.shape)
            part = block[cut]
            if whole_shape is not None:
                part = np.broadcast_to(part, whole_shape)
        if self.nothing:
            part = np.zeros(part.shape, part.dtype)
        sig = self._sig
        if sig is None:
            sig = self._sig = self._signature(part.shape)
        kind = held.kind
        instance = kind.__new__(kind)
        instance._sig, instance._dense = sig, part
        instance._block = instance._npy = instance._shards = None
        return instance

    def _cut_of(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...] | None]:
        lead = len(self.at)
        whole = self.whole.form.block_shape[lead:]
        cut = (*[i if n != 1 else 0 for i, n in zip(self.at, shape, strict=False)], ...)
        return shape, cut, None if shape[lead:] == whole else whole

    def _signature(self, shape: tuple[int, ...]) -> Signature:
        aval, sharding = self.whole.aval, self.whole.sharding
        own = SingleDeviceSharding(self.device, memory_kind=sharding.memory_kind)
        own_type = ShapedArray(shape, aval.dtype, aval.weak_type)
        return signature(own_type, own, self.whole.committed, self.whole.order)

    def _own_index(self) -> Index:
        sig = self.whole
        if not sig.spans:
            return self.index
        assert sig.tiling is not None
        return local_index(self.index, sig.aval.shape, sig.tiling.ways, sig.positions)


@recent(1024)
def shard_places(sig: Signature) -> tuple[ShardPlace, ...]:
    """The places of all parts of arrays with this signature, in the sharding's device order."""
    shape, tiling = sig.aval.shape, sig.tiling
    index_map: Mapping[Device, Any] = sig.sharding.devices_indices_map(shape)
    replicas = _replica_ids(index_map.values()) if tiling is None else replica_ids(tiling, shape)
    coordinates: Iterable[tuple[int, ...]] = [()] * len(index_map)
    if tiling is not None and sig.form.grid and not sig.spans:
        coordinates = np.ndindex(sig.form.grid)
    elif tiling is not None and sig.varies and not sig.absent:
        coordinates = _own_places(sig.devices, tuple([n for n in tiling.mesh_shape if n != 1]))
    nothing = _without_share(sig.sharding)
    return tuple(
        [
            ShardPlace(sig, at, device, index, replica, device in nothing)
            for at, (device, index), replica in zip(coordinates, index_map.items(), replicas, strict=True)
        ]
    )


def _own_places(devices: tuple[Device, ...], mesh_shape: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    """The place of each device in this process's block; () for those of other processes."""
    own = ownership(devices, mesh_shape).coordinates
    for device, at in zip(devices, np.ndindex(mesh_shape), strict=True):
        yield tuple([numbers.index(i) for numbers, i in zip(own, at, strict=True)]) if device.is_local else ()


def _without_share(sharding: Sharding) -> frozenset[Device]:
    """The devices whose parts of unreduced arrays are zero: memory holds sums, which the first device of each line has."""
    unreduced_axes = getattr(getattr(sharding, "spec", None), "unreduced", None)
    if not unreduced_axes or not isinstance(sharding, NamedSharding):
        return frozenset()
    dims = [sharding.mesh.axis_names.index(a) for a in unreduced_axes]
    devices: Any = sharding.mesh.devices
    return frozenset(device for at, device in np.ndenumerate(devices) if any(at[d] for d in dims))


@recent(1024)
def local_places(sig: Signature) -> tuple[ShardPlace, ...]:
    """The `shard_places` on devices of this process."""
    return tuple([place for place in shard_places(sig) if place.device.is_local])


def _replica_ids(indices: Iterable[Any]) -> list[int]:
    counts: dict[str, int] = {}
    ids = []
    for index in indices:
        key = str(index)
        ids.append(counts.get(key, 0))
        counts[key] = ids[-1] + 1
    return ids


class Shard:
    """One device's part of an array."""

    __slots__ = ("_data", "_held", "_place")

    def __init__(self, held: ShardData, place: ShardPlace) -> None:
        self._held = held
        self._place = place
        self._data: ArrayImpl | None = None

    @property
    def device(self) -> Device:
        """The device that holds it."""
        return self._place.device

    @property
    def index(self) -> Index:
        """The part's position in the array: a slice per dim."""
        return self._place.index

    @property
    def replica_id(self) -> int:
        """The number of devices before this one that hold the same part."""
        return self._place.replica_id

    @property
    def data(self) -> ArrayImpl | None:
        """The part as a single-device array: a view, not a copy. None if another process holds it."""
        data = self._data
        if data is None and self._place.local:
            data = self._data = self._place.data(self._held)
        return data

    def forget(self, error: Callable[[], Exception]) -> None:
        """Let go of the array's memory, for all of its shards: it is deleted."""
        self._held.forget(error)

    def __repr__(self) -> str:
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={self.data})"
