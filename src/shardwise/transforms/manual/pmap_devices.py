"""The devices that a pmap runs on."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.sharding import AxisType, Device, Mesh, devices, local_devices, process_count
from shardwise.sharding.ownership import spans_processes


def mapped_mesh(name: Any, chosen: tuple[Device, ...] | None, size: int) -> Mesh:
    """The mesh of one axis that `size` slices are mapped over, of the devices that the user chose, or of the first local ones."""
    if chosen is None and process_count() > 1:
        chosen = tuple(devices())
    if chosen is not None and spans_processes(chosen):
        return _mesh_of_processes(name, chosen, size)
    if chosen is not None and size != len(chosen):
        raise ValueError(
            "Leading axis size of input to pmapped function must equal the number of local devices passed to pmap. "
            f"Got axis_size={size}, num_local_devices={len(chosen)}.\n(Local devices available to pmap: "
            f"{', '.join(map(str, chosen))})"
        )
    if chosen is None:
        chosen = tuple(local_devices())
        check_count(size, len(chosen))
    return Mesh(np.array(chosen[:size], object), (name,), axis_types=(AxisType.Auto,))


def _mesh_of_processes(name: Any, chosen: tuple[Device, ...], size: int) -> Mesh:
    """The mesh of all processes, which map together: each passes, and gets back, a row for each of its own devices."""
    own = sum(d.is_local for d in chosen)
    if size != own or not own:
        raise ValueError(
            f"pmap over the {len(chosen)} devices of several processes takes from each process a row per device of its own: this "
            f"process has {own} of them, but the mapped axes have size {size}. To map over the devices of this process alone pass "
            "devices=jax.local_devices()."
        )
    return Mesh(np.array(chosen, object), (name,), axis_types=(AxisType.Auto,))


def check_count(wanted: int, available: int) -> None:
    """Raise unless there is a device for every slice."""
    if wanted > available:
        raise ValueError(
            f"compiling computation that requires {wanted} logical devices, but only {available} devices are available: the mapped "
            f"axes have size {wanted}. Set jax_num_cpu_devices to {wanted}, or map several rows per device with shard_map."
        )


def check_backend(backend: str | None) -> None:
    """RuntimeError for a backend that does not exist."""
    if backend is not None:
        devices(backend)
