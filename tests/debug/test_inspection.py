"""Shardings told: at once for arrays, when compiled for traced values."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import debug, lax
from shardwise.ops import control
from shardwise.sharding import AxisType, NamedSharding, P, SingleDeviceSharding, make_mesh, use_mesh

f32 = np.float32


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def test_concrete_values_tell_at_once(mesh):
    seen = []
    x = sw.device_put(np.zeros((8, 8), f32), NamedSharding(mesh, P("x", None)))
    for value in (x, np.zeros(3), 1.5):
        debug.inspect_array_sharding(value, callback=seen.append)
    assert seen[0] is x.sharding
    assert isinstance(seen[1], SingleDeviceSharding) and isinstance(seen[2], SingleDeviceSharding)


def test_traced_values_tell_once_per_compilation(mesh):
    seen = []

    @sw.jit
    def f(x):
        y = lax.transpose(x, (1, 0))
        debug.inspect_array_sharding(y, callback=seen.append)
        return lax.sin(x)

    x = sw.device_put(np.zeros((8, 8), f32), NamedSharding(mesh, P("x", "y")))
    f(x)
    f(x)
    assert [s.is_equivalent_to(NamedSharding(mesh, P("y", "x")), 2) for s in seen] == [True]
    f(np.zeros((8, 8), f32))
    assert isinstance(seen[1], SingleDeviceSharding)


def test_inside_loops_vmap_and_grad(mesh):
    seen = []
    x = sw.device_put(np.zeros((8, 8), f32), NamedSharding(mesh, P("x", "y")))

    def step(c, _):
        debug.inspect_array_sharding(c, callback=seen.append)
        return c, None

    sw.jit(lambda x: control.scan(step, x, None, length=3)[0])(x)
    assert seen and all(s.is_equivalent_to(x.sharding, 2) for s in seen)
    seen.clear()
    sw.jit(sw.vmap(lambda r: (debug.inspect_array_sharding(r, callback=seen.append), r)[1]))(x)
    assert seen[0].is_equivalent_to(x.sharding, 2)
    seen.clear()
    sw.grad(lambda v: (debug.inspect_array_sharding(v, callback=seen.append), lax.sin(v))[1])(f32(1))
    assert len(seen) == 1


def test_explicit_values_tell_their_mesh():
    mesh = make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    seen = []
    with use_mesh(mesh):
        x = sw.device_put(np.zeros((8, 8), f32), NamedSharding(mesh, P("x", "y")))
        sw.jit(lambda x: (debug.inspect_array_sharding(x, callback=seen.append), x)[1])(x)
    assert seen[0].mesh == mesh and seen[0].is_equivalent_to(x.sharding, 2)


def test_drawing_in_and_out_of_jit(mesh, capsys):
    x = sw.device_put(np.zeros((8, 8), f32), NamedSharding(mesh, P("x", None)))
    debug.visualize_array_sharding(x, use_color=False)
    first = capsys.readouterr().out
    sw.jit(lambda x: (debug.visualize_array_sharding(x, use_color=False), x)[1])(x)
    assert capsys.readouterr().out == first
    assert "CPU 0,1,2,3" in first
    with pytest.raises(ValueError, match="1 and 2 dimensions"):
        debug.visualize_array_sharding(f32(1))
    with pytest.raises(ValueError, match="1 and 2 dimensions"):
        sw.jit(lambda x: debug.visualize_array_sharding(x))(np.zeros((2, 2, 2)))
