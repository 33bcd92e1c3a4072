"""with_sharding_constraint at once, and what shardings other programs may not be given."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.pjit import pjit
from shardwise.lax import with_sharding_constraint
from shardwise.sharding import Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P


@pytest.fixture
def mesh():
    return Mesh(np.array(sw.devices()[:4]), "x")


def test_at_once_a_constraint_is_strict(mesh):
    x, split = jnp.arange(8.0), NamedSharding(mesh, P("x"))
    assert with_sharding_constraint(x, split).sharding == split
    placed = with_sharding_constraint(x, SingleDeviceSharding(sw.devices()[0]))
    assert placed.committed
    with pytest.raises(ValueError, match="divisible"):
        with_sharding_constraint(jnp.arange(7.0), split)
    with pytest.raises(ValueError, match="incompatible devices"):
        with_sharding_constraint(placed, split)
    with pytest.raises(ValueError, match="None"):
        with_sharding_constraint([x, x], [split, None])


def test_what_pmap_gives_is_no_sharding_to_ask_for():
    rows = sw.pmap(lambda x: x)(jnp.arange(2)).sharding
    with pytest.raises(ValueError, match="not allowed"):
        with_sharding_constraint(jnp.arange(2), rows)
    with pytest.raises(ValueError, match="not allowed"):
        sw.jit(lambda x: x, in_shardings=rows)(jnp.arange(2))


def test_vmaps_own_axis_is_not_for_constraints_under_it(mesh):
    with pytest.raises(ValueError, match="spmd_axis_name"):
        sw.vmap(lambda x: with_sharding_constraint(x, NamedSharding(mesh, P("x"))), spmd_axis_name="x")(
            jnp.ones((4, 4))
        )


def test_pjit_runs_on_the_mesh_it_is_called_under(mesh):
    with mesh, pytest.raises(ValueError, match="context mesh"):
        pjit(lambda x: x)(sw.device_put(jnp.ones(4), sw.devices()[0]))
