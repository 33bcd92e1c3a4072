"""Axes of meshes on physical dims: as JAX's `create_device_mesh` puts them."""

import math
import random

import numpy as np
import pytest
from jax._src.mesh_utils import _create_device_mesh_for_nd_torus as jax_assign

from shardwise.planner.axes import Segment, assign, place_axes
from shardwise.planner.machines import find

TORI = [
    (4, 4, 4),
    (4, 4, 8),
    (8, 8, 8),
    (16, 16, 1),
    (2, 4, 1),
    (4, 4, 4, 2),
    (2, 2, 4),
    (2, 2, 1, 2),
    (16, 16, 24),
    (4, 8, 8, 2),
]


@pytest.mark.parametrize("torus", TORI)
def test_axes_take_the_dims_that_jax_gives_them(torus):
    count = math.prod(torus)
    divisors = [d for d in range(1, count + 1) if count % d == 0]
    meshes = [(count,), *((d, count // d) for d in divisors)]
    meshes += [(a, b, count // (a * b)) for a in divisors for b in divisors if count % (a * b) == 0]
    for mesh in random.Random(0).sample(meshes, min(25, len(meshes))):
        _, expected = jax_assign(np.arange(count).reshape(torus), mesh, allow_split_physical_axes=True)
        assert np.array_equal(np.array(assign(torus, mesh)).T, expected), mesh


def test_a_mesh_that_does_not_fill_the_torus_raises():
    with pytest.raises(ValueError, match="does not fill"):
        assign((4, 4), (8,))


def test_whole_dims_wrap_around_and_parts_do_not():
    placement = place_axes({"data": 8, "model": 16}, find("v5p-256"))  # 4 x 4 x 8
    assert placement.segments["model"] == (Segment(0, 0, 4, 1, True), Segment(0, 1, 4, 1, True))
    assert placement.segments["data"] == (Segment(0, 2, 8, 1, True),)
    split = place_axes({"data": 64, "model": 2}, find("v5p-256"))
    assert all(not s.wrap for s in split.segments["model"])
    assert any(s.stride == 2 for s in split.segments["data"])


def test_axes_that_share_a_dim_fill_it_together():
    placement = place_axes({"data": 8, "model": 2}, find("v6e-1x16"))
    assert placement.segments["model"] == (Segment(0, 1, 2, 1, False),)
    assert placement.segments["data"] == (Segment(0, 1, 8, 2, False),)
    assert placement.of(("data", "model")) == (Segment(0, 1, 16, 1, True),)


def test_slices_take_the_outermost_axis():
    placement = place_axes({"data": 2, "fsdp": 256}, find("2x-v6e-256"))
    assert [s.level for s in placement.segments["data"]] == [1]
    assert [s.level for s in placement.segments["fsdp"]] == [0, 0]
    whole = place_axes({"fsdp": 512}, find("2x-v6e-256"))
    assert [(s.level, s.size) for s in whole.segments["fsdp"]] == [(0, 16), (0, 16), (1, 2)]


def test_the_innermost_axes_stay_in_a_node():
    placement = place_axes({"data": 16, "model": 8}, find("h100-8x16"))
    assert [(s.level, s.size) for s in placement.segments["model"]] == [(0, 8)]
    assert [(s.level, s.size) for s in placement.segments["data"]] == [(1, 16)]
    across = place_axes({"data": 8, "model": 16}, find("h100-8x16"))
    assert [(s.level, s.size) for s in across.segments["model"]] == [(0, 8), (1, 2)]


def test_the_devices_of_a_chip_are_a_dim_of_their_own():
    placement = place_axes({"data": 64, "model": 2}, find("tpu7x-4x4x4"))
    assert [(s.level, s.size) for s in placement.segments["model"]] == [(0, 2)]


def test_few_devices_are_a_part_of_the_machine():
    placement = place_axes({"x": 8}, find("v5p-256"))
    assert math.prod(s.size for s in placement.segments["x"]) == 8


@pytest.mark.parametrize("sizes", [{"x": 256}, {"x": 3}, {"x": 2, "y": 128}])
def test_a_mesh_that_does_not_match_raises(sizes):
    with pytest.raises(ValueError, match="v5p-256 has 128"):
        place_axes(sizes, find("v5p-256"))
