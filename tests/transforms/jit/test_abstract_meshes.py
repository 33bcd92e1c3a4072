"""Shardings over an AbstractMesh in jit: the call's other devices, a platform to lower for, or device_assignment give them devices."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.sharding import AbstractDevice, AbstractMesh, AxisType, Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P

ABSTRACT = AbstractMesh((4,), ("x",))
SPLIT = NamedSharding(ABSTRACT, P("x"))


@pytest.fixture
def mesh():
    return Mesh(np.array(jax.devices()[:4]), ("x",))


def struct(mesh=ABSTRACT, spec=SPLIT.spec, shape=(8, 4)):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))


def product(x, y):
    return jnp.sin(x) @ y.T


def test_arguments_name_the_devices_of_results(mesh):
    double = jax.jit(lambda x: x * 2, out_shardings=SPLIT)
    x = np.arange(32.0, dtype=np.float32).reshape(8, 4)
    result = double(jax.device_put(x, NamedSharding(mesh, P(None, "x"))))
    assert result.sharding == NamedSharding(mesh, P("x"))
    np.testing.assert_array_equal(result, 2 * x)
    other = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    assert double(jax.device_put(x, NamedSharding(other, P("b")))).sharding == NamedSharding(mesh, P("x"))


def test_the_mesh_in_context_names_the_devices(mesh):
    x = np.ones((8, 4), np.float32)
    with jax.sharding.use_mesh(mesh):
        assert jax.jit(lambda x: x, in_shardings=SPLIT)(x).sharding == NamedSharding(mesh, P("x"))
        assert jax.jit(lambda x: x, out_shardings=SPLIT)(x).sharding == NamedSharding(mesh, P("x"))
        compiled = jax.jit(product).lower(struct(), struct()).compile()
        assert compiled.input_shardings[0] == (NamedSharding(mesh, P("x")),) * 2


def test_one_struct_names_the_devices_of_the_others(mesh):
    compiled = jax.jit(product).lower(struct(), struct(mesh)).compile()
    assert compiled.input_shardings[0] == (NamedSharding(mesh, P("x")),) * 2


def test_in_shardings_are_compared_where_they_lie(mesh):
    keep = jax.jit(lambda x: x, in_shardings=SPLIT)
    x = np.ones((8, 4), np.float32)
    assert keep(jax.device_put(x, NamedSharding(mesh, P("x")))).sharding == NamedSharding(mesh, P("x"))
    with pytest.raises(ValueError, match="does not match the sharding on the respective arg"):
        keep(jax.device_put(x, NamedSharding(mesh, P(None, "x"))))


def test_nothing_names_devices():
    x = np.ones((8, 4), np.float32)
    for call in (
        lambda: jax.jit(product).lower(struct(), struct()),
        lambda: jax.jit(lambda x: x, out_shardings=SPLIT)(x),
        lambda: jax.jit(lambda x: x, in_shardings=SPLIT)(x),
    ):
        with pytest.raises(ValueError, match="required when only AbstractMesh exists"):
            call()


def test_another_number_of_devices(mesh):
    pair = Mesh(np.array(jax.devices()[:2]), ("x",))
    x = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(pair, P("x")))
    with pytest.raises(ValueError, match="AbstractMesh size: 4 does not match the device assignment size: 2"):
        jax.jit(lambda x: x, out_shardings=SPLIT)(x)
    lowered = jax.jit(product).trace(struct(), struct()).lower(lowering_platforms=("cpu",))
    with pytest.raises(ValueError, match="AbstractMesh size: 4 does not match the device assignment size: 2"):
        lowered.compile(device_assignment=jax.devices()[:2])
    concrete = jax.jit(product).lower(struct(mesh), struct(mesh))
    with pytest.raises(ValueError, match="was lowered for"):
        concrete.compile(device_assignment=jax.devices()[4:8])
    assert concrete.compile(device_assignment=jax.devices()[:4]).input_shardings[0][0] == NamedSharding(mesh, P("x"))


def test_tracing_needs_no_devices():
    traced = jax.jit(product, out_shardings=NamedSharding(ABSTRACT, P("x", None))).trace(struct(), struct())
    assert traced.eval_shape().sharding == NamedSharding(ABSTRACT, P("x", None))
    assert jax.eval_shape(jax.jit(product), struct(), struct()).shape == (8, 8)


def test_explicit_types_of_abstract_meshes(mesh):
    explicit = AbstractMesh((4,), ("x",), (AxisType.Explicit,))
    traced = jax.jit(lambda x: x + 1).trace(struct(explicit))
    assert "8@x" in str(traced.jaxpr.in_avals[0].str_short(True))
    compiled = traced.lower(lowering_platforms=("cpu",)).compile(device_assignment=jax.devices()[:4])
    result = compiled(jax.device_put(np.ones((8, 4), np.float32), compiled.input_shardings[0][0]))
    assert jax.typeof(result).sharding.spec == P("x", None)


@pytest.mark.parametrize("kind", ["TPU v5p", "TPU v5 lite", "Some later chip"])
def test_what_a_program_needs_on_another_platform(kind):
    machine = AbstractMesh((4, 2), ("x", "y"), abstract_device=AbstractDevice(kind, None, "tpu"))
    a, b = struct(machine, P("x", None), (4096, 2048)), struct(machine, P("y", None), (1024, 2048))
    lowered = jax.jit(product).trace(a, b).lower(lowering_platforms=("tpu",))
    compiled = lowered.compile()
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 4 * (1024 * 2048 + 512 * 2048)
    assert memory.output_size_in_bytes == 4 * 1024 * 512
    assert memory.peak_memory_in_bytes >= memory.argument_size_in_bytes + memory.output_size_in_bytes
    assert compiled.cost_analysis()["flops"] == 2 * 1024 * 2048 * 512
    assert compiled.input_shardings[0][0].mesh.devices.flat[0].device_kind == kind
    with pytest.raises(RuntimeError, match="can be looked at"):
        compiled(np.ones((4096, 2048), np.float32), np.ones((1024, 2048), np.float32))


def test_lowering_for_a_platform_without_shardings():
    plain = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    compiled = jax.jit(product).trace(plain, plain).lower(lowering_platforms=("cuda",)).compile()
    assert compiled.input_shardings[0][0].device_set.pop().platform == "gpu"
    assert jax.jit(product).trace(plain, plain).lower(lowering_platforms=("cpu",)).compile().input_shardings[0][0] == (
        SingleDeviceSharding(jax.devices()[0])
    )


def test_device_assignment_gives_a_program_that_runs(mesh):
    lowered = jax.jit(product).trace(struct(), struct()).lower(lowering_platforms=("tpu",))
    compiled = lowered.compile(device_assignment=tuple(jax.devices()[:4]))
    x = np.arange(32.0, dtype=np.float32).reshape(8, 4)
    result = compiled(*[jax.device_put(x, NamedSharding(mesh, P("x")))] * 2)
    np.testing.assert_allclose(result, np.sin(x) @ x.T, rtol=1e-5)


def test_platforms_that_there_are_not(mesh):
    traced = jax.jit(product).trace(struct(mesh), struct(mesh))
    with pytest.raises(NotImplementedError, match="the call names devices of the platform 'cpu'"):
        traced.lower(lowering_platforms=("tpu",))
    assert traced.lower(lowering_platforms=("cpu",)).compile().input_shardings[0][0].mesh is mesh
    with pytest.raises(NotImplementedError, match="one platform"):
        traced.lower(lowering_platforms=("tpu", "cpu"))
    with pytest.raises(ValueError, match="a tuple with one name"):
        traced.lower(lowering_platforms="tpu")


def test_types_of_values_lower(mesh):
    x = jnp.arange(8.0)
    assert jax.jit(jnp.sin).lower(jax.typeof(x)).compile()(x).shape == (8,)
    assert jax.jit(lambda x: x).lower(jax.typeof(2.0)).in_avals[0][0].weak_type
    split = NamedSharding(mesh, P("x"))
    with mesh:
        twice = jax.jit(lambda x: x + x, in_shardings=split, out_shardings=split).lower(
            jax.core.ShapedArray((8,), x.dtype)
        )
    assert twice.compile()(x).sharding == split


def test_shardings_over_no_devices_are_refused():
    nowhere = NamedSharding(jax.sharding.Mesh(np.empty((), object), ()), P())
    for option in ("in_shardings", "out_shardings"):
        options: dict[str, Any] = {option: nowhere}
        with pytest.raises(ValueError, match=f"One of {option} .* got an empty NamedSharding"):
            jax.jit(lambda x: x, **options)(jnp.ones(3))


def test_structs_like_values(mesh):
    like = jax.ShapeDtypeStruct.like
    placed = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("x")))
    assert like(placed) == jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    assert like(jnp.ones(3)) == like(np.ones(3, np.float32)) == jax.ShapeDtypeStruct((3,), jnp.float32)
    assert like(3.0) == jax.ShapeDtypeStruct((), jnp.float32, weak_type=True)
    assert like(struct()) == struct()
    seen = []
    jax.jit(lambda x: seen.append(like(x)))(jnp.ones(2, jnp.int8))
    assert seen == [jax.ShapeDtypeStruct((2,), jnp.int8)]
    assert struct().update(shape=(16, 4), dtype=jnp.int32).shape == (16, 4)


def test_structs_keep_their_fields_in_the_latest_dialect():
    with use_dialect("latest"):
        kept = jax.ShapeDtypeStruct((2,), jnp.float32)
        with pytest.raises(RuntimeError, match=r"Cannot reassign attributes \(shape\)"):
            kept.shape = (3,)
        kept.shape = (2,)
        assert copy.copy(kept) == pickle.loads(pickle.dumps(kept)) == kept
        with pytest.raises(AttributeError):
            kept.other = 1
    with use_dialect("seed"):
        free = jax.ShapeDtypeStruct((2,), jnp.float32)
        free.shape = (3,)
        assert free.size == 3


OUT = {
    "full": lambda s: jnp.full((4,), 1.0, out_sharding=s),
    "arange": lambda s: jnp.arange(4, out_sharding=s),
    "dot": lambda s: jnp.dot(jnp.ones((4, 4)), jnp.ones((4, 4)), out_sharding=s),
    "get": lambda s: jnp.arange(4).at[jnp.arange(4)].get(out_sharding=s),
    "reshard": lambda s: jax.reshard(jnp.ones(4), s),
}


@pytest.mark.parametrize("name", OUT)
def test_results_of_abstract_meshes_are_in_no_other_memory(name):
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        found = OUT[name](NamedSharding(mesh.abstract_mesh, P("x"))).sharding
        assert isinstance(found, NamedSharding) and found.spec[0] == "x"
        with pytest.raises(ValueError, match="memory_kind is not allowed"):
            OUT[name](NamedSharding(mesh.abstract_mesh, P("x"), memory_kind="pinned_host"))


def test_a_traced_device_put_takes_the_devices_of_the_mesh_in_context():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    there = NamedSharding(mesh.abstract_mesh, P("x"))
    with jax.set_mesh(mesh):
        assert len(jax.jit(lambda x: jax.device_put(x, there))(jnp.ones(4)).devices()) == 2
    with pytest.raises(ValueError, match="needs devices"):
        jax.jit(lambda x: jax.device_put(x, there))(jnp.ones(4))
