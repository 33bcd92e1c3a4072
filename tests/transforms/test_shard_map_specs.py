"""Specs of shard_map: empty trees, what may not stand in them, and the sharding that results wear."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.shard_map import shard_map as seed_shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P


@pytest.fixture
def mesh():
    return Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))


@pytest.mark.parametrize("shard_map", [sw.shard_map, seed_shard_map])
def test_none_is_an_empty_tree(mesh, shard_map):
    x = np.arange(8.0, dtype=np.float32)
    assert shard_map(lambda a: None, mesh=mesh, in_specs=P("x"), out_specs=None)(x) is None
    scaled = shard_map(lambda a, b: a * b, mesh=mesh, in_specs=(P("x"), None), out_specs=P("x"))(x, 2.0)
    np.testing.assert_array_equal(scaled, 2 * x)
    with pytest.raises(ValueError, match="out_specs"):
        shard_map(lambda a: a, mesh=mesh, in_specs=P("x"), out_specs=None)(x)
    with pytest.raises(ValueError, match="UNCONSTRAINED"):
        shard_map(lambda a: a, mesh=mesh, in_specs=P(P.UNCONSTRAINED), out_specs=P("x"))(x)


def test_an_abstract_mesh_needs_an_argument_that_has_devices(mesh):
    mapped = sw.shard_map(lambda a: a * 2, mesh=mesh.abstract_mesh, in_specs=P("x"), out_specs=P("x"))
    with pytest.raises(ValueError, match="AbstractMesh"):
        mapped(jnp.arange(8.0))
    split = NamedSharding(mesh, P("x"))
    assert mapped(sw.device_put(jnp.arange(8.0), split)).sharding == split


def test_results_lie_on_the_mesh_of_the_shard_map(mesh):
    other = NamedSharding(Mesh(np.array(sw.devices()[:4]), "z"), P("z"))
    mapped = sw.shard_map(lambda a: a, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    assert mapped(sw.device_put(jnp.arange(8.0), other)).sharding == NamedSharding(mesh, P("x"))


def test_unchecked_types_do_not_say_where_values_vary(mesh):
    seen = []
    body = lambda a: seen.append(sw.typeof(a).vma) or a  # noqa: E731
    for check in (True, False):
        sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=check)(jnp.arange(8.0))
    assert seen == [{"x"}, set()]
