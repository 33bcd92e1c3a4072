"""Programs lowered and compiled for machines that there are only descriptions of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.errors import JaxRuntimeError
from shardwise.experimental import topologies
from shardwise.experimental.topologies import get_topology_desc
from shardwise.sharding import AbstractDevice, NamedSharding, PartitionSpec, SingleDeviceSharding


@pytest.mark.parametrize(
    ("name", "platform", "count", "kind"),
    [
        ("v5e:2x2", "tpu", 4, "TPU v5 lite"),
        ("v5p:2x2x4", None, 16, "TPU v5p"),
        ("v6e:16x16", "tpu", 256, "TPU v6 lite"),
        ("v5:2x2x1", "tpu", 4, "TPU v5p"),
        ("v5p-256", "tpu", 128, "TPU v5p"),
        ("h100-8x2", "cuda", 16, "NVIDIA H100 80GB HBM3"),
    ],
)
def test_devices_of_a_description(name, platform, count, kind):
    devices = get_topology_desc(name, platform).devices
    assert len(devices) == len(set(devices)) == count
    assert devices[0].device_kind == kind
    assert devices[0] not in jax.devices()


def test_slices_and_hosts():
    many: Any = get_topology_desc("v5e:4x4", num_slices=3)
    assert len(many.devices) == 48 and {d.slice_index for d in many.devices} == {0, 1, 2}
    usual = {d.process_index for d in get_topology_desc("v5e:4x4").devices}
    single = {d.process_index for d in get_topology_desc("v5e:4x4", chips_per_host_bounds=(1, 1, 1)).devices}
    assert (len(usual), len(single)) == (4, 16)


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("v5q:2x2", {}, "v5"),
        ("", {}, "machine"),
        ("v5e:2x2", {"platform": "gpu"}, "platform 'tpu'"),
        ("v5e:2x2", {"chips_per_host_bounds": (3, 1, 1)}, "do not make up a slice"),
        ("v5e:2x2", {"num_slices": 0}, "machine"),
        ("v5e:2x2", {"wrap": (True,)}, r"torus of \(2, 2\)"),
        ("h100-8", {"wrap": (True, True)}, "no torus"),
    ],
)
def test_descriptions_that_there_are_not(name, keywords, message):
    with pytest.raises(ValueError, match=message):
        get_topology_desc(name, **keywords)
    with pytest.raises(NotImplementedError, match="default configuration"):
        get_topology_desc("v5e:2x2", chip_config_name="megachip")


def test_rings_of_a_torus():
    def closed(**keywords):
        topology: Any = get_topology_desc("v5p:2x2x4", chip_config_name="megacore", **keywords)
        return topology.devices[0].client.places.machine.levels[0].wrap

    assert closed() == (False, False, False)
    assert closed(wrap=(False, False, True)) == (False, False, True)
    flat: Any = get_topology_desc("v5e:4x4", wrap=(True, True, False))
    assert flat.devices[0].client.places.machine.levels[0].wrap == (True, True)


def test_attached_devices():
    assert topologies.get_attached_topology().devices == jax.devices()


def _struct(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, PartitionSpec(*spec)))


def _product(mesh):
    f = jax.jit(lambda a, b: jnp.tanh(a @ b), donate_argnums=0)
    return f.lower(_struct(mesh, (8192, 8192), "x", None), _struct(mesh, (8192, 4096), None, "y"))


def test_a_program_for_devices_that_are_not_here():
    mesh = topologies.make_mesh(get_topology_desc("v5e:4x4"), (4, 4), ("x", "y"))
    lowered = _product(mesh)
    compiled = lowered.compile()
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    assert memory.argument_size_in_bytes == 2 * (8192 * 8192 + 8192 * 4096) // 4
    assert memory.output_size_in_bytes == 2 * 8192 * 4096 // 16
    assert memory.peak_memory_in_bytes >= memory.argument_size_in_bytes + memory.output_size_in_bytes
    assert cost["flops"] == 2 * 2048 * 8192 * 1024
    assert "tanh" in compiled.as_text() and "16 devices" in lowered.as_text()
    assert compiled.output_shardings == NamedSharding(mesh, PartitionSpec("x", "y"))
    assert "collectives: none" in compiled.explain()
    with pytest.raises(RuntimeError, match="can be looked at"):
        compiled(np.ones((8192, 8192), jnp.bfloat16), np.ones((8192, 4096), jnp.bfloat16))


def test_the_abstract_mesh_of_a_description_names_its_chips():
    with use_dialect("latest"):
        mesh = topologies.make_mesh(get_topology_desc("v5e:4x4"), (4, 4), ("x", "y")).abstract_mesh
        assert mesh.abstract_device == AbstractDevice("TPU v5 lite", None, "tpu")
        f = jax.jit(lambda a, b: jnp.tanh(a @ b), donate_argnums=0)
        args = _struct(mesh, (8192, 8192), "x", None), _struct(mesh, (8192, 4096), None, "y")
        compiled = f.trace(*args).lower(lowering_platforms=("tpu",)).compile()
    assert str(compiled.memory_analysis()) == str(
        _product(topologies.make_mesh(get_topology_desc("v5e:4x4"), (4, 4), ("x", "y"))).compile().memory_analysis()
    )


def test_many_devices_cost_what_few_do():
    mesh = topologies.make_mesh(get_topology_desc("v6e:16x16", num_slices=4), (32, 32), ("x", "y"))
    assert _product(mesh).compile().cost_analysis()["flops"] == 2 * 256 * 8192 * 128


def test_no_data_lies_there():
    mesh = topologies.make_mesh(get_topology_desc("v5e:2x2"), (4,), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    x = jnp.ones(8)
    for place in (
        lambda: jax.device_put(x, sharding),
        lambda: jax.device_put(x, mesh.devices[0]),
        lambda: jax.make_array_from_callback((8,), sharding, lambda i: np.ones(8)[i]),
        lambda: jax.make_array_from_process_local_data(sharding, np.ones(8)),
        lambda: jnp.zeros(8, device=sharding),
        lambda: jax.device_put(x, SingleDeviceSharding(mesh.devices[1])),
    ):
        with pytest.raises(JaxRuntimeError, match="description"):
            place()
    with pytest.raises(RuntimeError, match=r"can be looked at|description"):
        jax.jit(lambda x: x + 1, out_shardings=sharding)(x)
