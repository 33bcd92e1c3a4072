"""`Sharding`, the description of how an array lies over devices, and its two everyday forms.

`NamedSharding` joins a mesh and a spec; `SingleDeviceSharding` names one device. Users may write further subclasses
of `Sharding`: `devices_indices_map` and `device_set` are enough, the rest follows from them.

The engine asks every sharding for two things only: `device_list`, the ordered devices, and `tiling(ndim)`, the index
arithmetic over them.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from shardwise.base import config
from shardwise.base.errors import DuplicateSpecError
from shardwise.sharding import tiling as tilings
from shardwise.sharding.device import Device, default_memory_kind, device_list, unknown_memory_kind
from shardwise.sharding.mesh import AbstractMesh, AxisType, Mesh
from shardwise.sharding.spec import UNCONSTRAINED, PartitionSpec, entry_axes
from shardwise.sharding.tiling import Index, Shape, Tiling

_UNSET: Any = object()


class Sharding:
    """How a logical array lies over one or more devices.

    A subclass gives `devices_indices_map` (and `device_set`, or `_device_assignment` where order matters), or
    `device_list` and `tiling`; either pair determines all other members.
    """

    __slots__ = ()

    # What a subclass gives.

    @property
    def device_set(self) -> set[Device]:
        """The devices that hold a part of the array."""
        return set(self.device_list)

    @property
    def device_list(self) -> tuple[Device, ...]:
        """The devices in order, interned: equal lists are one object."""
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
            shape: of the array, where known. Shardings that are given by their index map alone are asked about this
                shape, and otherwise about two made-up ones.
        """
        if type(self).devices_indices_map is Sharding.devices_indices_map:
            return None
        if shape is not None:
            return self._probe(tuple(shape))
        count = len(self.device_list)
        try:
            first, second = self._probe((count,) * ndim), self._probe((2 * count,) * ndim)
        except Exception:  # a map written for one shape may fail in any way for another
            return None
        return first if first is second else None

    def _probe(self, shape: Shape) -> Tiling | None:
        indices = self.devices_indices_map(shape)
        coords = tilings.coordinates_of_indices([indices[device] for device in self.device_list], shape)
        return None if coords is None else tilings.tiling_of_coordinates(coords)

    # What follows.

    @property
    def memory_kind(self) -> str | None:
        """The memory that the parts live in; None if unsaid."""
        return None

    def with_memory_kind(self, kind: str) -> Sharding:
        """The same sharding in another memory."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to change its memory kind.")

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

        A sharding given by its index map alone knows that only for one device; elsewhere it answers False unless a
        subclass knows better.
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
        shape = tuple(global_shape)
        if type(self).devices_indices_map is not Sharding.devices_indices_map:
            return _shape_of_index(next(iter(self.devices_indices_map(shape).values())), shape)
        tiling = self.tiling(len(shape))
        if tiling is None:
            raise NotImplementedError(f"{type(self).__name__} must define devices_indices_map.")
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
            if self.device_list is not other.device_list or self.memory_kind != other.memory_kind:
                return False
            mine, theirs = self.tiling(ndim), other.tiling(ndim)
        except ValueError:  # without devices, or a spec longer than the rank
            return False
        if mine is None or theirs is None:
            return self == other
        return mine.same_placement(theirs)


def _shape_of_index(index: Any, shape: Shape) -> Shape:
    index = index if isinstance(index, tuple) else (index,)
    result = []
    for entry, size in zip(index, shape, strict=False):
        if isinstance(entry, slice):
            result.append(len(range(*entry.indices(size))))
    return (*result, *shape[len(index) :])


def checked_memory_kind(kind: str | None) -> str | None:
    """The kind as shardings store it: None stands for the default, so that the default follows the dialect.

    Raises:
        ValueError: there is no such memory.
    """
    if kind is None or kind == default_memory_kind():
        return None
    if kind not in config.dialect.memory_kinds:
        raise ValueError(unknown_memory_kind(kind))
    return kind


def rank_text(sharding: Sharding, least: int, rank: int) -> str:
    """Say that a value of this rank is too small for the sharding."""
    scalar = " For scalars the PartitionSpec should be P()" if rank == 0 else ""
    return (
        f"Sharding {sharding} is only valid for values of rank at least {least}, but was applied to a value of rank "
        f"{rank}.{scalar}"
    )


class _Immutable(Sharding):
    """A sharding that this library defines: interned or value-compared, immutable, safe to share."""

    __slots__ = ("__weakref__",)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}: shardings are immutable.")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class NamedSharding(_Immutable):
    """A mesh, and for each dim of an array the mesh axes that split it; interned.

    Args:
        mesh: a `Mesh`, or an `AbstractMesh` where devices do not matter.
        spec: a `PartitionSpec`; under the `seed` dialect also the tuple of its entries.
        memory_kind: None for the default.

    Raises:
        TypeError: `spec` is None, or `mesh` is no mesh.
        ValueError: the spec names an axis that the mesh lacks, UNCONSTRAINED stands over a mesh without Auto axes,
            an unreduced axis is not Explicit, or there is no such memory.
        DuplicateSpecError: the spec uses an axis twice.
    """

    __slots__ = ("_dims", "_memory_kind", "_tilings", "device_list", "mesh", "spec")

    mesh: Mesh | AbstractMesh
    spec: PartitionSpec

    def __new__(
        cls,
        mesh: Mesh | AbstractMesh,
        spec: Any,
        *,
        memory_kind: str | None = None,
        _logical_device_ids: Any = None,
    ) -> NamedSharding:
        """Find the sharding with these parts, or make it."""
        if spec.__class__ is not PartitionSpec:
            spec = _as_spec(spec)
        key = (mesh, spec, memory_kind, config.dialect if memory_kind is not None else None)
        known = _named.get(key)
        if known is not None:
            return known
        if not isinstance(mesh, (Mesh, AbstractMesh)):
            raise TypeError(f"NamedSharding takes a Mesh or AbstractMesh first; got {mesh!r}.")
        kind = _checked_abstract_kind(memory_kind) if isinstance(mesh, AbstractMesh) else memory_kind
        kind = kind if isinstance(mesh, AbstractMesh) else checked_memory_kind(memory_kind)
        if kind is None and memory_kind is not None:
            result = _named.get((mesh, spec, None, None)) or _make_named(mesh, spec, None)
            return _named.setdefault((mesh, spec, None, None), result)
        return _named.setdefault(key, _make_named(mesh, spec, kind))

    @property
    def memory_kind(self) -> str | None:
        """The memory that the parts live in; None over an `AbstractMesh` unless said."""
        if self._memory_kind is None and isinstance(self.mesh, Mesh) and not self.mesh.empty:
            return default_memory_kind()
        return self._memory_kind

    @property
    def dims(self) -> tuple[tuple[Any, ...], ...]:
        """For each entry of the spec, the axis names that split the dim, major first."""
        names = self.mesh.axis_names
        return tuple(tuple(names[axis] for axis in axes) for axes in self._dims)

    def tiling(self, ndim: int, shape: Shape | None = None) -> Tiling:
        """The placement of arrays of rank `ndim` over the mesh's own axes.

        Raises:
            ValueError: the spec is longer than the rank.
        """
        known = self._tilings.get(ndim)
        if known is not None:
            return known
        if len(self.spec) > ndim:
            raise ValueError(rank_text(self, len(self.spec), ndim))
        dims = self._dims + ((),) * (ndim - len(self._dims))
        made = Tiling(self.mesh.axis_sizes, self.mesh.axis_names, dims)
        self._tilings[ndim] = made
        return made

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError if the spec is longer than the rank."""
        if len(self.spec) > len(aval_shape):
            raise ValueError(rank_text(self, len(self.spec), len(aval_shape)))

    @property
    def is_fully_replicated(self) -> bool:
        """Whether no axis of size above 1 is used or unreduced."""
        sizes = self.mesh.axis_sizes
        return not self.spec.unreduced and all(sizes[axis] == 1 for axes in self._dims for axis in axes)

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """The mesh axes that neither split a dim nor are unreduced."""
        used = {name for names in self.dims for name in names} | self.spec.unreduced
        return frozenset(name for name in self.mesh.axis_names if name not in used)

    @property
    def num_devices(self) -> int:
        """The size of the mesh."""
        return self.mesh.size

    @property
    def device_set(self) -> set[Device]:
        """The mesh's devices."""
        return set(self._devices("device_set"))

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return self._devices("_device_assignment")

    @property
    def _addressable_device_assignment(self) -> tuple[Device, ...]:
        self._devices("_addressable_device_assignment")
        return tuple(self.mesh.local_devices)

    @property
    def addressable_devices(self) -> set[Device]:
        """The mesh's devices that this process owns."""
        self._devices("addressable_devices")
        return set(self.mesh.local_devices)

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process owns any of the mesh's devices."""
        self._devices("has_addressable_devices")
        return bool(self.mesh.local_devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process owns all of the mesh's devices."""
        self._devices("is_fully_addressable")
        return self.mesh.is_fully_local

    @property
    def _is_concrete(self) -> bool:
        return isinstance(self.mesh, Mesh)

    def _devices(self, member: str) -> tuple[Device, ...]:
        if self.mesh.__class__ is not Mesh:
            raise ValueError(
                f"{member} is not implemented for `jax.sharding.AbstractMesh`, which has no devices; "
                "make the sharding with a Mesh."
            )
        return self.mesh.device_list

    def __getattr__(self, name: str) -> Any:
        # Only `device_list` of a sharding without devices ends up here: it is a slot that was never filled.
        if name == "device_list":
            return self._devices(name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

    def devices_indices_map(self, global_shape: Shape) -> dict[Device, Index]:
        """For each device, in mesh order, the part of an array of `global_shape` that it holds.

        Raises:
            ValueError: the spec is longer than the rank, or a dim does not divide evenly.
        """
        devices = self._devices("_device_assignment")
        shape = tuple(global_shape)
        tiling = self.tiling(len(shape))
        tilings.shard_shape(tiling, shape, self)
        return dict(zip(devices, tilings.devices_indices(tiling, shape), strict=True))

    def with_spec(self, spec: Any) -> NamedSharding:
        """The same mesh and memory with another spec (a `PartitionSpec` or a tuple of entries)."""
        spec = spec if isinstance(spec, PartitionSpec) or spec is None else PartitionSpec(*spec)
        return NamedSharding(self.mesh, spec, memory_kind=self._memory_kind)

    def update(self, mesh: Any = _UNSET, spec: Any = _UNSET, memory_kind: Any = _UNSET) -> NamedSharding:
        """A sharding with some parts replaced."""
        if spec is not _UNSET and not isinstance(spec, PartitionSpec):
            spec = PartitionSpec(*(spec if isinstance(spec, (tuple, list)) else (spec,)))
        return NamedSharding(
            self.mesh if mesh is _UNSET else mesh,
            self.spec if spec is _UNSET else spec,
            memory_kind=self._memory_kind if memory_kind is _UNSET else memory_kind,
        )

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """The same sharding in another memory."""
        return NamedSharding(self.mesh, self.spec, memory_kind=kind)

    def __repr__(self) -> str:
        kind = self.memory_kind
        memory = f", memory_kind={kind}" if kind is not None else ""
        return f"NamedSharding(mesh={self.mesh!s}, spec={self.spec}{memory})"

    def __reduce__(self) -> Any:
        return (_rebuild_named, (self.mesh, self.spec, self._memory_kind))


_named: weakref.WeakValueDictionary[Any, NamedSharding] = weakref.WeakValueDictionary()


def _rebuild_named(mesh: Any, spec: Any, memory_kind: str | None) -> NamedSharding:
    return NamedSharding(mesh, spec, memory_kind=memory_kind)


def _checked_abstract_kind(kind: str | None) -> str | None:
    if config.latest and kind is not None and kind not in config.dialect.memory_kinds:
        kinds = ", ".join(config.dialect.memory_kinds)
        raise ValueError(f"Got invalid memory kind: {kind}. Valid memory kinds are: {kinds}")
    return kind


def _as_spec(spec: Any) -> PartitionSpec:
    if isinstance(spec, PartitionSpec):
        return spec
    if spec is None:
        raise TypeError("Unexpected None passed as spec for NamedSharding. Did you mean P()?")
    if config.latest:
        raise AttributeError(
            f"NamedSharding takes a PartitionSpec, not {spec!r} of type {type(spec).__name__}. Did you mean P(...)?"
        )
    if isinstance(spec, tuple):
        return PartitionSpec(*spec)
    raise TypeError(
        f"NamedSharding takes a PartitionSpec, not {spec!r} of type {type(spec).__name__}. Did you mean P({spec!r})?"
    )


def _make_named(mesh: Mesh | AbstractMesh, spec: PartitionSpec, memory_kind: str | None) -> NamedSharding:
    position = mesh._position
    used: set[Any] = set()
    dims = []
    for entry in spec:
        axes = entry_axes(entry)
        for axis in axes:
            if axis not in position:
                raise ValueError(f"Resource axis: {axis} of {spec} is not found in mesh: {mesh.axis_names}.")
            if axis in used:
                raise DuplicateSpecError(
                    "A single NamedSharding spec can map every mesh axis to at most one positional dimension, but "
                    f"{spec} has duplicate entries for `{axis}`"
                )
            used.add(axis)
        dims.append(tuple([position[axis] for axis in axes]))
    if UNCONSTRAINED in spec and mesh.axis_types and AxisType.Auto not in mesh.axis_types:
        raise ValueError(
            f"{spec} cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. "
            f"Got mesh axis_types: {tuple.__repr__(mesh.axis_types)}"
        )
    for label, names in (("Unreduced", spec.unreduced), ("Reduced", spec.reduced)):
        for axis in names:
            if axis not in position:
                raise ValueError(
                    f"{label} axes {axis} is not found in mesh.axis_names={mesh.axis_names}. Got {spec}"
                )
            if mesh.axis_type(axis) is AxisType.Auto:
                raise ValueError(
                    f"{label} axes can only refer to mesh axes that are of type `Explicit`. "
                    f"Got {label.lower()} axes: {set(names)} and mesh: {mesh}"
                )
    self = object.__new__(NamedSharding)
    put = object.__setattr__
    put(self, "mesh", mesh)
    put(self, "spec", spec)
    put(self, "_memory_kind", memory_kind)
    put(self, "_dims", tuple(dims))
    put(self, "_tilings", {})
    if isinstance(mesh, Mesh):
        put(self, "device_list", mesh.device_list)
    return self


class SingleDeviceSharding(_Immutable):
    """The whole array on one device; one object per device and memory kind.

    Args:
        device: where.
        memory_kind: None for the default.

    Raises:
        TypeError: `device` is no `Device`.
        ValueError: there is no such memory.
    """

    __slots__ = ("_memory_kind", "device_list")

    def __new__(cls, device: Device, *, memory_kind: str | None = None) -> SingleDeviceSharding:
        """Find the sharding with these parts, or make it."""
        known = _single.get((device, None)) if memory_kind is None else None
        if known is not None:
            return known
        if not isinstance(device, Device):
            raise TypeError(f"SingleDeviceSharding takes a Device, as devices() lists them; got {device!r}.")
        kind = checked_memory_kind(memory_kind)
        known = _single.get((device, kind))
        if known is not None:
            return known
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
        known = _whole.get(ndim)
        if known is None:
            known = _whole.setdefault(ndim, tilings.replicated(1, ndim))
        return known

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
