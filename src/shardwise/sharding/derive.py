"""From a tiling back to a sharding: a result gets the same kind of sharding as the operand that it follows."""

from __future__ import annotations

from typing import TypeGuard

from shardwise.sharding.gspmd import GSPMDSharding
from shardwise.sharding.hlo_sharding import HloSharding
from shardwise.sharding.mesh import Mesh
from shardwise.sharding.named import NamedSharding
from shardwise.sharding.positional import PositionalSharding
from shardwise.sharding.sharding import Sharding
from shardwise.sharding.single_device import SingleDeviceSharding
from shardwise.sharding.spec import PartitionSpec
from shardwise.sharding.tiling import Tiling, common_refinement


def sharding_like(like: Sharding, tiling: Tiling, *, reuse: bool = True) -> Sharding:
    """A sharding of the kind of `like`, over its devices, that places arrays as `tiling` does.

    The result is `like` itself if its tiling is the same, unless `reuse` is False (`like` belongs to an array of another
    rank). For a `NamedSharding` it is one on the same mesh, its spec without trailing Nones and axes of size one. If the
    mesh's axes cannot express the tiling, and for users' shardings, it is a `GSPMDSharding`.

    >>> sharding = jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x"))
    >>> jax.sharding.sharding_like(sharding, sharding.tiling(2), reuse=False).spec
    PartitionSpec('x',)
    """
    try:
        own = like.tiling(tiling.ndim)
    except ValueError:  # `like` is for another rank
        own = None
    if (reuse or not isinstance(like, NamedSharding)) and own is not None and own.same_placement(tiling):
        return like
    if isinstance(like, NamedSharding):
        spec = spec_of_tiling(like.mesh.axis_names, like.mesh.axis_sizes, tiling)
        if spec is not None:
            return like.update(spec=spec)
    if isinstance(like, SingleDeviceSharding):
        return like
    if isinstance(like, PositionalSharding):
        return PositionalSharding.from_tiling(like.device_list, tiling, memory_kind=like.memory_kind)
    return GSPMDSharding(like.device_list, HloSharding.from_tiling(tiling), memory_kind=like.memory_kind)


def spec_of_tiling(axis_names: tuple[object, ...], axis_sizes: tuple[int, ...], tiling: Tiling) -> PartitionSpec | None:
    """The spec over a mesh that places arrays as `tiling` does; None if the mesh's axes cannot express it.

    Trailing Nones and axes of size one are left out.
    """
    if tiling.mesh_shape == axis_sizes:
        dims = tiling.dims
    else:
        refinement = common_refinement(axis_sizes, tiling)
        if refinement is None:
            return None
        _, (mesh_parts, tiling_parts) = refinement
        whole_axis = {parts: axis for axis, parts in enumerate(mesh_parts) if parts}
        names = []
        for axes in tiling.dims:
            fine = tuple(part for axis in axes for part in tiling_parts[axis])
            dim = []
            while fine:
                matches = [parts for parts in whole_axis if fine[: len(parts)] == parts]
                if not matches:
                    return None
                dim.append(whole_axis[matches[0]])
                fine = fine[len(matches[0]) :]
            names.append(tuple(dim))
        dims = tuple(names)
    entries = [tuple(axis_names[axis] for axis in axes if axis_sizes[axis] > 1) for axes in dims]
    while entries and not entries[-1]:
        entries.pop()
    return PartitionSpec(*entries)


def is_abstract(sharding: object) -> TypeGuard[NamedSharding]:
    """Whether `sharding` is a sharding whose mesh names no devices."""
    return isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh)
