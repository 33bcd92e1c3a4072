"""`Signature`: the properties of an argument that a compiled call depends on, interned so that a cache look-up compares identities."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.caches import InternTable
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import ShapedArray
from shardwise.runtime.blocks import BlockForm, block_form
from shardwise.sharding import Device, NamedSharding, Sharding
from shardwise.sharding.ownership import local_part, owned_positions, ownership, spans_processes, takes_part
from shardwise.sharding.tiling import Tiling


class Signature:
    """An argument's type, sharding and commitment, on which a compiled call depends. Interned: compared by identity."""

    __slots__ = (
        "absent",
        "aval",
        "committed",
        "devices",
        "form",
        "kept_whole",
        "order",
        "positions",
        "sharding",
        "spans",
        "tiling",
        "varies",
    )

    aval: ShapedArray
    sharding: Sharding
    committed: bool
    tiling: Tiling | None  # None: no device grid describes the sharding
    form: BlockForm
    devices: tuple[Device, ...]
    spans: bool  # other processes own some of the devices: `form` and the data describe this process's part
    absent: bool  # this process owns none of the devices: it knows the array, and holds no part of it
    kept_whole: bool  # `spans`, and each process that owns some of the devices holds all parts
    positions: tuple[Ndarray | None, ...]  # per dim, the parts that this process holds; None: all of them
    order: tuple[int, ...] | None  # dims from the slowest to the fastest varying in memory; None: the default
    # Axes of the tiling's mesh that split no dim, and along which copies may differ all the same.
    varies: tuple[int, ...]

    def __init__(
        self,
        aval: ShapedArray,
        sharding: Sharding,
        committed: bool,
        order: tuple[int, ...] | None = None,
        varies: tuple[int, ...] = (),
    ) -> None:
        self.aval = aval
        self.order = order
        self.varies = varies
        self.sharding = sharding
        self.committed = committed
        self.devices = sharding.device_list
        self.tiling = sharding.tiling(aval.ndim)
        self.spans = spans_processes(self.devices)
        self.kept_whole = False
        self.absent = self.spans and not takes_part(self.devices)
        if self.absent:
            self.form = block_form((0,) * aval.ndim, ((),) * aval.ndim, ())
            self.positions = (None,) * aval.ndim
        elif self.spans:
            self._own_part()
        elif self.tiling is None:
            self.form = block_form(aval.shape, ((),) * aval.ndim, ())
        else:
            self.form = _form(aval.shape, self.tiling, self.tiling.mesh_shape)

    def _own_part(self) -> None:
        tiling, shape = self.tiling, self.aval.shape
        if tiling is None:
            raise NotImplementedError(
                f"{self.sharding} spans several processes, but no device grid describes it. Use a NamedSharding over a mesh."
            )
        own_parts = ownership(self.devices, tiling.mesh_shape)
        self.kept_whole = own_parts.kept_whole
        self.positions = owned_positions(tiling.dims, tiling.mesh_shape, own_parts.coordinates)
        local = tuple(
            n if p is None else n // ways * len(p)
            for n, ways, p in zip(shape, tiling.ways, self.positions, strict=True)
        )
        self.form = _form(local, tiling, own_parts.extents)

    def part_of(self, dense: Ndarray) -> Ndarray:
        """The part of a whole value that this process holds."""
        if not self.spans:
            return dense
        if self.absent:
            return np.empty(self.form.shape, dense.dtype)
        assert self.tiling is not None
        return local_part(dense, self.tiling.ways, self.positions)


def _form(shape: Shape, tiling: Tiling, extents: Shape) -> BlockForm:
    """The form of a process's part; `extents`: along each axis. Axes of one device are none of it, as they are none of grids."""
    axes = places_in_block(tiling)
    dims = tuple([tuple([axes[a] for a in split if a in axes]) for split in tiling.dims])
    return block_form(shape, dims, tuple([extents[a] for a in axes]))


_signatures: InternTable[tuple[Any, ...], Signature] = InternTable()


def signature(
    aval: ShapedArray,
    sharding: Sharding,
    committed: bool,
    order: tuple[int, ...] | None = None,
    varies: tuple[int, ...] = (),
) -> Signature:
    """The interned Signature of arrays of this type and sharding, of this order in memory, whose copies differ along these axes."""
    key: tuple[Any, ...] = (aval, sharding, committed)
    if order is not None or varies:
        key = (*key, order, varies)
    known_value = _signatures.get(key)
    if known_value is None:
        known_value = _signatures.keep(key, Signature(aval, sharding, committed, order, varies))
    return known_value


def places_in_block(tiling: Tiling) -> dict[int, int]:
    """Where the leading dims of blocks have the axes of a mesh; those of one device have none."""
    return {a: i for i, a in enumerate(a for a, n in enumerate(tiling.mesh_shape) if n != 1)}


def free_axes(tiling: Tiling | None) -> tuple[int, ...]:
    """The axes of a mesh that split no dim: devices along them hold the same part."""
    if tiling is None:
        return ()
    used = {a for axes in tiling.dims for a in axes}
    return tuple(a for a, n in enumerate(tiling.mesh_shape) if n != 1 and a not in used)


def order_named(order: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The `Signature.order` of arrays whose dims are in this order: None for the default, which is row-major."""
    return None if order is None or order == tuple(range(len(order))) else order


def array_type(shape: tuple[int, ...], dtype: Any, weak_type: bool, sharding: Sharding) -> ShapedArray:
    """The type of a concrete array: its explicit axes enter the type, automatic ones do not."""
    if isinstance(sharding, NamedSharding) and sharding.mesh.explicit_axes:
        mesh = sharding.mesh.abstract_mesh
        explicit = set(mesh.explicit_axes)
        spec = []
        for entry in sharding.spec.partitions:
            axes = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
            spec.append(tuple(a for a in axes if a in explicit))
        spec.extend(() for _ in range(len(shape) - len(spec)))
        unreduced_axes = getattr(sharding.spec, "unreduced", frozenset())
        reduced_axes = getattr(sharding.spec, "reduced", frozenset())
        return ShapedArray(
            shape,
            dtype,
            weak_type,
            mesh=mesh,
            spec=tuple(spec),
            unreduced=frozenset(unreduced_axes),
            reduced=frozenset(reduced_axes),
        )
    return ShapedArray(shape, dtype, weak_type)
