"""From tilings back to shardings."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.sharding import Mesh, NamedSharding, P, PositionalSharding, SingleDeviceSharding, devices, make_mesh
from shardwise.sharding.derive import sharding_like, spec_of_tiling


@pytest.fixture
def mesh():
    return make_mesh((2, 4, 1), ("x", "y", "one"))


def test_named(mesh):
    sharding = NamedSharding(mesh, P("x", None, "one"))
    assert sharding_like(sharding, NamedSharding(mesh, P("x")).tiling(3)) is sharding
    other = Mesh(np.array(devices()).reshape(4, 2), ("a", "b"))
    for theirs, spec, ndim, wanted in [
        (mesh, P(("y", "x"), "one", None), 3, P(("y", "x"))),
        (mesh, P(), 0, P()),
        (other, P(("a", "b")), 1, P(("x", "y"))),
    ]:
        found = sharding_like(sharding, NamedSharding(theirs, spec).tiling(ndim))
        assert isinstance(found, NamedSharding) and found.spec == wanted
    odd = sharding_like(sharding, NamedSharding(other, P("b")).tiling(1))
    assert repr(odd) == "GSPMDSharding({devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}, memory_kind=unpinned_host)"
    assert odd.is_equivalent_to(NamedSharding(other, P("b")), 1)


def test_specs_over_finer_and_coarser_meshes(mesh):
    fine = Mesh(np.array(devices()).reshape(2, 2, 2), ("a", "b", "c"))
    assert spec_of_tiling(fine.axis_names, fine.axis_sizes, NamedSharding(mesh, P("y", "x")).tiling(2)) == P(
        ("b", "c"), "a"
    )
    assert spec_of_tiling(mesh.axis_names, mesh.axis_sizes, NamedSharding(fine, P(("b", "c"))).tiling(2)) == P("y")
    assert spec_of_tiling(mesh.axis_names, mesh.axis_sizes, NamedSharding(fine, P(("c", "b"))).tiling(2)) is None


def test_positional_and_single():
    grid = PositionalSharding(devices()).reshape(2, 4)
    tiling = grid.replicate(0, keepdims=False).tiling(1)
    assert tiling is not None
    summed = sharding_like(grid, tiling)
    assert repr(summed) == (
        "PositionalSharding([{CPU 0, 4} {CPU 1, 5} {CPU 2, 6} {CPU 3, 7}], memory_kind=unpinned_host, shape=(4,))"
    )
    assert summed == grid.replicate(0, keepdims=False)
    single = SingleDeviceSharding(devices()[1])
    assert sharding_like(single, single.tiling(3)) is single
