"""Names that only one era of JAX has behave as in it, whatever the dialect is; what fails because of the dialect says how to switch."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.experimental.shard
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.sharding import AxisType, NamedSharding, PartitionSpec, get_abstract_mesh, make_mesh

SOURCE = Path(__file__).parent.parent / "src"


@pytest.fixture(params=["0.5", "0.10"])
def dialect(request):
    with use_dialect(request.param):
        yield request.param


@pytest.fixture
def mesh():
    return make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def test_aliases_of_the_dialects():
    for alias, name in (("seed", "0.5"), ("latest", "0.10"), ("0.5", "0.5"), ("0.10", "0.10")):
        with use_dialect(alias):
            assert sw.config.shardwise_dialect == name == sw.config.dialect.name


def test_set_mesh_is_a_context(dialect, mesh):
    with sw.set_mesh(mesh) as entered:
        assert entered is mesh and get_abstract_mesh() is mesh.abstract_mesh
    assert get_abstract_mesh().empty
    with sw.sharding.set_mesh(mesh):
        assert get_abstract_mesh() is mesh.abstract_mesh
    assert get_abstract_mesh().empty


def test_sharding_set_mesh_of_jax_0_5_returns_the_mesh_before(mesh):
    try:
        assert sw.sharding.set_mesh(mesh) is None
        assert sw.sharding.set_mesh(None) is mesh
    finally:
        sw.set_mesh(None)


def test_p_makes_specs_of_today(dialect):
    a = sw.P("x") + sw.P("y")
    assert a == PartitionSpec("x", "y") and not isinstance(a, tuple) and repr(a) == "P('x', 'y')"
    assert not isinstance(a.update(partitions=["y"]), tuple)
    assert isinstance(PartitionSpec("x"), sw.P) and isinstance(a, PartitionSpec) and issubclass(PartitionSpec, sw.P)
    assert sw.P.UNCONSTRAINED is PartitionSpec.UNCONSTRAINED
    with pytest.raises(TypeError, match="unhashable"):
        sw.P({"x": 1})  # type: ignore[call-overload]


def test_shard_map_checks_varying_axes_as_today(dialect, mesh):
    x = jnp.arange(8.0)

    def add_up(start):
        def body(x):
            return sw.lax.scan(lambda c, _: (c + x, None), start(x), None, length=3)[0]

        return sw.shard_map(body, mesh=mesh, in_specs=sw.P("x"), out_specs=sw.P("x"))

    np.testing.assert_array_equal(np.asarray(add_up(jnp.zeros_like)(x)), 3 * np.arange(8.0))
    np.testing.assert_array_equal(np.asarray(sw.grad(lambda x: add_up(jnp.zeros_like)(x).sum())(x)), np.full(8, 3.0))
    for transform in (lambda f: f, sw.jit, sw.vmap, lambda f: sw.jacfwd(f)):
        with pytest.raises(TypeError, match="pcast"):
            transform(add_up(lambda x: jnp.zeros(x.shape)))(jnp.ones((2, 8)) if transform is sw.vmap else x)


def test_errors_of_shard_map_are_those_of_today(dialect, mesh):
    with pytest.raises(ValueError, match="check_vma=False"):
        sw.shard_map(lambda x: x, mesh=mesh, in_specs=sw.P("x"), out_specs=sw.P())(jnp.ones(8))
    whole = sw.shard_map(lambda n: n + 1, mesh=mesh, in_specs=None, out_specs=sw.P())
    assert whole(jnp.float32(1)) == 2


def test_experimental_shard_map_follows_the_dialect(mesh):
    from shardwise.experimental.shard_map import shard_map

    def body(x):
        return sw.lax.scan(lambda c, _: (c + x, None), jnp.zeros(x.shape), None, length=3)[0]

    call = shard_map(body, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"))
    assert call(jnp.ones(8)).sum() == 24
    with use_dialect("0.10"), pytest.raises(TypeError, match="pcast"):
        call(jnp.ones(8))


def test_switches_of_explicit_mode_by_era(dialect):
    explicit = make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with sw.set_mesh(explicit):
        x = sw.reshard(jnp.arange(8.0), sw.P("x"))
        assert x.sharding.spec == PartitionSpec("x")
        with pytest.raises(TypeError, match="out_shardings"):
            sw.sharding.auto_axes(lambda x: x, out_shardings=sw.P("x"))
        old = shardwise.experimental.shard.auto_axes(lambda x: x * 2, out_shardings=PartitionSpec("y"))
        assert old(x).sharding.spec == PartitionSpec("y")


def test_the_error_of_the_other_dialect_says_how_to_switch(mesh):
    with sw.set_mesh(make_mesh((8,), ("x",))), pytest.raises(ValueError, match=r"--dialect 0\.10"):
        sw.reshard(jnp.arange(8.0), sw.P("x"))
    with use_dialect("0.10"):
        with pytest.raises(TypeError, match=r"--dialect 0\.5"):
            jnp.clip(jnp.ones(3), a_min=0)
        with pytest.raises(AttributeError, match=r"--dialect 0\.5"):
            sw.device_put_sharded  # noqa: B018
        with pytest.raises(AttributeError, match=r"--dialect 0\.5"):
            NamedSharding(mesh, ("x",))  # type: ignore[arg-type]


def test_layouts_of_both_eras(mesh):
    from shardwise.experimental import layout

    order, place = layout.DeviceLocalLayout((0, 1)), NamedSharding(mesh, PartitionSpec("x"))
    for old in (layout.Layout(order, place), layout.Layout(device_local_layout=order, sharding=place)):
        assert old == layout.Format(order, place) and old.device_local_layout is order
    assert sw.device_put(jnp.ones((8, 2)), layout.Layout(None, place)).sharding == place
    with use_dialect("0.10"), pytest.raises(TypeError, match="order of dims"):
        layout.Layout(order, place)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect_name", ["0.5", "0.10"])
def test_orbax_saves_on_one_mesh_and_restores_on_another(shell, tmp_path, dialect_name):
    found = importlib.util.find_spec("orbax")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs orbax: pip install orbax-checkpoint")
    program = inspect.cleandoc(
        """
        import sys, jax, jax.numpy as jnp, numpy as np, orbax.checkpoint as ocp
        from jax.sharding import NamedSharding, PartitionSpec as P
        mesh, other = jax.make_mesh((4, 2), ("x", "y")), jax.make_mesh((2, 4), ("p", "q"))
        w = jax.device_put(jnp.arange(32.0).reshape(8, 4), NamedSharding(mesh, P("x", "y")))
        checkpointer = ocp.StandardCheckpointer()
        checkpointer.save(sys.argv[1] + "/saved", {"w": w, "n": 3})
        checkpointer.wait_until_finished()
        like = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=NamedSharding(other, P("q", "p")))
        restored = checkpointer.restore(sys.argv[1] + "/saved", {"w": like, "n": 0})
        assert restored["w"].sharding == like.sharding and restored["n"] == 3
        print(np.array_equal(restored["w"], w))
        """
    )
    paths = os.pathsep.join([str(SOURCE), str(Path(next(iter(found.submodule_search_locations))).parent)])
    words = ("--dialect", dialect_name, "--devices", 8, "-c", program, tmp_path)
    done = shell("-m", "shardwise", "run", *words, PYTHONPATH=paths)
    assert done.stdout == "True\n", done.stderr
