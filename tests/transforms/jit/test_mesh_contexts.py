"""Programs whose mesh changes while they run: other axis types or names, abstract targets, legacy meshes beside the context's."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.experimental.pjit import pjit
from shardwise.experimental.shard import reshard
from shardwise.lax import with_sharding_constraint
from shardwise.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    Sharding,
    auto_axes,
    use_abstract_mesh,
    use_mesh,
)
from shardwise.sharding import PartitionSpec as P

Auto, Explicit = AxisType.Auto, AxisType.Explicit
VALUES = np.arange(16.0, dtype=np.float32).reshape(8, 2)


@pytest.fixture
def mesh():
    return sw.make_mesh((2, 2), ("x", "y"), (Explicit, Explicit), devices=sw.devices()[:4])


def test_results_lie_on_the_mesh_of_their_type(mesh):
    with use_mesh(mesh):
        x = sw.device_put(VALUES, P("x", "y"))

        @sw.jit
        def mixed(x):
            with use_abstract_mesh(mesh.abstract_mesh.update_axis_types({"x": Auto})):
                return reshard(x, P(None, "y"))

        assert mixed(x).sharding.mesh.axis_types == (Auto, Explicit)

        def renamed(x):
            with use_abstract_mesh(AbstractMesh((4, 1), ("a", "b"), axis_types=(Explicit, Explicit))):
                return reshard(jnp.sin(x), P(("a", "b"), None)) * 2

        out = sw.jit(renamed)(x)
        assert (out.sharding.mesh.shape_tuple, out.sharding.spec) == ((("a", 4), ("b", 1)), P(("a", "b"), None))
        np.testing.assert_allclose(np.asarray(out), np.sin(VALUES) * 2, rtol=1e-6)
        grad = sw.jit(sw.grad(lambda x: reshard(renamed(x), P("y", None)).sum()))(x)
        assert grad.sharding == x.sharding


def test_what_a_program_hands_on_keeps_its_mesh(mesh):
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(Auto, Auto))
    x, y = (sw.device_put(VALUES, NamedSharding(m, P("x"))) for m in (mesh, automatic))
    assert [out.sharding.mesh for out in sw.jit(lambda x, y: (x, y))(x, y)] == [mesh, automatic]


def test_a_constraint_over_renamed_axes(mesh):
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(Auto, Auto))

    @sw.jit
    def f(x):
        with use_abstract_mesh(AbstractMesh((4, 1), ("a", "b"))):
            return with_sharding_constraint(x, P(("a", "b"), None)) * 2

    with use_mesh(automatic):
        assert f(sw.device_put(VALUES, P("x", "y"))).sharding.shard_shape((8, 2)) == (2, 2)


def test_a_legacy_mesh_beside_the_mesh_in_context(mesh):
    other = Mesh(np.array(sw.devices()[:4]), ("z",))
    with use_mesh(mesh):
        x = sw.device_put(VALUES, P("x", "y"))
        with other:
            out = pjit(lambda x: x * 2, out_shardings=P("z"))(x)
            np.testing.assert_array_equal(np.asarray(out), VALUES * 2)
            assert out.sharding.spec == P("z")
            assert pjit(lambda x: x + 1)(x).sharding == x.sharding


def test_positional_constraints_inside_jit():
    sharding = sw.sharding.PositionalSharding(sw.devices()).reshape(4, 2)
    out = sw.jit(lambda x: with_sharding_constraint(x, sharding))(VALUES)
    assert out.sharding.is_equivalent_to(sharding, 2)


def test_abstract_targets_need_a_placed_array():
    concrete = sw.make_mesh((2,), ("x",), (Auto,), devices=sw.devices()[:2])
    target = NamedSharding(concrete.abstract_mesh, P("x"))
    placed = sw.device_put(VALUES, NamedSharding(concrete, P()))
    assert with_sharding_constraint(placed, target).sharding == NamedSharding(concrete, P("x"))
    with pytest.raises(ValueError, match=r"should be a `jax.Array`"):
        with_sharding_constraint(VALUES, target)
    with pytest.raises(TypeError, match="must be a `NamedSharding`"):
        with_sharding_constraint(jnp.ones(8), target)
    other = NamedSharding(AbstractMesh((2,), ("y",)), P("y"))
    with pytest.raises(ValueError, match="does not match the mesh shape of the target"):
        with_sharding_constraint(placed, other)


def test_errors_name_both_meshes(mesh):
    target = NamedSharding(AbstractMesh((2, 2), ("x", "y")), P())
    with use_mesh(mesh):
        x = sw.device_put(VALUES, P("x", None))
        with pytest.raises(ValueError, match=r"Context mesh .* should match the mesh of sharding"):
            jnp.einsum("ij,kj->ik", x, x, out_sharding=target)
    with pytest.raises(ValueError, match="Length of device assignment 1 is not equal to the size of the mesh 4"):
        sw.jit(lambda k: sw.random.normal(k, (8, 2), out_sharding=NamedSharding(mesh, P("x"))))(sw.random.key(0))
    with pytest.raises(ValueError, match="does not evenly divide the dimension size 5"):
        sw.core.ShapedArray((5, 2), jnp.float32, sharding=NamedSharding(mesh, P("x")))


def test_auto_axes_of_automatic_axes_do_nothing():
    automatic = sw.make_mesh((1, 1), ("x", "y"), (Auto, Auto), devices=sw.devices()[:1])
    with use_dialect("latest"), use_mesh(automatic):
        function = sw.jit(auto_axes(lambda x: x * 2, out_sharding=P("x")))
        np.testing.assert_array_equal(function(VALUES), VALUES * 2)
        assert "reshard" not in str(function.trace(VALUES).jaxpr)


def test_types_tell_the_mesh_in_context(mesh):
    seen = []

    def body(x):
        seen.append(x.aval.sharding.mesh.are_all_axes_manual)
        return x

    sw.jit(sw.experimental.shard_map.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")))(VALUES)
    assert seen and all(seen)


class Halves(Sharding):
    """The first half of the rows on the first two devices, the second half on the others: no axes are named."""

    def __init__(self, devices):
        self._devices = tuple(devices)

    @property
    def device_set(self):
        return set(self._devices)

    @property
    def _device_assignment(self):
        return self._devices

    @property
    def memory_kind(self):
        return None

    def with_memory_kind(self, kind):
        return self

    def devices_indices_map(self, global_shape):
        n = global_shape[0] // 2
        rest = (slice(None),) * (len(global_shape) - 1)
        return {d: (slice(n * (i // 2), n * (i // 2 + 1)), *rest) for i, d in enumerate(self._devices)}


def test_constraints_to_shardings_without_axes():
    own = Halves(sw.devices()[:4])
    out = sw.jit(lambda x: with_sharding_constraint(x, own) * 2)(VALUES)
    np.testing.assert_array_equal(np.asarray(out), VALUES * 2)
    assert out.sharding.shard_shape((8, 2)) == (4, 2)


def test_open_dims_of_out_shardings_are_left_to_propagation(mesh):
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(Auto, Auto))
    x = sw.device_put(VALUES, NamedSharding(automatic, P("x", None)))
    for spec in (P(P.UNCONSTRAINED, P.UNCONSTRAINED), P(P.UNCONSTRAINED, "y")):
        wanted = NamedSharding(automatic, spec)
        expected = NamedSharding(automatic, P("x", *(["y"] if "y" in spec else [])))
        assert sw.jit(lambda x: x * 2, out_shardings=wanted)(x).sharding.is_equivalent_to(expected, 2)
        with use_dialect("latest"), pytest.raises(ValueError, match="Unconstrained dims are not allowed"):
            sw.jit(lambda x: x * 2, out_shardings=wanted)(VALUES)


def test_arrays_made_inside_of_a_program_lie_as_they_were_asked(mesh):
    sharding = NamedSharding(Mesh(mesh.devices, mesh.axis_names), P("x", "y"))
    for make in (lambda: jnp.array(VALUES, device=sharding), lambda: jnp.asarray(VALUES, device=sharding) * 1):
        assert sw.jit(make)().sharding == sharding


def test_results_of_pmap_may_enter_anywhere(mesh):
    sharding = NamedSharding(Mesh(mesh.devices, mesh.axis_names), P("x"))
    out = sw.jit(lambda x: x * 2, in_shardings=sharding)(sw.pmap(lambda x: x)(np.arange(8)))
    assert out.sharding == sharding
    np.testing.assert_array_equal(np.asarray(out), np.arange(8) * 2)


def test_reshard_leaves_automatic_axes_alone(mesh):
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(Auto, Auto))
    with use_mesh(automatic):
        x = sw.device_put(VALUES, NamedSharding(automatic, P("x", "y")))
        for function in (lambda x: reshard(x, P(None, None)), sw.jit(lambda x: reshard(x * 2, P(None, None)))):
            assert function(x).sharding == x.sharding
