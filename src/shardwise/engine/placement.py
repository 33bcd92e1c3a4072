"""The shardings of results, and the errors for operands on different devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.errors import about
from shardwise.base.shapes import DimAxes
from shardwise.engine.signature import Signature
from shardwise.ir import ShapedArray
from shardwise.passes import Grid
from shardwise.sharding import Device, GSPMDSharding, HloSharding, Mesh, NamedSharding, PartitionSpec, Sharding, Tiling
from shardwise.sharding.derive import sharding_like, spec_of_tiling


def incompatible_devices(
    name: str, first: str, first_devices: Sequence[Device], second: str, second_devices: Sequence[Device]
) -> ValueError:
    """The error for two subjects of one computation that are committed to different devices."""
    of_argument = config.dialect.jit.argument_devices_text

    def side(subject: str, devices: Sequence[Device]) -> str:
        ids = [d.id for d in devices]
        id_text = ids if len(ids) <= 20 else f"[{', '.join(map(str, ids[:20]))}, ...]"
        joint = of_argument if subject.startswith("argument") else "with device ids"
        return f"{subject} {joint} {id_text} on platform {devices[0].platform.upper()}"

    return ValueError(
        f"Received incompatible devices for jitted computation. Got {side(first, first_devices)} and "
        f"{side(second, second_devices)}. All committed operands of {name} must live on one ordered list of devices: "
        "move one with device_put."
    )


def derive_sharding(
    grid: Grid,
    dims: DimAxes,
    aval: ShapedArray,
    in_sigs: Sequence[Signature],
    named: Sequence[Any],
    default_mesh: Mesh | None,
) -> Sharding:
    """The sharding object of a result with layout `dims`: of the same kind as that of the first operand on the grid."""
    tiling = Tiling(grid.sizes, grid.names, grid.positions(dims))
    if aval.mesh is not None:
        return _explicit(grid, tiling, aval, in_sigs, named, default_mesh)
    in_mesh = default_mesh is not None and default_mesh.device_list == grid.devices
    for i, sig in enumerate(in_sigs):
        on_grid = sig.devices is grid.devices or sig.devices == grid.devices
        if on_grid and sig.tiling is not None and (sig.committed or not in_mesh):
            # Axes of size 1 split nothing: a result's spec has those of the very first operand, as in JAX, or none.
            return sharding_like(sig.sharding, tiling, reuse=i == 0 and sig.aval.ndim == aval.ndim)
    for item in named:
        if isinstance(item, Sharding) and item.device_list == grid.devices:
            return sharding_like(item, tiling, reuse=False)
        if isinstance(item, Mesh):
            return sharding_like(NamedSharding(item, PartitionSpec()), tiling)
    if default_mesh is None or not in_mesh:  # only shardings given by index maps that form no grid name the devices
        return GSPMDSharding(grid.devices, HloSharding.from_tiling(tiling))
    return sharding_like(NamedSharding(default_mesh, PartitionSpec()), tiling)


def on_mesh(mesh: Mesh, grid: Grid, dims: DimAxes) -> Sharding | None:
    """The sharding by a spec of this mesh of a result with layout `dims`; None if no spec of it says that layout."""
    spec = spec_of_tiling(mesh.axis_names, mesh.axis_sizes, Tiling(grid.sizes, grid.names, grid.positions(dims)))
    return None if spec is None else NamedSharding(mesh, spec)


def _explicit(
    grid: Grid,
    tiling: Tiling,
    aval: ShapedArray,
    in_sigs: Sequence[Signature],
    named: Sequence[Any],
    default_mesh: Mesh | None,
) -> Sharding:
    """The sharding of a result on an explicit mesh: the spec is padded to the rank and agrees with the type."""
    explicit_mesh = aval.mesh
    assert explicit_mesh is not None
    candidates = [s.sharding for s in in_sigs] + list(named) + [default_mesh]
    for item in candidates:
        mesh = item if isinstance(item, Mesh) else getattr(item, "mesh", None)
        if isinstance(mesh, Mesh) and mesh.device_list == grid.devices and mesh.abstract_mesh == explicit_mesh:
            break
    else:  # the function changed names or types of axes in its context
        device_grid = np.array(grid.devices, dtype=object).reshape(explicit_mesh.axis_sizes)
        mesh = Mesh(device_grid, explicit_mesh.axis_names, axis_types=explicit_mesh.axis_types)
    spec = spec_of_tiling(mesh.axis_names, mesh.axis_sizes, tiling)
    entries: list[Any] = list(spec.partitions) if spec is not None else []
    entries += [None] * (aval.ndim - len(entries))
    for d, axes in enumerate(aval.spec):  # the type names axes of size 1 although they split nothing
        entry = entries[d]
        have = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
        if not set(axes) <= set(have):
            entries[d] = axes
    marks: dict[str, Any] = {}
    if aval.unreduced:
        marks["unreduced"] = set(aval.unreduced)
    if aval.reduced:
        marks["reduced"] = set(aval.reduced)
    return NamedSharding(mesh, PartitionSpec(*entries, **marks))


def check_fits(sharding: Sharding, aval: ShapedArray, what: str, path: str = "") -> None:
    """Raise ValueError if `aval` cannot have this sharding: its rank is too small, or a dim does not divide evenly.

    `what` is "pjit arguments" or "pjit outputs"; `path` names the argument or output.
    """
    full_name = f"{what} with pytree key path {path}" if path else what
    try:
        sharding.check_compatible_aval(aval.shape)
    except ValueError as error:
        raise ValueError(
            f"One of {full_name} is incompatible with its sharding annotation {sharding}: {error}"
        ) from error
    tiling = sharding.tiling(aval.ndim)
    if tiling is None:
        return
    for dim, (size, ways) in enumerate(zip(aval.shape, tiling.ways, strict=True)):
        if size % ways:
            raise about("uneven-dim", _indivisible(sharding, aval, what, path, dim, ways))


def _indivisible(sharding: Sharding, aval: ShapedArray, what: str, path: str, dim: int, ways: int) -> ValueError:
    size = aval.shape[dim]
    sharding_text = str(sharding)
    if isinstance(sharding, NamedSharding):  # as the migration guide prints it
        sharding_text = f"NamedSharding(mesh={dict(sharding.mesh.shape)}, partition_spec={sharding.spec})"
    text = (
        f"One of {what} was given the sharding of {sharding_text}, which implies that the global size of its dimension {dim} should be "
        f"divisible by {ways}, but it is equal to {size}"
    )
    error = config.dialect.jit.indivisible_error
    if not config.dialect.jit.indivisible_advice:
        return error(text)
    good = -(-size // ways) * ways
    return error(
        f"{text} ({path + ' has ' if path else ''}full shape {aval.shape}): array axis {dim} is partitioned {ways} times. The next "
        f"size of dimension {dim} that works is {good}"
    )
