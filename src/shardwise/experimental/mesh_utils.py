"""`shardwise.experimental.mesh_utils`: arrays of devices to make meshes from.

CPU devices of one process are equally near to each other, so that their order is all there is to choose; between
processes the hybrid mesh keeps the axes that communicate most inside a process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.listing import listing as _listing
from shardwise.sharding import Device
from shardwise.sharding import devices as all_devices
from shardwise.sharding.ownership import arrange_devices

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Devices in an array of `mesh_shape`, row-major or with a block for each process, to give to `Mesh`.

    Args:
        mesh_shape: the sizes of the mesh axes.
        devices: the devices to use; all of them if None.
        contiguous_submeshes: that every process holds a block of the mesh, which row-major order does as far as the
            shape allows it.
        allow_split_physical_axes: about the wiring of TPUs; CPU devices have no physical axes to split.

    Raises:
        ValueError: the shape does not take exactly all the devices.

    >>> jax.experimental.mesh_utils.create_device_mesh((2, 4)).shape
    (2, 4)
    """
    chosen = list(all_devices() if devices is None else devices)
    shape = tuple(mesh_shape)
    if math.prod(shape) != len(chosen):
        raise ValueError(
            f"Number of devices {len(chosen)} must equal the product of mesh_shape {shape}, which is "
            f"{math.prod(shape)}. Pass so many, as devices=jax.devices()[:{math.prod(shape)}], or use jax.make_mesh."
        )
    return arrange_devices(chosen, shape)


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Devices of several groups in an array whose axes are, dim by dim, groups times devices of a group.

    Args:
        mesh_shape: the sizes, per axis, within one group (where communication is cheap).
        dcn_mesh_shape: the sizes, per axis, across groups (where communication is expensive); of the same length.
        devices: the devices to use; all of them if None.
        process_is_granule: whether devices are grouped by process rather than by TPU slice. Devices of this machine are in no slices, and
            are grouped by process either way; those of a planned one are.
        should_sort_granules_by_key: order the groups by their number rather than by first appearance.
        allow_split_physical_axes: as in `create_device_mesh`.

    Returns:
        An array of shape `mesh_shape * dcn_mesh_shape`, in which the devices of a group form a block.

    Raises:
        ValueError: the shapes differ in length, or do not take exactly all devices of all groups.

    >>> jax.experimental.mesh_utils.create_hybrid_device_mesh((8,), (1,), process_is_granule=True).shape
    (8,)
    """
    inner, outer = tuple(mesh_shape), tuple(dcn_mesh_shape)
    if len(inner) != len(outer):
        raise ValueError(
            f"mesh_shape {inner} and dcn_mesh_shape {outer} give the sizes of the same axes, but their lengths differ; "
            "put a 1 where an axis has no part."
        )
    groups: dict[int, list[Device]] = {}
    chosen = list(all_devices() if devices is None else devices)
    of_slices = not process_is_granule and all(hasattr(device, "slice_index") for device in chosen)
    attribute = "slice_index" if of_slices else "process_index"
    for device in chosen:
        groups.setdefault(getattr(device, attribute), []).append(device)
    keys = sorted(groups) if should_sort_granules_by_key else list(groups)
    if math.prod(outer) != len(keys):
        raise ValueError(
            f"Number of {'slices' if of_slices else 'processes'} {len(keys)} must equal the product of dcn_mesh_shape {outer}, "
            f"which is {math.prod(outer)}."
        )
    blocks = [create_device_mesh(inner, groups[key]) for key in keys]
    # From (outer sizes, inner sizes) to one dim per axis, the part across processes being the major one.
    rank = len(inner)
    device_blocks = np.concatenate([block.ravel() for block in blocks]).reshape(*outer, *inner)
    paired_blocks = device_blocks.transpose([dim for i in range(rank) for dim in (i, rank + i)])
    return paired_blocks.reshape([o * i for o, i in zip(outer, inner, strict=True)])


__dir__ = _listing(__name__)
