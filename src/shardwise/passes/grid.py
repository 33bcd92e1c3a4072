"""The device grid of one computation, and the mapping of its meshes to the grid's axes.

Comes in: the tilings and meshes of a program's arguments, constraints and shard_maps, all over one ordered device list.
Goes out: one grid on which each of their axes is a tuple of grid axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import field

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import cached_property
from shardwise.base.shapes import Axes, DimAxes, Ndarray
from shardwise.runtime.blocks import BlockForm, block_form, merged_axes
from shardwise.sharding import Crowding, Device
from shardwise.sharding.ownership import Ownership, local_part, owned_positions, ownership, spans_processes, takes_part
from shardwise.sharding.tiling import Tiling, common_refinement

MeshKey = tuple[tuple[str, ...], tuple[int, ...]]  # axis names and sizes


@dataclass(frozen=True)
class Grid:
    """Named axes over an ordered device list (row-major). Axes of a mesh along which there is one device are none of the grid: what a
    program does along them is no exchange.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    devices: tuple[Device, ...]
    meshes: dict[MeshKey, dict[str, Axes]] = field(default_factory=dict, compare=False)

    @cached_property
    def axis_sizes(self) -> dict[str, int]:
        """The size of each axis by name."""
        return dict(zip(self.names, self.sizes, strict=True))

    @property
    def mesh(self) -> MeshKey:
        """The axes that users know, with those of one device; the grid's own where meshes differ."""
        keys = list(self.meshes)
        return keys[0] if keys and all(sizes == keys[0][1] for _, sizes in keys) else (self.names, self.sizes)

    @cached_property
    def crowding(self) -> Crowding | None:
        """How much longer a byte of an all-to-all takes than one of a gather, by its axes; None: as long."""
        crowding = self.devices[0].client.crowding
        return None if crowding is None else crowding(tuple(self.axis_sizes.items()))

    def axes_of(self, names: tuple[str, ...], sizes: tuple[int, ...]) -> dict[str, Axes]:
        """The grid axes for each axis of a mesh of the computation."""
        return self.meshes[(names, sizes)]

    def dims_of(self, tiling: Tiling) -> DimAxes:
        """The layout that `tiling` describes, in grid axes."""
        if math.prod(tiling.mesh_shape) != len(self.devices) or not tiling.mesh_shape:
            return ((),) * tiling.ndim  # an array on one device in a larger computation is replicated
        named_dims = tuple(tuple(tiling.axis_names[a] for a in axes) for axes in tiling.dims)
        return self.rename(tiling.axis_names, tiling.mesh_shape, named_dims)

    def rename(self, names: tuple[str, ...], sizes: tuple[int, ...], dims: DimAxes) -> DimAxes:
        """A layout over a mesh's axes, translated to grid axes; axes of size 1 split nothing and are dropped."""
        if not self.names or math.prod(sizes) == 1:
            return ((),) * len(dims)  # the mesh of one device of a loaded program is on no grid of others
        parts = self.meshes[(names, sizes)]
        own = self.axis_sizes
        return tuple(tuple(g for a in axes for g in parts[a] if own[g] > 1) for axes in dims)

    def axes_at(self, tiling: Tiling | None, places: Sequence[int]) -> frozenset[str]:
        """The grid axes that make up the axes at these places of a mesh that the grid refines."""
        if tiling is None or not places:
            return frozenset()
        parts = merged_axes(tiling.mesh_shape, self.sizes)
        return frozenset(self.names[g] for i in places for g in parts[i])

    def places_of(self, tiling: Tiling | None, axes: frozenset[str]) -> tuple[int, ...]:
        """The places, in a mesh that the grid refines, of the axes that these grid axes are parts of."""
        if tiling is None:
            return ()
        parts = merged_axes(tiling.mesh_shape, self.sizes)
        return tuple(i for i, part in enumerate(parts) if any(self.names[g] in axes for g in part))

    @property
    def spans(self) -> bool:
        """Whether the devices belong to several processes of which this is one."""
        return spans_processes(self.devices) and takes_part(self.devices)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The processes that own the devices, ascending."""
        return tuple(sorted({d.process_index for d in self.devices}))

    @property
    def kept_whole(self) -> bool:
        """Whether the devices belong to several processes each of which computes for all of them."""
        return self.spans and ownership(self.devices, self.sizes).kept_whole

    @property
    def one_memory(self) -> bool:
        """Whether all parts of values lie in the memory of this process."""
        return self.processes is None and not self.devices[0].client.stands_for_all

    @property
    def one_device(self) -> Grid:
        """The grid of the first device alone, on which values are whole."""
        return make_grid(self.devices[:1], ())

    @property
    def processes(self) -> Ownership | None:
        """The ownership of the devices, if they belong to several processes each of which, this one included, computes for its own."""
        if not self.spans:
            return None
        owners = ownership(self.devices, self.sizes)
        return None if owners.kept_whole else owners

    def form(self, shape: tuple[int, ...], dims: DimAxes) -> BlockForm:
        """The memory form of this process's part of a value of this (global) shape and layout."""
        positions, owners = self.positions(dims), self.processes
        if owners is None:
            return block_form(shape, positions, self.sizes)
        parts = owned_positions(positions, self.sizes, owners.coordinates)
        local = tuple(
            n if p is None else n // math.prod(self.sizes[a] for a in axes) * len(p)
            for n, axes, p in zip(shape, positions, parts, strict=True)
        )
        return block_form(local, positions, owners.extents)

    def whole_form(self, shape: tuple[int, ...], dims: DimAxes) -> BlockForm | PartForm:
        """Like `form`, for a value that this process has whole: it is cut to this process's part first."""
        positions, owners = self.positions(dims), self.processes
        form = self.form(shape, dims)
        if owners is None or form.shape == shape:
            return form
        ways = tuple(math.prod(self.sizes[a] for a in axes) for axes in positions)
        return PartForm(form, ways, owned_positions(positions, self.sizes, owners.coordinates))

    def positions(self, dims: DimAxes) -> tuple[tuple[int, ...], ...]:
        """The layout in grid positions."""
        return tuple(tuple(self.names.index(a) for a in axes) for axes in dims)


@dataclass(frozen=True)
class PartForm:
    """The conversion of a whole value to the block of this process's part."""

    form: BlockForm
    ways: tuple[int, ...]
    parts: tuple[np.ndarray | None, ...]

    def from_dense(self, dense: Ndarray) -> Ndarray:
        """The block of this process's part of a whole dense value."""
        return self.form.from_dense(local_part(dense, self.ways, self.parts))


def make_grid(devices: Sequence[Device], meshes: Iterable[MeshKey]) -> Grid:
    """The coarsest grid that refines every mesh, with the axis names of the first mesh if that needs no refinement.

    Raises ValueError if two meshes over the same devices have no common refinement.
    """
    devices = tuple(devices)
    distinct = [m for m in dict.fromkeys(meshes) if math.prod(m[1]) == len(devices) and m[1]]
    if not distinct:
        names: tuple[str, ...] = () if len(devices) == 1 else ("_0",)
        sizes: tuple[int, ...] = () if len(devices) == 1 else (len(devices),)
        return Grid(names, sizes, devices, {(names, sizes): {n: (n,) for n in names}})
    first_names, first_sizes = distinct[0]
    if all(sizes == first_sizes for _, sizes in distinct):
        axes = [(n,) if size > 1 else () for n, size in zip(first_names, first_sizes, strict=True)]
        tables = {(names, sizes): dict(zip(names, axes, strict=True)) for names, sizes in distinct}
        return Grid(tuple(itertools.chain(*axes)), tuple(s for s in first_sizes if s > 1), devices, tables)
    refinement = common_refinement(*[sizes for _, sizes in distinct])
    if refinement is None:
        mesh_list = " and ".join(str(dict(zip(*m, strict=True))) for m in distinct)
        raise ValueError(
            f"one computation uses the meshes {mesh_list}, which cut the devices in incompatible ways. "
            "Reshard the arguments to one mesh with device_put first."
        )
    sizes, parts = refinement
    names = _refined_names(distinct[0], parts[0], len(sizes))
    tables = {
        mesh: {axis: tuple(names[i] for i in positions) for axis, positions in zip(mesh[0], part, strict=True)}
        for mesh, part in zip(distinct, parts, strict=True)
    }
    return Grid(names, tuple(sizes), devices, tables)


def _refined_names(mesh: MeshKey, parts: Sequence[Sequence[int]], count: int) -> tuple[str, ...]:
    names = [f"_{i}" for i in range(count)]
    for axis, positions in zip(mesh[0], parts, strict=True):
        for k, i in enumerate(positions):
            names[i] = axis if len(positions) == 1 else f"{axis}.{k}"
    return tuple(names)
