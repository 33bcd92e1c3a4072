"""Exported functions: here, from bytes, under transformations, on meshes, and for symbolic sizes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import export, lax
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
X = jnp.arange(12, dtype=jnp.float32).reshape(3, 4) / 7 - 0.5
TABLE = jnp.arange(24.0).reshape(6, 4)
KEY = jax.random.key(3)


def assert_close(got, want):
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def loss(f):
    return lambda x: (f(x) ** 2).sum()


def carried(exported, **options):
    return export.deserialize(exported.serialize(**options))


@jax.custom_jvp
def odd(x):
    return jnp.sin(x)


odd.defjvp(lambda p, t: (odd(p[0]), 100 * t[0]))

PROGRAMS = {
    "captured values": lambda x: x @ TABLE.T + 1,
    "captured keys": lambda x: x + jax.random.normal(KEY, x.shape),
    "custom derivatives": odd,
    "loops": lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c), x[0], x)[1],
    "branches": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "gathers and scatters": lambda x: x.at[jnp.array([2, 0])].add(x[:2])[:, ::2],
    "sorts": lambda x: jnp.sort(x, axis=1) * jnp.argsort(x),
    "transforms": lambda x: jnp.abs(jnp.fft.fft(x)),
    "convolutions": lambda x: lax.conv_general_dilated(x[None, None], TABLE[None, None, :2, :2], (1, 1), "SAME"),
    "decompositions": lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(3)),
    "products": lambda x: jnp.dot(x, x.T, precision="highest", preferred_element_type=jnp.float32),
    "maps": lambda x: jax.vmap(lambda r: r.at[0].set(r.sum()))(x),
    "windows": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    f = PROGRAMS[name]
    loaded = carried(export.export(jax.jit(f))(X), vjp_order=1)
    assert_close(loaded.call(X), f(X))
    assert_close(jax.grad(loss(loaded.call))(X), jax.grad(loss(f))(X))
    assert_close(jax.jit(jax.vmap(loaded.call))(jnp.stack([X, -X])), jnp.stack([f(X), f(-X)]))


def test_what_it_tells():
    exported = export.export(jax.jit(jnp.sin))(S((3, 4), jnp.float32))
    for e in (exported, carried(exported, vjp_order=1)):
        assert (e.fun_name, str(e.in_avals), str(e.out_avals)) == (
            "sin",
            "(ShapedArray(float32[3,4]),)",
            "(ShapedArray(float32[3,4]),)",
        )
        assert (e.platforms, e.nr_devices, str(e.in_tree), str(e.out_tree)) == (
            ("cpu",),
            1,
            "PyTreeDef(((*,), {}))",
            "PyTreeDef(*)",
        )
        assert (e.disabled_safety_checks, e.ordered_effects, e.module_kept_var_idx) == ((), (), (0,))
        assert e.has_vjp() and str(e.vjp().in_avals) == "(ShapedArray(float32[3,4]), ShapedArray(float32[3,4]))"
        assert str(e) == "Exported(fun_name=sin, ...)" and not e.uses_global_constants
    assert not carried(exported).has_vjp()
    assert isinstance(exported.serialize(), bytearray)


def test_orders_of_derivatives():
    cube = export.export(jax.jit(lambda x: x**3))(S((), jnp.float32))
    twice = carried(cube, vjp_order=2)
    assert float(jax.grad(twice.call)(2.0)) == 12 and float(jax.grad(jax.grad(twice.call))(2.0)) == 12
    with pytest.raises(ValueError, match=r"No VJP is available.*vjp_order"):
        jax.grad(jax.grad(jax.grad(twice.call)))(2.0)
    assert float(jax.grad(jax.grad(jax.grad(cube.call)))(2.0)) == 6


def test_trees_and_static_arguments():
    f = jax.jit(lambda d, n, *, k: {"s": d["q"][0] * n + k, "t": (None, d["r"])}, static_argnums=1)
    args = {"q": [jnp.ones(3)], "r": jnp.arange(2)}
    loaded = carried(export.export(f)(args, 5, k=2.0), vjp_order=1)
    found = loaded.call(args, k=2.0)
    assert found["s"].tolist() == [7, 7, 7] and found["t"][0] is None and found["t"][1].tolist() == [0, 1]
    assert jax.grad(lambda x: loaded.call({**args, "q": [x]}, k=2.0)["s"].sum())(jnp.ones(3)).tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="same pytree structure"):
        loaded.call(args)


def test_calls_that_do_not_fit():
    exported = carried(export.export(jax.jit(lambda x, i: x[i]))(X, 0))
    for args, why in (
        ((X[0], 0), r"Rank mismatch for args\[0\]"),
        ((X.astype(int), 0), r"Dtype mismatch for args\[0\]: expected float32"),
        ((X[:2], 0), r"Shape mismatch for args\[0\].shape\[0\]"),
        ((X,), "structural differences"),
    ):
        with pytest.raises(ValueError, match=why):
            exported.call(*args)
    with pytest.raises(ValueError, match="must be the result of `jit`"):
        export.export(lambda x: x)
    with pytest.raises(NotImplementedError, match="Leave callbacks out"):
        export.export(jax.jit(lambda x: jax.pure_callback(np.sin, x, x)))(X).serialize()
    with pytest.raises(NotImplementedError, match="no MLIR form"):
        exported.mlir_module()


def test_functions_of_the_library_need_no_jit():
    exported = carried(export.export(jnp.sin)(X))
    assert exported.fun_name == "sin"
    assert np.array_equal(exported.call(X), jnp.sin(X))
    with pytest.raises(ValueError, match="must be the result of `jit`"):
        export.export(jnp.add)


def test_platforms():
    away = export.export(jax.jit(jnp.sin), platforms=["tpu"])(X)
    with pytest.raises(ValueError, match=r"exported for platforms '\('tpu',\)' but it is used on '\('cpu',\)'"):
        carried(away).call(X)
    both = export.export(jax.jit(jnp.sin), platforms=["tpu", "cpu"])(X)
    unchecked = export.export(
        jax.jit(jnp.sin), platforms=["tpu"], disabled_checks=[export.DisabledSafetyCheck.platform()]
    )(X)
    for e in (both, unchecked):
        assert_close(carried(e).call(X), np.sin(X))
    assert export.default_export_platform() == "cpu"
    assert export.DisabledSafetyCheck.custom_call("f") != export.DisabledSafetyCheck.platform()
    assert export.DisabledSafetyCheck.custom_call("f").is_custom_call() == "f"


def test_meshes():
    devices = np.array(jax.devices()[:8])
    here, there = Mesh(devices, ("x",)), Mesh(devices[::-1], ("x",))
    sharding = NamedSharding(here, P("x"))
    f = jax.jit(
        lambda x: lax.with_sharding_constraint(x * 2, sharding).sum() + x, in_shardings=sharding, out_shardings=sharding
    )
    loaded = carried(export.export(f)(np.arange(8.0)), vjp_order=1)
    assert (loaded.nr_devices, loaded.out_shardings_jax(here)) == (8, (sharding,))
    x = jax.device_put(np.arange(8.0), loaded.in_shardings_jax(there)[0])
    for found, wanted in (
        (loaded.call(x), np.arange(8.0) + 56),
        (jax.grad(lambda x: loaded.call(x).sum())(x), [17] * 8),
    ):
        assert (found.sharding, found.tolist()) == (NamedSharding(there, P("x")), list(wanted))
    for arg in (np.arange(8.0), jax.device_put(np.arange(8.0), NamedSharding(Mesh(devices[:4], ("x",)), P("x")))):
        with pytest.raises(ValueError, match="was exported for 8 devices"):
            loaded.call(arg)
    with pytest.raises(ValueError, match="does not match the mesh used for export"):
        loaded.in_shardings_jax(Mesh(devices, ("y",)))


def test_structs_over_abstract_meshes():
    mesh = AbstractMesh((4,), ("a",))
    over = NamedSharding(mesh, P("a"))
    f = carried(export.export(jax.jit(lambda x: x * 2))(S((32,), jnp.int32, sharding=over)))
    assert f.nr_devices == 4
    assert f.in_shardings_jax(mesh) == (over,)
    with pytest.raises(ValueError, match="exported for 4 devices"):
        f.call(np.arange(32, dtype=np.int32))
    placed = jax.device_put(np.arange(32, dtype=np.int32), over.update(mesh=jax.make_mesh((4,), ("a",))))
    assert f.call(placed).tolist() == list(range(0, 64, 2))


def test_shard_map():
    devices = np.array(jax.devices()[:8])
    sharding = NamedSharding(Mesh(devices, ("x",)), P("x"))
    f = jax.shard_map(lambda x: lax.psum(x, "x"), mesh=sharding.mesh, in_specs=P("x"), out_specs=P())
    loaded = carried(export.export(jax.jit(f))(S((8,), jnp.float32, sharding=sharding)))
    there = NamedSharding(Mesh(devices[::-1], ("x",)), P("x"))
    assert loaded.nr_devices == 8 and loaded.call(jax.device_put(np.arange(8.0), there)).tolist() == [28]


# -- symbolic sizes -----------------------------------------------------------------------------------------------------------------

SIZED = {
    "(a, 2*b)": lambda x: jnp.concatenate([x, x], axis=1),
    "(a*b,)": lambda x: x.reshape(-1),
    "(a, floordiv(b + 1, 2))": lambda x: x[:, ::2],
    "(a - 1, b + 2)": lambda x: jnp.pad(x[1:], ((0, 0), (2, 0))),
    "(a, b)": lambda x: jax.nn.softmax(x / x.shape[1] ** 0.5 + jnp.linspace(0, 1, x.shape[1])),
    "(a, a)": lambda x: jnp.tril(x @ x.T) * x.mean(),
    "(b,)": lambda x: jnp.where(jnp.arange(x.shape[1]) < x.shape[1] // 2, x.var(0), 0.0),
    "()": lambda x: lax.scan(lambda c, r: (c + r.sum(), None), 0.0, x)[0] / x.shape[0],
    "(8*floordiv(a + 7, 8), b)": lambda x: jnp.concatenate([x, jnp.zeros((-x.shape[0] % 8, x.shape[1]))]),
}


@pytest.mark.parametrize("text", SIZED)
def test_symbolic_sizes(text):
    f = SIZED[text]
    shape = export.symbolic_shape("a, b")
    exported = export.export(jax.jit(f))(S(shape, jnp.float32))
    assert str(exported.out_avals[0].shape) == text and str(exported.in_avals) == "(ShapedArray(float32[a,b]),)"
    loaded = carried(exported, vjp_order=1)
    assert str(loaded.out_avals) == str(exported.out_avals) and loaded.uses_global_constants
    for sizes in ((3, 4), (1, 6), (8, 1), (1, 1), (9, 70)):
        x = np.sin(np.arange(sizes[0] * sizes[1], dtype=np.float32)).reshape(sizes)
        for e in (exported, loaded):
            assert_close(e.call(x), f(x))
        assert_close(jax.grad(loss(loaded.call))(x), jax.grad(loss(f))(x))


def test_symbolic_sizes_that_do_not_fit():
    a, b = export.symbolic_shape("a, b", constraints=["a <= 8"])
    loaded = carried(export.export(jax.jit(lambda x: x.sum(0)))(S((2 * a, b), jnp.float32)))
    assert loaded.call(np.ones((4, 3), np.float32)).tolist() == [4, 4, 4]
    for shape, why in (((3, 3), "remainder 1"), ((18, 3), "a <= 8"), ((0, 3), ">= 1")):
        with pytest.raises(ValueError, match=why):
            loaded.call(np.ones(shape, np.float32))
    with pytest.raises(ValueError, match="Cannot solve"):
        export.export(jax.jit(lambda x: x))(S((a * b,), jnp.float32))
    (other,) = export.symbolic_shape("c")
    with pytest.raises(ValueError, match="Invalid mixing"):
        export.export(jax.jit(lambda x, y: x))(S((a,), jnp.float32), S((other,), jnp.float32))
    with pytest.raises(TypeError, match="incompatible shapes") as error:
        export.export(jax.jit(jnp.add))(S((a,), jnp.float32), S((b,), jnp.float32))
    assert "traces the function at several sizes" in error.value.__notes__[0]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_what_holds_from_a_small_size_on_has_programs_of_its_own_below(limit: int):
    """Programs at small sizes that have the same types are not the same programs for that."""
    (b,) = export.symbolic_shape("b")
    made = export.export(jax.jit(lambda x: x * 2 if x.shape[0] > limit else x))(S((b,), jnp.float32))
    loaded = export.deserialize(made.serialize())
    for n in range(1, 10):
        assert float(loaded.call(np.ones(n, np.float32))[0]) == (2 if n > limit else 1)


def test_what_holds_for_no_other_size():
    (b,) = export.symbolic_shape("b")
    branch = export.export(jax.jit(lambda x: x if x.shape[0] > 20 else x + 1))(S((b,), jnp.float32))
    assert branch.call(np.zeros(3, np.float32)).sum() == 3 and branch.call(np.zeros(30, np.float32)).sum() == 0
    with pytest.raises(NotImplementedError, match=r"does other things at other sizes.*export it for numbers"):
        branch.serialize()
    for limit in (7, 12, 200, 10_000):
        long = export.export(jax.jit(lambda x, limit=limit: x if x.shape[0] > limit else x + 1))(S((b,), jnp.float32))
        with pytest.raises(NotImplementedError, match=r"something else at|other things at other sizes"):
            long.serialize()
    rows = jnp.ones(1000)
    added = jax.jit(lambda x: x + rows[: x.shape[0]])
    with pytest.raises(NotImplementedError, match=r"raises TypeError at \{.b.: 1009\}"):
        export.export(added)(S((b,), jnp.float32)).serialize()
    (few,) = export.symbolic_shape("b", constraints=["b <= 1000"])
    loaded = export.deserialize(export.export(added)(S((few,), jnp.float32)).serialize())
    assert loaded.call(np.zeros(1000, np.float32)).sum() == 1000
    table = export.export(jax.jit(lambda x: x * np.arange(x.shape[0]) ** 2.0))(S((b,), jnp.float32))
    with pytest.raises(NotImplementedError, match="closes over an array that depends on the sizes"):
        table.serialize()
    with pytest.raises(NotImplementedError, match="no expression of its symbolic dims"):
        export.export(jax.jit(lambda x: jnp.ones(x.shape[0].bit_length())))(S((b,), jnp.float32))


def test_small_sizes_have_programs_of_their_own():
    (b,) = export.symbolic_shape("b")
    first = carried(
        export.export(jax.jit(lambda x: x[:3].sum() if x.shape[0] > 1 else x[0] * 100))(S((b,), jnp.float32))
    )
    assert [float(first.call(np.ones(n, np.float32))) for n in (1, 2, 3, 40)] == [100, 2, 3, 3]
    five = carried(export.export(jax.jit(lambda x: x[:5]))(S((b,), jnp.float32)))
    assert [five.call(np.ones(n, np.float32)).shape for n in (1, 2, 3, 4, 5, 6, 9)] == [
        *[(n,) for n in range(1, 6)],
        (5,),
        (5,),
    ]
    raises = carried(export.export(jax.jit(lambda x: lax.top_k(x, 2)[0]))(S((b,), jnp.float32)))
    with pytest.raises(ValueError, match=r"\{'b': 1\}: the function raises"):
        raises.call(np.ones(1, np.float32))


def test_exported_functions_call_others():
    a, b = export.symbolic_shape("a, b")
    inner = carried(export.export(jax.jit(lambda x: x.sum(0)))(S((2 * a, b), jnp.float32)))
    outer = export.export(jax.jit(lambda x: inner.call(x) * 2))(S((4, b), jnp.float32))
    assert str(outer.out_avals) == "(ShapedArray(float32[b]),)"
    assert carried(outer).call(np.ones((4, 3), np.float32)).tolist() == [8, 8, 8]


def test_another_process(tmp_path):
    (b,) = export.symbolic_shape("b")
    parameters = {"w": jnp.ones((4, 3)), "b": jnp.zeros(3)}
    f = jax.jit(lambda p, x: jax.nn.relu(x @ p["w"] + p["b"]))
    (tmp_path / "f").write_bytes(export.export(f)(parameters, S((b, 4), jnp.float32)).serialize(vjp_order=1))
    program = (
        "import sys; from pathlib import Path; import shardwise as jax; import shardwise.numpy as jnp\n"
        "from shardwise import export\n"
        "f = export.deserialize(Path(sys.argv[1]).read_bytes())\n"
        "p = {'w': jnp.ones((4, 3)), 'b': jnp.zeros(3)}\n"
        "print(f.call(p, jnp.ones((2, 4))).tolist(), jax.grad(lambda p: f.call(p, jnp.ones((5, 4))).sum())(p)['b'].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "f"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]] [5.0, 5.0, 5.0]"
