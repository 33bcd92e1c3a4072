"""trace, lower, compile: what each stage tells, and what calling a Compiled checks."""

from __future__ import annotations

import threading
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, stages
from shardwise.base import config
from shardwise.base.config import use_dialect
from shardwise.engine import executable
from shardwise.ops import control
from shardwise.ops.devices import parallel
from shardwise.sharding import AxisType, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from shardwise.sharding.formats import Format
from shardwise.transforms.jit.jaxpr import eval_shape, make_jaxpr

FIRST_DIM = (((1,), (0,)), ((), ()))


@pytest.fixture(scope="module")
def mesh():
    return sw.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def host(*shape, dtype=np.float32):
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


def placed(mesh, spec, *shape):
    return sw.device_put(host(*shape), NamedSharding(mesh, spec))


def scaled(x, w, n, *, k):
    return {"a": lax.mul(lax.sin(x), float(n)), "b": w["p"]}


@pytest.fixture
def traced(mesh):
    wrapped = sw.jit(scaled, static_argnums=2, donate_argnums=0)
    return wrapped.trace(placed(mesh, P("x", "y"), 8, 8), {"p": sw.ShapeDtypeStruct((8, 8), np.float32)}, 3, k=1.0)


def matmul(a, b):
    return lax.dot_general(lax.sin(a), b, FIRST_DIM)


# -- what the stages tell ------------------------------------------------------------------------------------------------


def test_members_of_traced(traced):
    assert str(traced.in_avals) == (
        "((ShapedArray(float32[8,8]), {'p': ShapedArray(float32[8,8])}), {'k': ShapedArray(float32[], weak_type=True)})"
    )
    assert str(traced.out_avals) == "{'a': ShapedArray(float32[8,8]), 'b': ShapedArray(float32[8,8])}"
    assert traced.out_info["a"] == stages.OutInfo((8, 8), np.dtype(np.float32))
    assert traced.eval_shape()["a"] == sw.ShapeDtypeStruct((8, 8), np.float32)
    (x, w), kwargs = traced.args_info
    assert (x.donated, w["p"].donated, kwargs["k"].donated) == (True, False, False)
    assert (x.shape, x.dtype) == ((8, 8), np.float32)
    assert str(traced.in_tree) == "PyTreeDef(((*, {'p': *}), {'k': *}))"
    assert str(traced.out_tree) == "PyTreeDef({'a': *, 'b': *})"
    assert (traced.fun_name, traced.donate_argnums) == ("scaled", (0,))
    assert [e.op.name for e in traced.jaxpr.eqns] == ["sin", "mul"]


def test_later_stages_repeat_the_signature(traced):
    lowered = traced.lower()
    compiled = lowered.compile()
    for stage in (lowered, compiled):
        for member in ("in_avals", "out_avals", "args_info", "in_tree", "out_tree", "donate_argnums", "fun_name"):
            assert getattr(stage, member) == getattr(traced, member), member
    assert lowered.out_info == traced.out_info


def test_stages_print_as_in_jax(traced, mesh):
    jax = pytest.importorskip("jax")
    with use_dialect("latest"):
        theirs = jax.jit(
            lambda x, w, n, *, k: {"a": jax.lax.sin(x) * n, "b": w["p"]}, static_argnums=2, donate_argnums=0
        )
        spec = jax.sharding.NamedSharding(
            jax.make_mesh((2, 4), ("x", "y"), (jax.sharding.AxisType.Auto,) * 2), jax.P("x", "y")
        )
        struct = jax.ShapeDtypeStruct((8, 8), np.float32)
        stage = theirs.trace(jax.device_put(host(8, 8), spec), {"p": struct}, 3, k=1.0)
        for member in (
            "jaxpr",
            "in_avals",
            "out_avals",
            "out_info",
            "args_info",
            "in_tree",
            "out_tree",
            "donate_argnums",
        ):
            assert str(getattr(traced, member)) == str(getattr(stage, member)), member
        ours, theirs_compiled = traced.lower().compile(), stage.lower().compile()
        for member in ("input_shardings", "output_shardings"):
            assert str(getattr(ours, member)) == str(getattr(theirs_compiled, member)), member


def test_shardings_and_formats_of_compiled(traced, mesh):
    compiled = traced.lower().compile()
    (x, w), kwargs = compiled.input_shardings
    assert x == NamedSharding(mesh, P("x", "y"))
    assert w["p"] == NamedSharding(mesh, P())
    assert kwargs == {"k": None}  # not used
    assert compiled.output_shardings["a"] == NamedSharding(mesh, P("x", "y"))
    assert compiled.out_info["a"].sharding == NamedSharding(mesh, P("x", "y"))
    assert compiled.input_formats[1]["k"] == Format(None, None)
    assert compiled.output_formats["a"].layout.major_to_minor == (0, 1)


def test_input_shardings_without_a_committed_argument(mesh):
    out = NamedSharding(mesh, P("x"))
    compiled = sw.jit(lax.sin, out_shardings=out).lower(host(8)).compile()
    ((x,), _) = compiled.input_shardings
    assert x == NamedSharding(mesh, P())
    assert compiled.output_shardings == out
    ((x,), _) = sw.jit(lax.sin).lower(host(8)).compile().input_shardings
    assert x == SingleDeviceSharding(sw.devices()[0])


def test_functions_are_lowered_for_traced_arguments():
    found = []
    inner = sw.jit(lambda x: lax.sin(x) * 2)

    def seen(x):
        found.append(inner.lower(x).compile())
        return x.sum()

    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    sw.jit(seen)(x)
    sw.grad(seen)(x)
    sw.vmap(seen)(x)
    for compiled, at in zip(found, (x, x, x[0]), strict=True):
        np.testing.assert_array_equal(compiled(at), inner(at))


def test_lowered_text_has_layouts_and_compiled_text_collectives(mesh):
    lowered = sw.jit(matmul).lower(placed(mesh, P("x", "y"), 8, 8), placed(mesh, P("y"), 8, 8))
    text = lowered.as_text()
    assert "mesh ('x': 2, 'y': 4)" in text
    assert "a:f32[8@x,8@y] b:f32[8@y,8]" in text
    assert "f32[8@x,8] = dot_general" in text
    assert "test_stages.py" in lowered.as_text(debug_info=True)
    assert "test_stages.py" not in text
    assert str(lowered.compiler_ir()) in text
    text = lowered.compile().as_text()
    assert "a:f32[4,2] b:f32[2,8]" in text
    assert "sum_axes=('y',)" in text


def test_unknown_dialects(traced):
    lowered = traced.lower()
    with pytest.raises(ValueError, match="unknown dialect"):
        lowered.as_text("foo")
    with pytest.raises(NotImplementedError, match="XLA"):
        lowered.compiler_ir("stablehlo")
    with pytest.raises(NotImplementedError, match="lowering_platforms"):
        traced.lower(lowering_platforms=("tpu",))
    with pytest.raises(sw.errors.JaxRuntimeError, match="No such compile option: 'flag'"):
        lowered.compile({"flag": True})
    lowered.compile(
        {"xla_flag": True, "optimization_level": 9, "memory_fitting_effort": 0.0}
    )  # steers XLA, which is not here


def test_explain_names_each_collective_its_bytes_and_its_cause(mesh):
    lowered = sw.jit(matmul).lower(placed(mesh, P("x", "y"), 8, 8), placed(mesh, P("y", "x"), 8, 8))
    text = lowered.explain()
    assert "a: f32[8@x,8@y], 32 bytes per device" in text
    assert "collectives: 2, sending 224 bytes per device" in text
    assert "all_gather over x of f32[8,8]: 32 bytes, inserted for dot_general at test_stages.py:" in text
    assert "all_reduce over y of f32[8,8]: 192 bytes" in text
    assert text in lowered.compile().explain()
    assert "propagate" in lowered.compile().explain()
    assert "collectives: none" in sw.jit(lax.sin).lower(host(8)).explain()


def test_explain_of_written_collectives(mesh):
    body = sw.shard_map(lambda x: parallel.psum(x, "x"), mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y"))
    lowered = sw.jit(body).lower(placed(mesh, P("x", "y"), 8, 8))
    assert lowered.cost_analysis()["flops"] > 0
    text = lowered.explain()
    assert "all_reduce over x" in text
    assert "written by the program" in text


def test_costs(mesh):
    lowered = sw.jit(matmul).lower(placed(mesh, P("x", "y"), 8, 8), placed(mesh, P("y", "x"), 8, 8))
    whole, cost = lowered.cost_analysis(), lowered.compile().cost_analysis()
    assert whole["flops"] == 2 * 8 * 8 * 8
    assert whole["transcendentals"] == 64
    assert cost["flops"] == 2 * 4 * 8 * 2
    assert cost["transcendentals"] == 8
    assert cost["collective bytes"] == 224
    assert cost["bytes accessed"] == 4 * (8 + 8 + 8 + 16 + 8 + 16 + 32)


def test_costs_of_loops_and_halos(mesh):
    def loop(x):
        return control.scan(
            lambda c, row: (lax.add(c, row), lax.reduce_sum(row, (0,))), lax.index_in_dim(x, 0, keepdims=False), x
        )

    cost = sw.jit(loop).lower(placed(mesh, P(None, "y"), 5, 8)).compile().cost_analysis()
    assert cost["collective bytes"] == 5 * (2 * 3 * 4 // 4)  # an all-reduce of one float over 4 devices per step
    # The sum over devices is part of the reduction. The carry is a sum over all steps, which is added to what it begins with.
    assert cost["flops"] == 5 * 2 + (5 * 2 + 2)
    shifted = sw.jit(lambda x: lax.slice(x, (1,), (9,))).lower(placed(mesh, P("y"), 12)).compile()
    assert (
        shifted.cost_analysis()["collective bytes"] == sum(t.bytes for t in shifted.runtime_executable().transfers) > 0
    )


def test_memory(mesh):
    def f(x):
        y = lax.sin(x)
        return lax.add(lax.cos(y), y)

    x = placed(mesh, P("x", "y"), 8, 8)
    memory = sw.jit(f, donate_argnums=0).lower(x).compile().memory_analysis()
    assert (memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.alias_size_in_bytes) == (32, 32, 32)
    assert memory.temp_size_in_bytes == 64
    assert memory.peak_memory_in_bytes == 32 + 32 + 64 - 32
    assert memory.generated_code_size_in_bytes > 0
    assert sw.jit(lambda x: x).lower(host(4)).compile().memory_analysis().temp_size_in_bytes == 0


# -- calling -----------------------------------------------------------------------------------------------------------------


def test_call_leaves_static_arguments_out(traced, mesh):
    compiled = traced.lower().compile()
    x = placed(mesh, P("x", "y"), 8, 8)
    out = compiled(x, {"p": host(8, 8)}, k=2.0)
    np.testing.assert_allclose(out["a"], 3 * np.sin(host(8, 8)), rtol=1e-6)
    np.testing.assert_array_equal(out["b"], host(8, 8))
    assert out["a"].sharding == NamedSharding(mesh, P("x", "y"))
    assert x.is_deleted()  # donated


def test_uncommitted_arguments_are_moved(mesh):
    compiled = (
        sw.jit(lax.sin).lower(sw.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("x")))).compile()
    )
    for x in (host(8, 8), lax.add(host(8, 8), 0.0)):
        out = compiled(x)
        assert out.sharding == NamedSharding(mesh, P("x"))
        np.testing.assert_allclose(out, np.sin(host(8, 8)), rtol=1e-6)


def test_scalars_and_weak_types_pass():
    compiled = sw.jit(lax.add).lower(host(), 1.0).compile()
    assert float(compiled(np.float32(2), 3.0)) == 5
    assert float(compiled(host(), np.float32(3))) == 3


def test_captured_arrays_stay_captured(mesh):
    w = placed(mesh, P("x"), 8)
    compiled = sw.jit(lambda x: lax.mul(x, w)).lower(host(8)).compile()
    np.testing.assert_array_equal(compiled(host(8)), host(8) ** 2)


def test_wrong_tree(traced, mesh):
    compiled = traced.lower().compile()
    x = placed(mesh, P("x", "y"), 8, 8)
    with pytest.raises(
        TypeError, match=r"at args, compiled for tuple of length 2 but called with tuple of length 3[\s\S]*Static"
    ):
        compiled(x, {"p": x}, 3, k=1.0)
    with pytest.raises(TypeError, match=r"does not match the input pytree.*\n.*at args\[1\].*'p'.*'q'"):
        compiled(x, {"q": x}, k=1.0)
    assert not x.is_deleted()


def test_wrong_types_are_all_listed(traced, mesh):
    compiled = traced.lower().compile()
    with pytest.raises(TypeError) as error:
        compiled(placed(mesh, P("x", "y"), 8, 8), {"p": host(8, 4)}, k=1)
    text = str(error.value)
    assert "Argument 'w['p']' compiled with float32[8,8] and called with float32[8,4]" in text
    assert "Argument 'k' compiled with float32[] and called with int32[]" in text


@pytest.mark.parametrize("dialect", ["seed", "latest"])
def test_wrong_shardings_are_all_listed(mesh, dialect):
    with use_dialect(dialect):
        x = placed(mesh, P("x", "y"), 8, 8)
        compiled = sw.jit(matmul).lower(x, x).compile()
        other = placed(mesh, P("y", "x"), 8, 8)
        with pytest.raises(ValueError, match="Here are the 2 mismatches") as error:
            compiled(other, other)
        assert str(NamedSharding(mesh, P("y", "x"))) in str(error.value)
        assert str(NamedSharding(mesh, P("x", "y"))) in str(error.value)
        alike = sw.device_put(host(8, 8), NamedSharding(mesh, P(("x",), ("y",))))
        compiled(alike, alike)


def test_compiled_refuses_tracers():
    compiled = sw.jit(lax.sin).lower(host(8)).compile()
    with pytest.raises(TypeError, match="Detected argument of Tracer type"):
        sw.jit(lambda x: compiled(x))(host(8))


def test_indivisible_struct_is_refused_when_traced(mesh):
    struct = sw.ShapeDtypeStruct((7,), np.float32, sharding=NamedSharding(mesh, P("x")))  # no check here
    with pytest.raises(ValueError, match=r"partitioned 2 times, but the dimension size is 7"):
        sw.jit(lax.sin).lower(struct)


def test_lower_needs_one_list_of_devices(mesh):
    x, y = placed(mesh, P("x"), 8), sw.device_put(host(8), sw.devices()[3])
    with pytest.raises(ValueError, match="incompatible devices"):
        sw.jit(lax.add).lower(x, y)


# -- types and programs without data -------------------------------------------------------------------------------------


def test_eval_shape(mesh):
    class Shaped:
        shape = (3,)
        dtype = np.dtype(np.float32)

    assert eval_shape(lax.sin, Shaped()) == sw.ShapeDtypeStruct((3,), np.float32)
    out = eval_shape(lambda p, *, n: {"y": lax.mul(p["x"], n)}, {"x": sw.ShapeDtypeStruct((2, 3), np.float32)}, n=2.0)
    assert out == {"y": sw.ShapeDtypeStruct((2, 3), np.float32)}
    assert sw.jit(lax.sin).eval_shape(host(5)).shape == (5,)
    assert sw.jit(lambda x: host(*eval_shape(lax.sin, x).shape))(host(4)).shape == (4,)  # inside a trace
    with pytest.raises(TypeError):
        eval_shape(lax.add, Shaped(), sw.ShapeDtypeStruct((4,), np.float32))


def test_eval_shape_keeps_explicit_shardings():
    explicit = sw.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    out = eval_shape(lax.sin, placed(explicit, P("x", "y"), 8, 8))
    assert out.sharding.spec == P("x", "y")
    struct = sw.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(explicit, P("x")))
    assert eval_shape(lax.cos, struct).sharding.spec == P("x", None)


def test_make_jaxpr_prints_programs():
    assert str(make_jaxpr(lax.sin)(host(3))) == "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }"
    closed, shape = make_jaxpr(lambda x, n: {"r": lax.mul(x, float(n))}, static_argnums=1, return_shape=True)(
        host(3), 2
    )
    assert [e.op.name for e in closed.eqns] == ["mul"]
    assert shape == {"r": sw.ShapeDtypeStruct((3,), np.float32)}
    assert (str(closed.in_avals), str(closed.out_avals)) == ("[ShapedArray(float32[3])]",) * 2
    w = lax.add(host(3), 1.0)
    closed = make_jaxpr(lambda x: lax.mul(x, w))(host(3))
    assert str(closed).startswith("{ lambda a:f32[3]; b:f32[3]. let")
    assert closed.consts[0] is w and len(closed.consts) == 1
    assert "jit" in str(make_jaxpr(sw.jit(lax.sin))(host(3)))
    with pytest.raises(TypeError, match="callable"):
        make_jaxpr(cast(Any, 3))


def test_make_jaxpr_shows_explicit_shardings():
    explicit = sw.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    text = str(make_jaxpr(lax.sin)(placed(explicit, P("x", "y"), 8, 8)))
    assert "b:f32[8@x,8@y] = sin a" in text


def test_make_jaxpr_with_axes_in_scope():
    closed = make_jaxpr(lambda x: parallel.psum(x, "i"), axis_env=[("i", 4)])(host(3))
    assert closed.eqns[0].params["axes"] == ("i",)
    with pytest.raises(NameError):
        make_jaxpr(lambda x: parallel.psum(x, "i"))(host(3))


def test_programs_are_scheduled_when_they_are_compiled(monkeypatch):
    """To lower partitions a program only. What it is scheduled for, settings included, is what holds when it is compiled."""
    done = []
    before = executable.schedule_module

    def scheduled(*args):
        done.append(before(*args))
        return done[-1]

    monkeypatch.setattr(executable, "schedule_module", scheduled)
    x = np.arange(8.0, dtype=np.float32)
    lowered = sw.jit(lambda x: jnp.log(x)).lower(x)
    assert lowered.cost_analysis()["transcendentals"] == 8
    assert "log" in lowered.as_text()
    assert "peak memory" not in lowered.as_text()
    assert not done
    with config.override("jax_debug_infs", True):
        compiled = lowered.compile()
    assert len(done) == 1
    with pytest.raises(FloatingPointError, match="inf"):
        compiled(x)
    np.testing.assert_allclose(lowered.compile()(x + 1), np.log(x + 1), rtol=1e-6)
    assert len(done) == 1


def test_threads_may_compile_what_one_has_lowered():
    x = np.arange(64.0, dtype=np.float32)
    lowered = sw.jit(lambda x: (jnp.sin(x) * 2, x.sum())).lower(x)
    found = []
    threads = [threading.Thread(target=lambda: found.append(lowered.compile()(x))) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 6
    for twice, total in found:
        np.testing.assert_allclose(twice, 2 * np.sin(x), rtol=1e-5)
        assert float(total) == x.sum()


def test_what_is_compiled_is_logged_once(caplog):
    with config.override("jax_log_compiles", True):
        lowered = sw.jit(lambda x: jnp.sin(x)).lower(1.0)
        assert not caplog.messages
        lowered.compile()
        lowered.compile()
        (message,) = caplog.messages
        assert message.startswith("Compiled <lambda> in ")
        sw.jit(lambda x: jnp.cos(x))(1.0)
        assert len(caplog.messages) == 2
