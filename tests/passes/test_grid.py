"""One grid refines all meshes of a computation, and says where their axes went."""

from __future__ import annotations

import pytest

import shardwise as sw
from shardwise.passes.grid import make_grid
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P


def test_without_a_mesh_devices_lie_in_a_row():
    assert make_grid(sw.devices(), []).sizes == (8,)
    alone = make_grid(sw.devices()[:1], [])
    assert (alone.names, alone.sizes) == ((), ())


def test_one_mesh_keeps_its_names():
    grid = make_grid(sw.devices(), [(("x", "y"), (2, 4))])
    assert (grid.names, grid.sizes) == (("x", "y"), (2, 4))


def test_axes_of_one_device_are_none_of_the_grid():
    grid = make_grid(sw.devices(), [(("x", "y", "z"), (1, 8, 1))])
    assert (grid.names, grid.sizes) == (("y",), (8,))
    assert grid.axes_of(("x", "y", "z"), (1, 8, 1)) == {"x": (), "y": ("y",), "z": ()}
    assert grid.mesh == (("x", "y", "z"), (1, 8, 1))
    alone = make_grid(sw.devices()[:1], [(("x",), (1,))])
    assert (alone.names, alone.mesh) == ((), (("x",), (1,)))


def test_meshes_of_equal_sizes_share_axes():
    grid = make_grid(sw.devices(), [(("x", "y"), (2, 4)), (("a", "b"), (2, 4))])
    assert grid.axes_of(("a", "b"), (2, 4)) == {"a": ("x",), "b": ("y",)}


def test_a_refinement_cuts_axes():
    grid = make_grid(sw.devices(), [(("x", "y"), (2, 4)), (("a", "b"), (4, 2))])
    assert grid.sizes == (2, 2, 2)
    assert grid.axes_of(("x", "y"), (2, 4)) == {"x": ("x",), "y": ("y.0", "y.1")}
    assert grid.axes_of(("a", "b"), (4, 2)) == {"a": ("x", "y.0"), "b": ("y.1",)}


def test_no_common_refinement():
    six = sw.devices()[:6]
    with pytest.raises(ValueError, match="cut the devices in incompatible ways"):
        make_grid(six, [(("x", "y"), (2, 3)), (("a", "b"), (3, 2))])


def test_layouts_in_grid_axes():
    mesh = Mesh(sw.devices(), ("i",))
    grid = make_grid(sw.devices(), [(("x", "y"), (2, 4)), (("i",), (8,))])
    tiling = NamedSharding(mesh, P(None, "i")).tiling(2)
    assert grid.dims_of(tiling) == ((), ("x", "y"))
    assert grid.positions(((), ("x", "y"))) == ((), (0, 1))


def test_axes_of_size_one_split_nothing():
    grid = make_grid(sw.devices()[:4], [(("x", "one"), (4, 1))])
    assert grid.rename(("x", "one"), (4, 1), (("one",), ("x", "one"))) == ((), ("x",))
