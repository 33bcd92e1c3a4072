"""Compiled functions as bytes: they run alike in another process, and what cannot be there is refused."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.layout import Format, Layout
from shardwise.experimental.serialize_executable import deserialize_and_load, serialize
from shardwise.experimental.topologies import get_topology_desc, make_mesh
from shardwise.sharding import Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P


@pytest.fixture
def mesh():
    return Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))


def loaded(f, *args, **options):
    compiled = jax.jit(f, **options).lower(*args).compile()
    return compiled, deserialize_and_load(*serialize(compiled))


KEY = jax.random.key(3)
TABLE = jnp.arange(24.0).reshape(6, 4)
PROGRAMS = {
    "captured values": lambda x: x @ TABLE.T + 1,
    "captured keys": lambda x: x + jax.random.normal(KEY, x.shape),
    "custom rules": lambda x: jax.grad(lambda x: jax.nn.silu(jax.nn.relu(x)).sum())(x),
    "loops": lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c), x[0], x)[1],
    "endless loops": lambda x: lax.while_loop(lambda c: c.sum() < 1e3, lambda c: c * 2 + 1, x),
    "branches": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "gathers and scatters": lambda x: x.at[jnp.array([2, 0])].add(x[:2])[:, ::2],
    "sorts": lambda x: (jnp.argsort(x, axis=0), lax.top_k(x, 2)),
    "factors": lambda x: jnp.linalg.qr(x.T @ x + jnp.eye(4)),
    "transforms": lambda x: jnp.fft.rfft(x).real,
    "convolutions": lambda x: lax.conv(x[None, None], jnp.ones((1, 1, 2, 2)), (1, 1), "SAME"),
    "batches": lambda x: jax.vmap(lambda r: jnp.cumsum(r).astype(jnp.bfloat16))(x),
    "inner programs": lambda x: jax.jit(jax.checkpoint(lambda x: jnp.exp(x)))(x) * jnp.inf,
    "integers": lambda x: (x.astype(jnp.int8) << 1, x > 0, jnp.arange(3, dtype=jnp.uint32)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("split", [False, True])
def test_what_is_loaded_computes_the_same(name, split, mesh):
    x = np.linspace(-2, 3, 32, dtype=np.float32).reshape(8, 4)
    x = jax.device_put(x, NamedSharding(mesh, P("x"))) if split else jnp.asarray(x)
    compiled, again = loaded(PROGRAMS[name], x)
    for a, b in zip(jax.tree.leaves(compiled(x)), jax.tree.leaves(again(x)), strict=True):
        assert (a.sharding, a.dtype, a.weak_type) == (b.sharding, b.dtype, b.weak_type)
        np.testing.assert_array_equal(a, b)
    assert again.as_text() == compiled.as_text()


def test_all_that_a_compiled_function_tells(mesh):
    rows = NamedSharding(mesh, P("x"))
    x = jax.device_put(np.ones((8, 4), np.float32), rows)
    compiled, again = loaded(lambda x, n, y: {"sum": x * n + y}, x, 3, 2.0, static_argnums=1, donate_argnums=0)
    for member in (
        "input_shardings",
        "output_shardings",
        "out_info",
        "in_avals",
        "args_info",
        "donate_argnums",
        "fun_name",
    ):
        assert getattr(again, member) == getattr(compiled, member)
    assert again.cost_analysis() == compiled.cost_analysis()
    assert str(again.memory_analysis()) == str(compiled.memory_analysis())
    assert again.explain().splitlines()[0] == compiled.explain().splitlines()[0]
    np.testing.assert_array_equal(again(x, 2.0)["sum"], 5 * np.ones((8, 4)))
    assert x.is_deleted()
    with pytest.raises(TypeError, match="Static arguments must be left out"):
        again(x, 3, 2.0)
    assert (
        deserialize_and_load(*serialize(again))(jax.device_put(np.zeros((8, 4), np.float32), rows), 1.0)["sum"].sum()
        == 32
    )


def test_another_process_runs_it(tmp_path, mesh, shell):
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    rows = NamedSharding(mesh, P("x", "y"))
    f = jax.shard_map(lambda x: lax.psum(jnp.sort(x, 0), "x"), mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y"))
    compiled = jax.jit(lambda x: {"a": jnp.tanh(f(x) @ TABLE.T)}).lower(jax.device_put(x, rows)).compile()
    data, in_tree, out_tree = serialize(compiled)
    (tmp_path / "f").write_bytes(pickle.dumps((data, in_tree, out_tree)))
    program = (
        "import pickle, sys, numpy as np, shardwise as jax\n"
        "from shardwise.experimental.serialize_executable import deserialize_and_load\n"
        "f = deserialize_and_load(*pickle.load(open(sys.argv[1], 'rb')))\n"
        "x = jax.device_put(np.arange(32, dtype=np.float32).reshape(8, 4), f.input_shardings[0][0])\n"
        "np.save(sys.argv[2], f(x)['a'])\n"
    )
    run = ["-c", program, tmp_path / "f", tmp_path / "r.npy"]
    done = shell(*run, JAX_NUM_CPU_DEVICES="8")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "r.npy"), compiled(jax.device_put(x, rows))["a"])
    few = shell(*run, JAX_NUM_CPU_DEVICES="2")
    assert few.returncode and "compiled for the 8 devices" in few.stderr


def test_other_devices(mesh):
    data = serialize(jax.jit(lambda x: x + 1).lower(jax.device_put(np.ones(8), NamedSharding(mesh, P("x")))).compile())
    backwards = jax.devices()[7::-1]
    f = deserialize_and_load(*data, execution_devices=backwards)
    assert list(f.input_shardings[0][0].device_list) == backwards
    with pytest.raises(ValueError, match="pass execution_devices of that number"):
        deserialize_and_load(*data, execution_devices=jax.devices()[2:4])
    one = serialize(jax.jit(lambda x: x + 1).lower(1.0).compile())
    assert deserialize_and_load(*one, execution_devices=[jax.devices()[5]])(2.0).sharding == SingleDeviceSharding(
        jax.devices()[5]
    )
    assert deserialize_and_load(*one, backend="cpu")(2.0) == 3.0


def test_programs_for_described_machines():
    topology = get_topology_desc("v5e:2x2")
    places = NamedSharding(make_mesh(topology, (4,), ("x",)), P("x"))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=places)
    compiled = jax.jit(lambda x: x @ x.T).lower(x).compile()
    data = serialize(compiled)
    with pytest.raises(ValueError, match="compiled for 'tpu'"):
        deserialize_and_load(*data)
    again = deserialize_and_load(*data, execution_devices=topology.devices)
    assert str(again.memory_analysis()) == str(compiled.memory_analysis())
    with pytest.raises(ValueError, match="Give one of the two"):
        deserialize_and_load(*data, backend="cpu", execution_devices=topology.devices)


def test_functions_of_this_process_are_refused():
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    compiled = jax.jit(lambda x: jax.pure_callback(lambda x: x, shape, x)).lower(1.0).compile()
    with pytest.raises(ValueError, match="does not support serialization"):
        serialize(compiled)
    with pytest.raises(TypeError, match="takes what jit"):
        serialize(jnp.sin)


def test_bytes_that_are_no_executable():
    data, in_tree, out_tree = serialize(jax.jit(lambda x: x + 1).lower(1.0).compile())
    with pytest.raises(ValueError, match="none that serialize gave"):
        deserialize_and_load(b"hello", in_tree, out_tree)
    head, _, rest = data.partition(b"\n")
    with pytest.raises(ValueError, match=r"of version .*0\.0\.0"):
        deserialize_and_load(head.rpartition(b" ")[0] + b" 0.0.0\n" + rest, in_tree, out_tree)
    with pytest.raises(pickle.UnpicklingError, match=r"name (posix|nt)\.getcwd"):
        deserialize_and_load(head + b"\n" + pickle.dumps(os.getcwd), in_tree, out_tree)
    module = b"shardwise.experimental.serialize_executable"
    for name in (
        b"importlib.import_module",
        b"_op.__globals__",
        b"FunctionType",
        b"importlib",
    ):  # found there, not ours
        bad = b"\x80\x04\x8c" + bytes([len(module)]) + module + b"\x8c" + bytes([len(name)]) + name + b"\x93."
        with pytest.raises(pickle.UnpicklingError, match="which no executable holds"):
            deserialize_and_load(head + b"\n" + bad, in_tree, out_tree)
    pair = serialize(jax.jit(lambda x, y: x + y).lower(1.0, 2.0).compile())
    with pytest.raises(ValueError, match="Pass the trees that serialize gave"):
        deserialize_and_load(data, pair[1], pair[2])


def test_layouts_in_memory_are_those_it_was_compiled_for():
    column = Format(Layout((1, 0)), SingleDeviceSharding(jax.devices()[0]))
    x = jax.device_put(TABLE, column)
    compiled, again = loaded(lambda x: (x + 1, x), x, in_shardings=column, out_shardings=(column, None))
    assert again.input_formats == compiled.input_formats and again.output_formats == compiled.output_formats
    for found in (again.input_formats[0][0], again(x)[0].format):
        assert found.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(again(x)[0], TABLE + 1)
    with pytest.raises(ValueError, match="input layouts that disagree"):
        again(jax.device_put(TABLE, column.sharding))
