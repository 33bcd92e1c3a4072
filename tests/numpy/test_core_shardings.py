"""Where results of the core functions lie, on Explicit and on Auto meshes, as JAX 0.10 places them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.sharding import AxisType, NamedSharding, P, make_mesh, use_mesh

# expression, its type under the Explicit context mesh, and the spec of the result there and on the Auto mesh
TABLE = [
    ("jnp.ones((4, 8))", "f32[4,8]", (None, None), ()),
    ("jnp.zeros(8, out_sharding=P('x'))", "f32[8@x]", ("x",), None),
    ("jnp.full((4, 8), 2.0, out_sharding=P('x', 'y'))", "f32[4@x,8@y]", ("x", "y"), None),
    ("jnp.arange(8)", "i32[8]", (None,), ()),
    ("jnp.arange(8, out_sharding=P('y'))", "i32[8@y]", ("y",), None),
    ("jnp.array([1, 2])", "i32[2]", (), ()),
    ("jnp.array(np.ones((4, 8), np.float32), out_sharding=P('x'))", "f32[4@x,8]", ("x", None), None),
    ("jnp.eye(4)", "f32[4,4]", (None, None), ()),
    ("jnp.zeros(8, device=NamedSharding(mesh, P('x')))", "f32[8@x]", ("x",), ("x",)),
    ("jnp.ones(8, out_sharding=NamedSharding(mesh, P('x')))", "f32[8@x]", ("x",), None),
    ("jnp.zeros_like(x)", "f32[4@x,8@y]", ("x", "y"), ("x", "y")),
    ("jnp.full_like(x, 2, out_sharding=P(None, 'x'))", "f32[4,8@x]", (None, "x"), None),
    ("jnp.copy(x)", "f32[4@x,8@y]", ("x", "y"), ("x", "y")),
    ("jnp.tril(x)", "f32[4@x,8@y]", ("x", "y"), ("x", "y")),
    ("jnp.where(x > 0, x, 0)", "f32[4@x,8@y]", ("x", "y"), ("x", "y")),
    ("x + jnp.ones(8)", "f32[4@x,8@y]", ("x", "y"), ("x", "y")),
    ("x * 2.5", "f32[4@x,8@y]", ("x", "y"), ("x", "y")),
    ("x // 2", "f32[4@x,8@y]", ("x", "y"), ("x", "y")),
    ("x.sum()", "f32[]", (), ()),
    ("x.sum(0)", "f32[8@y]", ("y",), ("y",)),
    ("x.mean(1, keepdims=True)", "f32[4@x,1]", ("x", None), ("x",)),
    ("jnp.var(x, axis=1)", "f32[4@x]", ("x",), ("x",)),
    ("jnp.argmax(x, 1)", "i32[4@x]", ("x",), ("x",)),
    ("jnp.diagonal(y)", "f32[4]", (None,), ()),
    ("jnp.trace(x)", "f32[]", (), ()),
    ("jnp.trace(x[:, None], axis1=0, axis2=1)", "f32[8@y]", ("y",), ("y",)),
    ("jnp.nan_to_num(x)", "f32[4@x,8@y]", ("x", "y"), ("x", "y")),
    ("jnp.average(x, axis=0)", "f32[8@y]", ("y",), ("y",)),
    ("jnp.linspace(0, 1, 8)", "f32[8]", (None,), ()),
]


def scope(mesh):
    host = np.arange(32, dtype=np.float32).reshape(4, 8)
    x = shardwise.device_put(host, NamedSharding(mesh, P("x", "y")))
    y = shardwise.device_put(host, NamedSharding(mesh, P()))
    return {"jnp": jnp, "np": np, "P": P, "NamedSharding": NamedSharding, "mesh": mesh, "x": x, "y": y}


@pytest.mark.parametrize(("expression", "type_", "spec", "_"), TABLE)
def test_explicit(expression, type_, spec, _):
    mesh = make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with use_mesh(mesh):
        result = eval(expression, scope(mesh))
    assert result.aval.str_short() == type_
    assert tuple(result.sharding.spec) == spec
    assert result.committed


@pytest.mark.parametrize(("expression", "_", "__", "spec"), TABLE)
def test_auto(expression, _, __, spec):
    mesh = make_mesh((2, 4), ("x", "y"))
    with use_mesh(mesh):
        if spec is None:
            with pytest.raises(ValueError, match="Auto"):
                eval(expression, scope(mesh))
            return
        result = eval(expression, scope(mesh))
    assert tuple(result.sharding.spec) == spec
    assert result.committed


def test_reductions_and_operators_on_many_devices_equal_one():
    mesh = make_mesh((2, 4), ("x", "y"))
    host = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    x, y = shardwise.device_put(host, NamedSharding(mesh, P("x", "y"))), jnp.asarray(host)
    for f in (jnp.std, jnp.median, lambda a: jnp.quantile(a, 0.3, axis=0), lambda a: jnp.unwrap(a * 9), jnp.ptp):
        np.testing.assert_allclose(f(x), f(y), rtol=1e-6, atol=1e-6)


def test_created_on_a_mesh_that_only_out_sharding_names():
    mesh = shardwise.sharding.Mesh(
        np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2
    )
    target = NamedSharding(mesh, P("x"))
    for made, wanted in (
        (jnp.zeros(8, out_sharding=target), [0] * 8),
        (jnp.arange(1, 17, 2, out_sharding=target), range(1, 17, 2)),
    ):
        assert made.sharding == target and made.committed
        np.testing.assert_array_equal(made, wanted)
