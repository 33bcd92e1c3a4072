"""`PmapSharding`, the layout of `pmap`'s arrays over devices, and the parts of its spec."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.sharding import tiling as tilings
from shardwise.sharding.backend import default_memory_kind, device_list
from shardwise.sharding.backend import local_devices as all_local_devices
from shardwise.sharding.device import Device
from shardwise.sharding.sharding import ImmutableSharding
from shardwise.sharding.tiling import Tiling


@dataclass(frozen=True, slots=True)
class NoSharding:
    """The array dim is not split."""

    def __repr__(self) -> str:
        return "NoSharding()"


@dataclass(frozen=True, slots=True, init=False)
class Chunked:
    """The array dim is cut into equal pieces, once per entry of `chunks`, major first."""

    chunks: tuple[int, ...]

    def __init__(self, chunks: Sequence[int]):
        if not np.iterable(chunks):
            raise TypeError(f"Chunked takes a sequence of numbers of pieces, such as [8]; got {chunks!r}.")
        object.__setattr__(self, "chunks", tuple(int(count) for count in chunks))

    def __repr__(self) -> str:
        return f"Chunked({','.join(str(count) for count in self.chunks)})"


@dataclass(frozen=True, slots=True)
class Unstacked:
    """The array dim, of length `size`, is unstacked: the pieces lack it."""

    size: int

    def __repr__(self) -> str:
        return f"Unstacked({self.size})"


@dataclass(frozen=True, slots=True)
class ShardedAxis:
    """The device grid's dim runs over the pieces of cut number `axis`, counted over all array dims."""

    axis: int


@dataclass(frozen=True, slots=True)
class Replicated:
    """The device grid's dim holds `replicas` copies."""

    replicas: int


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ShardingSpec:
    """The cuts of each array dim (`sharding`), and the cut or replicas for each dim of the device grid (`mesh_mapping`).

    Raises:
        ValueError: `mesh_mapping` does not use each cut exactly once.
    """

    sharding: tuple[NoSharding | Chunked | Unstacked, ...]
    mesh_mapping: tuple[ShardedAxis | Replicated, ...]

    def __init__(self, sharding: Sequence[Any], mesh_mapping: Sequence[Any]):
        object.__setattr__(self, "sharding", tuple(sharding))
        object.__setattr__(self, "mesh_mapping", tuple(mesh_mapping))
        used = sorted(entry.axis for entry in self.mesh_mapping if isinstance(entry, ShardedAxis))
        if used != list(range(len(self._cuts()))):
            raise ValueError(
                f"mesh_mapping {self.mesh_mapping} must name each of the {len(self._cuts())} cuts of {self.sharding} "
                "exactly once."
            )

    def _cuts(self) -> list[tuple[int, int]]:
        """Pairs of array dim and number of pieces, in order of the cuts."""
        cuts = []
        for dim, entry in enumerate(self.sharding):
            if isinstance(entry, Chunked):
                cuts += [(dim, count) for count in entry.chunks]
            elif isinstance(entry, Unstacked):
                cuts.append((dim, entry.size))
        return cuts

    @property
    def grid_shape(self) -> Shape:
        """The shape of the device grid."""
        cuts = self._cuts()
        return tuple(
            entry.replicas if isinstance(entry, Replicated) else cuts[entry.axis][1] for entry in self.mesh_mapping
        )

    def tiling(self) -> Tiling:
        """The placement over the device grid, one grid axis per entry of `mesh_mapping`."""
        axis_of_cut = {entry.axis: i for i, entry in enumerate(self.mesh_mapping) if isinstance(entry, ShardedAxis)}
        dims: list[tuple[int, ...]] = [()] * len(self.sharding)
        for number, (dim, _) in enumerate(self._cuts()):
            dims[dim] += (axis_of_cut[number],)
        return tilings.anonymous(self.grid_shape, tuple(dims))

    def indices(self, shape: Shape) -> np.ndarray:
        """The index of each device's part: an object array of the device grid's shape."""
        tiling = self.tiling()
        shape = tuple(shape)
        padded_tiling = Tiling(
            tiling.mesh_shape, tiling.axis_names, tiling.dims + ((),) * (len(shape) - len(tiling.dims))
        )
        result = np.empty(tiling.num_devices, object)
        for i, index in enumerate(tilings.devices_indices(padded_tiling, shape)):
            entries: list[Any] = list(index)
            for dim, entry in enumerate(self.sharding):
                if isinstance(entry, Unstacked):
                    entries[dim] = index[dim].indices(shape[dim])[0]
            result[i] = tuple(entries)
        return result.reshape(self.grid_shape)

    def __repr__(self) -> str:
        return f"ShardingSpec({self.sharding}, {self.mesh_mapping})"


class PmapSharding(ImmutableSharding):
    """The layout of `pmap`'s arrays over devices: along each cut dim, every device has a slice of length one.

    Args:
        devices: array or sequence of `Device`.
        sharding_spec: the cuts of array dims, and their assignment to dims of the device grid.

    Raises:
        TypeError: an entry is no `Device`, or `sharding_spec` is something else.
        ValueError: there are fewer devices than pieces.
    """

    __slots__ = ("device_list", "devices", "sharding_spec")  # pyright: ignore[reportIncompatibleMethodOverride]

    devices: np.ndarray
    sharding_spec: ShardingSpec

    def __init__(self, devices: Any, sharding_spec: Any):
        if not isinstance(sharding_spec, ShardingSpec):
            raise TypeError(f"PmapSharding takes a ShardingSpec second, not {sharding_spec!r}.")
        grid = np.array(devices, object)
        for entry in grid.ravel():
            if not isinstance(entry, Device):
                raise TypeError(f"PmapSharding takes devices, as devices() lists them; got {entry!r}.")
        device_count = math.prod(sharding_spec.grid_shape)
        if grid.size < device_count:
            raise ValueError(f"PmapSharding needs {device_count} devices for {sharding_spec}, but got {grid.size}.")
        grid.flags.writeable = False
        put = object.__setattr__
        put(self, "devices", grid)
        put(self, "device_list", device_list(grid.ravel().tolist()[:device_count]))
        put(self, "sharding_spec", sharding_spec)

    @classmethod
    def default(
        cls, shape: Shape, sharded_dim: int | None = 0, devices: Sequence[Device] | None = None
    ) -> PmapSharding:
        """Slices of length one along `sharded_dim`, one per device.

        Args:
            shape: the array's shape.
            sharded_dim: the dim to cut; None: each of `devices` holds the whole array.
            devices: by default the first local devices, one per element of the dim.

        Raises:
            ValueError: neither `sharded_dim` nor `devices` is given, the array has no such dim, or it is longer
                than there are devices.
        """
        cuts: list[NoSharding | Chunked] = [NoSharding()] * len(shape)
        if sharded_dim is None:
            if devices is None:
                raise ValueError("One of sharded_dim or devices must be set.")
            return cls(devices, ShardingSpec(cuts, (Replicated(len(devices)),)))
        if not -len(shape) <= sharded_dim < len(shape):
            raise ValueError(f"PmapSharding.default: an array of shape {tuple(shape)} has no dim {sharded_dim} to cut.")
        length = shape[sharded_dim]
        cuts[sharded_dim] = Chunked([length])
        if devices is None:
            devices = all_local_devices()[:length]
        return cls(devices, ShardingSpec(cuts, (ShardedAxis(0),)))

    @property
    def memory_kind(self) -> str:
        """The default memory, the only one that `pmap` supports."""
        return default_memory_kind()

    def with_memory_kind(self, kind: str) -> PmapSharding:
        """Not available: `pmap` keeps its arrays in the default memory. Use a `NamedSharding`."""
        raise NotImplementedError("pmap does not support memory kinds; use a NamedSharding for that.")

    @property
    def is_fully_replicated(self) -> bool:
        """Whether no dim is cut into more than one piece."""
        return self.sharding_spec.tiling().is_replicated

    def _check_shape(self, shape: Shape) -> None:
        spec = self.sharding_spec
        if len(shape) < len(spec.sharding) and any(
            not isinstance(entry, NoSharding) for entry in spec.sharding[len(shape) :]
        ):
            raise ValueError(
                f"Sharding {self} is only valid for values of rank {len(spec.sharding)}, but was applied to a value of "
                f"rank {len(shape)}."
            )
        for dim, (entry, size) in enumerate(zip(spec.sharding, shape, strict=False)):
            wanted_size = entry.size if isinstance(entry, Unstacked) else None
            if isinstance(entry, Chunked) and len(entry.chunks) == 1:
                wanted_size = entry.chunks[0]
            if wanted_size is not None and wanted_size != size:
                raise ValueError(
                    "The sharded dimension must be equal to the number of devices passed to PmapSharding. Got sharded "
                    f"dimension {dim} with value {size} in shape {shape} and the number of devices={wanted_size}"
                )

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError if the length of a cut dim is not its number of pieces."""
        self._check_shape(tuple(aval_shape))

    def tiling(self, ndim: int, shape: Shape | None = None) -> Tiling | None:
        """The placement over the device grid; None if pieces lack a dim (`Unstacked`)."""
        if any(isinstance(entry, Unstacked) for entry in self.sharding_spec.sharding):
            return None
        tiling = self.sharding_spec.tiling()
        dims = tiling.dims[:ndim] + ((),) * (ndim - len(tiling.dims))
        return Tiling(tiling.mesh_shape, tiling.axis_names, dims)

    def devices_indices_map(self, global_shape: Shape) -> dict[Device, Any]:
        """For each device the part of an array of `global_shape` that it holds.

        Raises:
            ValueError: a cut dim is not as long as there are pieces.
        """
        shape = tuple(global_shape)
        self._check_shape(shape)
        spec = self.sharding_spec
        if len(shape) < len(spec.sharding):  # the missing dims are not cut
            spec = ShardingSpec(spec.sharding[: len(shape)], spec.mesh_mapping)
        return dict(zip(self.device_list, spec.indices(shape).ravel(), strict=True))

    def shard_shape(self, global_shape: Shape) -> Shape:
        """The shape of each device's part, without the unstacked dims.

        Raises:
            ValueError: a cut dim is not as long as there are pieces.
        """
        shape = tuple(global_shape)
        self._check_shape(shape)
        result = []
        for dim, size in enumerate(shape):
            entry = self.sharding_spec.sharding[dim] if dim < len(self.sharding_spec.sharding) else NoSharding()
            if isinstance(entry, Chunked):
                ways = math.prod(entry.chunks)
                if size % ways:
                    factors = [ways if i == dim else 1 for i in range(len(shape))]
                    raise tilings.IndivisibleError(tilings.indivisible_text(self, dim, shape, factors))
                result.append(size // ways)
            elif isinstance(entry, NoSharding):
                result.append(size)
        return tuple(result)

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether both are the same `PmapSharding`; it is equivalent to no other kind."""
        return self == other

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, PmapSharding)
            and self.sharding_spec == other.sharding_spec
            and np.array_equal(self.devices, other.devices)
        )

    def __hash__(self) -> int:
        return hash((self.device_list, self.sharding_spec))

    def __repr__(self) -> str:
        return f"PmapSharding(sharding_spec={self.sharding_spec}, devices={self.devices})"

    def __str__(self) -> str:
        ids = [device.id for device in self.devices.flat]
        return (
            f"PmapSharding(sharding_spec={self.sharding_spec}, device_ids={ids}, device_platform=CPU, "
            f"device_shape={self.devices.shape})"
        )

    def __reduce__(self) -> Any:
        # Pickling reaches the devices, which refuse.
        return (PmapSharding, (self.devices, self.sharding_spec))
