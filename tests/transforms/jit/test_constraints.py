"""with_sharding_constraint at once, and what shardings other programs may not be given."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.pjit import pjit
from shardwise.experimental.shard import auto_axes, reshard
from shardwise.lax import with_sharding_constraint
from shardwise.sharding import AxisType, Mesh, NamedSharding, Sharding, SingleDeviceSharding, use_mesh
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


def test_inside_jit_a_sharding_whose_parts_form_no_grid_is_refused():
    class Lopsided(Sharding):
        @property
        def device_set(self):
            return set(sw.devices()[:2])

        def devices_indices_map(self, global_shape):
            cuts = (0, 3, global_shape[0])
            return {d: (slice(cuts[i], cuts[i + 1]),) for i, d in enumerate(sw.devices()[:2])}

    x, sharding = np.arange(8.0), Lopsided()
    with pytest.raises(NotImplementedError, match="out_shardings"):
        sw.jit(lambda x: with_sharding_constraint(x * 2, sharding))(x)
    assert sw.jit(lambda x: x * 2, out_shardings=sharding)(x).sharding is sharding
    assert with_sharding_constraint(jnp.asarray(x), sharding).sharding is sharding


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


def test_a_spec_in_auto_axes_is_over_the_axes_that_are_automatic_there():
    devices = np.array(sw.devices()[:4]).reshape(2, 2)
    explicit = Mesh(devices, ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = sw.device_put(np.ones((8, 4), np.float32), NamedSharding(explicit, P("x", "y")))
    with use_mesh(explicit):
        out = auto_axes(lambda x: with_sharding_constraint(x * 2, P("y")), out_shardings=P("x"))(x)
        assert out.sharding.spec == P("x", None)
        assert reshard(x, P("y", None, None)).sharding.spec == P("y", None)
        with pytest.raises(ValueError, match="incompatible devices"):
            reshard(sw.device_put(x, sw.devices()[5]), P("x"))
        with pytest.raises(ValueError, match="should be sharded the same"):
            sw.vmap(jnp.add)(x, np.ones((8, 4), np.float32))
        with pytest.raises(ValueError, match="Only one of spmd_axis_name"):
            sw.vmap(jnp.sin, spmd_axis_name="y")(x)


@pytest.mark.usefixtures("latest")
@pytest.mark.parametrize("context", [False, True], ids=["no mesh", "set_mesh"])
@pytest.mark.parametrize("spec", [("x",), ("y",), ("x", "y")], ids=str)
def test_constraints_on_explicit_axes_assert_under_set_mesh_alone(spec: Any, context: bool) -> None:
    found = []
    for lib in (sw, pytest.importorskip("jax")):
        mesh = lib.make_mesh(
            (2, 2), ("x", "y"), axis_types=(lib.sharding.AxisType.Explicit,) * 2, devices=lib.devices()[:4]
        )
        x = lib.device_put(np.ones((4, 4), np.float32), lib.NamedSharding(mesh, lib.P("x")))
        try:
            with lib.set_mesh(mesh) if context else contextlib.nullcontext():
                found.append(
                    tuple(lib.lax.with_sharding_constraint(x, lib.NamedSharding(mesh, lib.P(*spec))).sharding.spec)
                )
        except (ValueError, AssertionError) as error:
            found.append(isinstance(error, AssertionError))
    assert found[0] == found[1]
