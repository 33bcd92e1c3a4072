"""Index arithmetic: tilings, refinements, and grids found from index maps."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.base.errors import IndivisibleError
from shardwise.sharding.tiling import (
    Tiling,
    anonymous,
    common_refinement,
    coordinates,
    coordinates_of_indices,
    devices_indices,
    refine,
    replica_ids,
    replicated_tiling,
    shard_shape,
    tiling_of_coordinates,
)


@st.composite
def tilings(draw):
    mesh_shape = tuple(draw(st.lists(st.integers(1, 4), min_size=0, max_size=4)))
    axes = draw(st.permutations(range(len(mesh_shape))))
    used = axes[: draw(st.integers(0, len(axes)))]
    ndim = draw(st.integers(1, 3))
    dims = [()] * ndim
    for axis in used:
        dims[draw(st.integers(0, ndim - 1))] += (axis,)
    return anonymous(mesh_shape, tuple(dims))


def test_interned_and_immutable():
    tiling = Tiling((2, 4), ("x", "y"), ((1,), ()))
    assert Tiling((2, 4), ("x", "y"), ((1,), ())) is tiling
    assert pickle.loads(pickle.dumps(tiling)) is tiling and copy.deepcopy(tiling) is tiling
    assert (tiling.ndim, tiling.num_devices, tiling.ways, tiling.replicated_axes) == (2, 8, (4, 1), (0,))
    assert (
        not tiling.is_replicated and replicated_tiling(8, 2).is_replicated and replicated_tiling(1, 2).mesh_shape == ()
    )
    with pytest.raises(AttributeError):
        tiling.dims = ()
    for bad in (((0,), (0,)), ((2,),)):
        with pytest.raises(ValueError, match="at most one dim"):
            Tiling((2, 4), ("x", "y"), bad)
    with pytest.raises(ValueError, match="as many names"):
        Tiling((2, 4), ("x",), ())


def test_major_name_first():
    tiling = Tiling((2, 4), ("x", "y"), ((1, 0),))
    starts = [index[0].start for index in devices_indices(tiling, (8,))]
    assert starts == [0, 2, 4, 6, 1, 3, 5, 7]  # as P(('y', 'x')) gives in JAX


def test_shard_shape_and_its_error():
    tiling = Tiling((2, 4), ("x", "y"), ((0, 1), ()))
    assert shard_shape(tiling, (16, 3)) == (2, 3) and shard_shape(tiling, (0, 3)) == (0, 3)
    with pytest.raises(IndivisibleError) as caught:
        shard_shape(tiling, (12, 3), "the argument x")
    assert "the argument x implies that array axis 0 is partitioned 8 times" in str(caught.value)
    assert "the dimension size is 12 (full shape: (12, 3)" in str(caught.value)
    assert "per-dimension tiling factors: [8, 1]" in str(caught.value) and "works is 16" in str(caught.value)
    with pytest.raises(ValueError, match="rank"):
        shard_shape(tiling, (16,))


@given(tilings())
def test_parts_cover_the_array_evenly(tiling):
    shape = tuple(2 * ways for ways in tiling.ways)
    count = np.zeros(shape, int)
    indices = devices_indices(tiling, shape)
    for index in indices:
        count[index] += 1
        assert count[index].shape == shard_shape(tiling, shape)
    assert (count == tiling.num_devices // math.prod(tiling.ways)).all()
    seen = {}
    for index, replica in zip(indices, replica_ids(tiling, shape), strict=True):
        key = str(index)
        assert seen.get(key, 0) == replica
        seen[key] = replica + 1


def test_parts_of_nothing_are_all_the_same():
    assert replica_ids(Tiling((2, 2), ("x", "y"), ((0,),)), (0,)) == (0, 1, 2, 3)
    assert replica_ids(Tiling((2, 2), ("x", "y"), ((0,),))) == (0, 1, 0, 1)


@given(tilings())
def test_a_grid_is_found_again(tiling):
    found = tiling_of_coordinates(coordinates(tiling))
    assert found is not None and found.same_placement(tiling)
    shape = tuple(3 * ways for ways in tiling.ways)
    assert (coordinates_of_indices(devices_indices(tiling, shape), shape) == coordinates(tiling)).all()


def test_no_grid():
    assert tiling_of_coordinates(np.array([[0], [2], [1], [3], [4], [5], [6], [7]])) is None
    assert tiling_of_coordinates(np.array([[1], [0]])) is None
    assert tiling_of_coordinates(np.array([[0, 0], [1, 1]])) is None
    assert tiling_of_coordinates(np.array([[0], [1], [0]])) is None
    assert coordinates_of_indices([(slice(0, 2),), (slice(1, 3),)], (4,)) is None  # overlapping
    assert coordinates_of_indices([(slice(0, 1),), (slice(1, 4),)], (4,)) is None  # uneven
    assert coordinates_of_indices([(slice(0, 2),), (slice(0, 2),)], (4,)) is None  # a part is missing
    assert coordinates_of_indices([(slice(0, 4, 2),)], (4,)) is None
    coordinates = coordinates_of_indices([0, 1], (2,))
    assert coordinates is not None and coordinates.tolist() == [[0], [1]]


@given(tilings(), tilings())
@settings(max_examples=200)
def test_layout_decides_placement(a, b):
    same = a.num_devices == b.num_devices and a.ndim == b.ndim and (coordinates(a) == coordinates(b)).all()
    assert a.same_placement(b) == bool(same)


def test_common_refinement():
    assert common_refinement((2, 4), (4, 2)) == ((2, 2, 2), (((0,), (1, 2)), ((0, 1), (2,))))
    assert common_refinement((1, 8), (8,)) == ((8,), (((), (0,)), ((0,),)))
    assert common_refinement((8,), (2, 4), (2, 2, 2)) == ((2, 2, 2), (((0, 1, 2),), ((0,), (1, 2)), ((0,), (1,), (2,))))
    assert common_refinement((2, 3), (3, 2)) is None
    assert common_refinement((2,), (3,)) is None
    assert common_refinement((), (1,)) == ((), ((), ((),)))


@given(tilings())
def test_refining_keeps_the_placement(tiling):
    flat = (tiling.num_devices,)
    refined = common_refinement(tiling, flat)
    assert refined is not None
    mesh_shape, (parts, _) = refined
    fine = refine(tiling, mesh_shape, parts, tuple(f"a{i}" for i in range(len(mesh_shape))))
    assert fine.same_placement(tiling)
