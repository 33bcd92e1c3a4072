"""Shardings over an `AbstractMesh` in a call of `jit`: in arguments' types, in_shardings and out_shardings.

In: a call's shardings. Out: the same shardings over the devices that the call names by committed arguments, by shardings with devices,
or by the mesh in context. A call that names no devices can be traced, and lowered for a platform.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shardwise.engine.signature import Signature
from shardwise.sharding import Device, Mesh, NamedSharding, Sharding
from shardwise.sharding.backend import default_backend
from shardwise.sharding.derive import is_abstract


def named_devices(sigs: Iterable[Signature], shardings: Iterable[Any], mesh: Mesh | None) -> tuple[Device, ...] | None:
    """The devices of the first of these that names devices; None if none does."""
    for sig in sigs:
        if sig.committed:
            return sig.devices
    for sharding in shardings:
        if isinstance(sharding, Sharding) and not is_abstract(sharding):
            return sharding.device_list
    return None if mesh is None else mesh.device_list


def over_devices(sharding: Any, devices: Sequence[Device] | None) -> Any:
    """`sharding`, put over a mesh of `devices` if it is over an `AbstractMesh` and devices are known.

    Raises:
        ValueError: the mesh has another size.
    """
    if devices is None or not is_abstract(sharding):
        return sharding
    mesh = sharding.mesh
    if mesh.size != len(devices):
        raise ValueError(
            f"AbstractMesh size: {mesh.size} does not match the device assignment size: {len(devices)}. {sharding} is to lie on the "
            "devices that the other arguments, the mesh in context or device_assignment name; use as many."
        )
    grid = np.empty(len(devices), object)
    grid[:] = devices
    concrete_mesh = Mesh(grid.reshape(mesh.axis_sizes), mesh.axis_names, mesh.axis_types)
    return NamedSharding(concrete_mesh, sharding.spec, memory_kind=sharding._memory_kind)


def platform_devices(
    platforms: Any, named: tuple[Device, ...] | None, abstract: Sequence[NamedSharding]
) -> tuple[Device, ...] | None:
    """The devices to lower for, given `lowering_platforms`; None: the devices that the call names, or this machine's.

    Raises:
        ValueError: `lowering_platforms` is no sequence of names.
        NotImplementedError: several platforms, or another platform than that of the devices that the call names.
    """
    if isinstance(platforms, str) or not all(isinstance(p, str) for p in platforms):
        raise ValueError(f"lowering_platforms={platforms!r}: give a tuple with one name, such as ('tpu',).")
    if len(platforms) != 1:
        raise NotImplementedError(
            f"lowering_platforms={tuple(platforms)}: a program is lowered for one platform. Lower once for each, with (name,)."
        )
    platform = {"cuda": "gpu", "rocm": "gpu"}.get(platforms[0], platforms[0])
    if named is None and not abstract and platform == default_backend():
        return None
    if named is not None:
        if named[0].platform == platform:
            return None
        raise NotImplementedError(
            f"lowering_platforms={tuple(platforms)}: the call names devices of the platform {named[0].platform!r}, {named[0]} first. Give "
            "ShapeDtypeStructs over an AbstractMesh, or over devices of experimental.topologies, or leave it out."
        )
    from shardwise.planner import stand_in_devices  # start-up time: few programs are planned

    abstract_devices = [d for s in abstract if (d := s.mesh.abstract_mesh.abstract_device) is not None]
    kind = next((d.device_kind for d in abstract_devices if d.platform in (platform, *platforms)), platform)
    return stand_in_devices(platform, kind, abstract[0].mesh.size if abstract else 1)


def nowhere(sharding: Any, api: str) -> ValueError:
    """The error for a call that names no devices."""
    return ValueError(
        f"Passing lowering_platforms via jit(f).trace(*args).lower(lowering_platforms=...) is required when only AbstractMesh exists in a "
        f"jitted computation. {api} got {sharding}, and no argument or mesh in context names devices. Call under set_mesh(mesh), pass "
        "an argument that lies on the devices, or lower for a platform."
    )
