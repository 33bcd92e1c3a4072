"""Arrays of devices for meshes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import shardwise.plan
from shardwise.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh
from shardwise.sharding import devices


@dataclass(frozen=True)
class FakeDevice:
    id: int
    process_index: int


def ids(mesh: np.ndarray) -> list[Any]:
    return np.vectorize(lambda device: device.id)(mesh).tolist()


def test_row_major():
    assert ids(create_device_mesh((2, 2), devices()[4:])) == [[4, 5], [6, 7]]
    assert create_device_mesh((2, 4)).shape == (2, 4)
    assert create_device_mesh([8], contiguous_submeshes=True).tolist() == devices()


def test_as_jax():
    jax = pytest.importorskip("jax")
    from jax.experimental import mesh_utils

    assert ids(create_device_mesh((4, 1, 2))) == ids(mesh_utils.create_device_mesh((4, 1, 2), jax.devices("cpu")[:8]))


def test_wrong_number():
    with pytest.raises(ValueError, match=r"Number of devices 8 must equal the product of mesh_shape \(2, 2\).*\[:4\]"):
        create_device_mesh((2, 2))


def test_processes_form_blocks():
    fakes: list[Any] = [FakeDevice(16 * process + i, process) for process in (1, 0) for i in range(4)]
    mesh = create_hybrid_device_mesh((2, 2), (1, 2), fakes, process_is_granule=True)
    assert ids(mesh) == [[0, 1, 16, 17], [2, 3, 18, 19]]
    mesh = create_hybrid_device_mesh((2, 2), (2, 1), fakes, should_sort_granules_by_key=False)
    assert ids(mesh) == [[16, 17], [18, 19], [0, 1], [2, 3]]


def test_hybrid_errors():
    with pytest.raises(ValueError, match="their lengths differ"):
        create_hybrid_device_mesh((2, 4), (1,))
    with pytest.raises(ValueError, match=r"Number of processes 1 must equal the product of dcn_mesh_shape \(2, 1\)"):
        create_hybrid_device_mesh((2, 4), (2, 1))
    with pytest.raises(ValueError, match="Number of devices 8"):
        create_hybrid_device_mesh((2, 2), (1, 1))


def test_slices_of_a_planned_machine_form_blocks():
    with shardwise.plan.on("2x-v5e-16"):
        mesh = create_hybrid_device_mesh((4, 4), (2, 1))
        assert mesh.shape == (8, 4)
        assert [[d.slice_index for d in row] for row in mesh] == [[0] * 4] * 4 + [[1] * 4] * 4
        with pytest.raises(ValueError, match="Number of slices 2 must equal the product of dcn_mesh_shape"):
            create_hybrid_device_mesh((4, 2), (4, 1))
        assert create_hybrid_device_mesh((4, 1), (1, 8), process_is_granule=True).shape == (4, 8)
