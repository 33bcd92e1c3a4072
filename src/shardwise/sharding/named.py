"""`NamedSharding`: a mesh, and for each dim of an array the mesh axes that split it."""

from __future__ import annotations

import weakref
from typing import Any

from shardwise.base import config
from shardwise.base.collections_given import given_items
from shardwise.base.errors import DuplicateSpecError, about
from shardwise.base.nearest import did_you_mean
from shardwise.base.shapes import Shape
from shardwise.sharding import tiling as tilings
from shardwise.sharding.backend import default_memory_kind, memory_kinds
from shardwise.sharding.base_mesh import AbstractMesh, AxisType
from shardwise.sharding.device import Device
from shardwise.sharding.mesh import Mesh
from shardwise.sharding.sharding import ImmutableSharding, checked_memory_kind, rank_text
from shardwise.sharding.spec import UNCONSTRAINED, PartitionSpec, entry_axes, in_dialect
from shardwise.sharding.tiling import Index, Tiling

_NOT_GIVEN: Any = object()


class NamedSharding(ImmutableSharding):
    """A mesh, and for each dim of an array the mesh axes that split it; interned.

    Args:
        mesh: a `Mesh`, or an `AbstractMesh` if devices do not matter.
        spec: a `PartitionSpec`; under the dialect 0.5 also the tuple of its entries.
        memory_kind: None for the default.

    Raises:
        TypeError: `spec` is None, or `mesh` is no mesh.
        ValueError: the spec names an axis that the mesh lacks, it has UNCONSTRAINED over a mesh without Auto axes,
            an unreduced axis is not Explicit, or there is no such memory.
        DuplicateSpecError: the spec uses an axis twice.
    """

    __slots__ = ("_dims", "_memory_kind", "_spec", "_tilings", "device_list", "mesh")  # pyright: ignore[reportIncompatibleMethodOverride]

    mesh: Mesh | AbstractMesh
    _spec: PartitionSpec

    def __new__(
        cls,
        mesh: Mesh | AbstractMesh,
        spec: Any,
        *,
        memory_kind: str | None = None,
    ) -> NamedSharding:
        """Find the sharding with these parts, or make it."""
        if not isinstance(spec, PartitionSpec):
            spec = _as_spec(spec)
        if mesh.__class__ is not Mesh:
            memory_kind = _checked_abstract(mesh, memory_kind)
        elif memory_kind is not None:
            memory_kind = checked_memory_kind(memory_kind)
        key = (mesh, spec.partitions, spec.unreduced, spec.reduced, memory_kind)
        known_sharding = _named_shardings.get(key)
        return (
            known_sharding
            if known_sharding is not None
            else _named_shardings.setdefault(key, _make_named(mesh, spec, memory_kind))
        )

    @property
    def spec(self) -> PartitionSpec:
        """For each dim the mesh axes that split it; the spec is of the current dialect."""
        spec = self._spec
        return in_dialect(spec)

    @property
    def memory_kind(self) -> str | None:
        """The memory that the parts live in; None over an `AbstractMesh` unless given."""
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
        known_tiling = self._tilings.get(ndim)
        if known_tiling is not None:
            return known_tiling
        if len(self._spec) > ndim:
            raise ValueError(rank_text(self, len(self.spec), ndim))
        dims = self._dims + ((),) * (ndim - len(self._dims))
        new_tiling = Tiling(self.mesh.axis_sizes, self.mesh.axis_names, dims)
        self._tilings[ndim] = new_tiling
        return new_tiling

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Raise ValueError if the spec is longer than the rank."""
        if len(self._spec) > len(aval_shape):
            raise ValueError(rank_text(self, len(self.spec), len(aval_shape)))

    @property
    def is_fully_replicated(self) -> bool:
        """Whether no axis of size above 1 is used or unreduced."""
        sizes = self.mesh.axis_sizes
        return not self._spec.unreduced and all(sizes[axis] == 1 for axes in self._dims for axis in axes)

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """The mesh axes that neither split a dim nor are unreduced."""
        used = {name for names in self.dims for name in names} | self._spec.unreduced
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
        return tuple(self._concrete_mesh("_addressable_device_assignment").local_devices)

    @property
    def addressable_devices(self) -> set[Device]:
        """The mesh's devices that this process owns."""
        return set(self._concrete_mesh("addressable_devices").local_devices)

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process owns any of the mesh's devices."""
        return bool(self._concrete_mesh("has_addressable_devices").local_devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process owns all of the mesh's devices."""
        return self._concrete_mesh("is_fully_addressable").is_fully_local

    @property
    def _is_concrete(self) -> bool:
        return isinstance(self.mesh, Mesh)

    def _concrete_mesh(self, member: str) -> Mesh:
        if not isinstance(self.mesh, Mesh):
            raise ValueError(
                f"{member} is not implemented for `jax.sharding.AbstractMesh`, which has no devices; "
                "make the sharding with a Mesh."
            )
        return self.mesh

    def _devices(self, member: str) -> tuple[Device, ...]:
        return self._concrete_mesh(member).device_list

    def __getattr__(self, name: str) -> Any:
        # Reached by `device_list` of a sharding without devices only: its slot was never filled.
        if name == "device_list":
            return self._devices(name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

    def devices_indices_map(self, global_shape: Shape) -> dict[Device, Index]:
        """For each device, in mesh order, the part of an array of `global_shape` that it holds.

        Raises:
            ValueError: the spec is longer than the rank, or a dim does not divide evenly.
        """
        devices = self._devices("_device_assignment")
        shape = given_items(global_shape, "devices_indices_map takes a tuple of ints")
        tiling = self.tiling(len(shape))
        tilings.shard_shape(tiling, shape, self)
        return dict(zip(devices, tilings.devices_indices(tiling, shape), strict=True))

    def with_spec(self, spec: Any) -> NamedSharding:
        """The same mesh and memory with another spec (a `PartitionSpec` or a tuple of entries)."""
        spec = spec if isinstance(spec, PartitionSpec) or spec is None else PartitionSpec(*spec)
        return NamedSharding(self.mesh, spec, memory_kind=self._memory_kind)

    def update(self, mesh: Any = _NOT_GIVEN, spec: Any = _NOT_GIVEN, memory_kind: Any = _NOT_GIVEN) -> NamedSharding:
        """A sharding with some parts replaced."""
        if spec is not _NOT_GIVEN and not isinstance(spec, PartitionSpec):
            spec = PartitionSpec(*(spec if isinstance(spec, (tuple, list)) else (spec,)))
        return NamedSharding(
            self.mesh if mesh is _NOT_GIVEN else mesh,
            self.spec if spec is _NOT_GIVEN else spec,
            memory_kind=self._memory_kind if memory_kind is _NOT_GIVEN else memory_kind,
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


_named_shardings: weakref.WeakValueDictionary[Any, NamedSharding] = weakref.WeakValueDictionary()


def _rebuild_named(mesh: Any, spec: Any, memory_kind: str | None) -> NamedSharding:
    return NamedSharding(mesh, spec, memory_kind=memory_kind)


def _checked_abstract(mesh: Any, kind: str | None) -> str | None:
    if not isinstance(mesh, AbstractMesh):
        raise TypeError(
            f"NamedSharding takes a Mesh or AbstractMesh first; got {mesh!r} of type {type(mesh).__name__}."
        )
    kinds = memory_kinds()
    if kind is not None and kind not in kinds and config.dialect.shardings.abstract_memory_kind_checked:
        raise ValueError(f"Got invalid memory kind: {kind}. Valid memory kinds are: {', '.join(kinds)}")
    return kind


def _as_spec(spec: Any) -> PartitionSpec:
    if spec is None:
        raise TypeError("Unexpected None passed as spec for NamedSharding. Did you mean P()?")
    if not config.dialect.shardings.spec_is_tuple:
        raise about(
            "dialect",
            AttributeError(
                f"NamedSharding takes a PartitionSpec, not {spec!r} of type {type(spec).__name__}. Did you mean P(...)? "
                f"{config.dialect.switch}"
            ),
        )
    if isinstance(spec, tuple):
        return PartitionSpec(*spec)
    raise TypeError(
        f"NamedSharding takes a PartitionSpec, not {spec!r} of type {type(spec).__name__}. Did you mean P({spec!r})?"
    )


def _make_named(mesh: Mesh | AbstractMesh, spec: PartitionSpec, memory_kind: str | None) -> NamedSharding:
    position = mesh.axis_positions
    used: set[Any] = set()
    dims = []
    for entry in spec.partitions:
        axes = entry_axes(entry)
        for axis in axes:
            if axis not in position:
                text = f"Resource axis: {axis} of {spec} is not found in mesh: {mesh.axis_names}."
                raise about("mesh-axis", ValueError(text + did_you_mean(axis, mesh.axis_names)))
            if axis in used:
                raise DuplicateSpecError(
                    "A single NamedSharding spec can map every mesh axis to at most one positional dimension, but "
                    f"{spec} has duplicate entries for `{axis}`"
                )
            used.add(axis)
        dims.append(tuple([position[axis] for axis in axes]))
    if UNCONSTRAINED in spec.partitions and mesh.axis_types and AxisType.Auto not in mesh.axis_types:
        raise ValueError(
            f"{spec} cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. "
            f"Got mesh axis_types: {tuple.__repr__(mesh.axis_types)}"
        )
    for label, names in (("Unreduced", spec.unreduced), ("Reduced", spec.reduced)):
        for axis in names:
            if axis not in position:
                raise ValueError(f"{label} axes {axis} is not found in mesh.axis_names={mesh.axis_names}. Got {spec}")
            if mesh.axis_type(axis) is AxisType.Auto:
                raise ValueError(
                    f"{label} axes can only refer to mesh axes that are of type `Explicit`. "
                    f"Got {label.lower()} axes: {set(names)} and mesh: {mesh}"
                )
    self = object.__new__(NamedSharding)
    put = object.__setattr__
    put(self, "mesh", mesh)
    put(self, "_spec", spec)
    put(self, "_memory_kind", memory_kind)
    put(self, "_dims", tuple(dims))
    put(self, "_tilings", {})
    if isinstance(mesh, Mesh):
        put(self, "device_list", mesh.device_list)
    return self
