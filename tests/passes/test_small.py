"""Small regions become one equation each: what joins, what stays outside, in which order things happen."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import Program, ShapedArray, trace_program, verify
from shardwise.passes.inline import inline_calls
from shardwise.passes.small import find_small
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan
from shardwise.runtime.small.kernel import available

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
X = ShapedArray((6,), np.dtype("float32"))


def found(f, *types, env=None) -> tuple[Program, Program]:
    program = inline_calls(trace_program(f, types or (X, X))[0])
    return program, verify(find_small(program, env or Env()))


def names(program: Program) -> list[str]:
    return [e.op.name for e in program.equations]


def chain(x, n=8):
    for _ in range(n):
        x = lax.sin(x)
    return x


def test_the_pass_needs_no_import_before_it():
    command = "import shardwise.passes.small, shardwise.runtime.small.forms"
    subprocess.run([sys.executable, "-c", command], check=True, timeout=120)


def test_a_chain_is_one_region():
    _, out = found(lambda x, y: [lax.add(chain(x), y)])
    assert names(out) == ["small"]
    assert names(out.equations[0].params["program"]) == ["sin"] * 8 + ["add"]


def test_few_ops_stay_as_they_are():
    program, out = found(lambda x, y: [chain(x, 3), lax.add(x, y)])
    assert out is program


@pytest.mark.parametrize(
    ("f", "joined"),
    [
        (lambda x, y: [-jnp.pad(lax.reshape(x, (2, 3)), 1, mode="edge")], [True]),
        (lambda x, y: [jnp.pad(x, 1)], [True]),
        (lambda x, y: [jnp.pad(lax.reshape(x, (2, 3)), 2, mode="wrap") + 1], [True]),
        (lambda x, y: [lax.concatenate([x, y], 0)], []),
        (lambda x, y: [jnp.roll(x, 1), lax.neg(y)], []),
        (
            lambda x, y: [lax.sin(jnp.pad(lax.reshape(x, (2, 3)), 1, mode="edge"))],
            [],
        ),  # the kernel of sin rounds otherwise
    ],
)
def test_moves_of_several_pieces_count_as_several_calls(f, joined):
    """Few equations that join pieces are compiled once they are called often: that changes no bit."""
    program, out = found(f)
    assert [e.params["patient"] for e in out.equations if e.op.name == "small"] == joined
    x, y = np.array([np.nan, -0.0, 1, np.inf, 2, 3], np.float32), np.arange(6, dtype=np.float32)
    run, plain = Plan(out, Env()).run, Plan(program, Env()).run
    for _ in range(20):
        np.testing.assert_array_equal(np.asarray(run(x, y)).view(np.int32), np.asarray(plain(x, y)).view(np.int32))


@pytest.mark.parametrize(("devices", "joined"), [(1, False), (8, False), (64, True), (512, True)])
def test_much_elementwise_work_counts_as_several_ops(devices, joined):
    env = Env(("x",), (devices,))
    x = ShapedArray((8,), np.dtype("float32"), vma=frozenset("x"))
    program, out = found(lambda x: [2 * jnp.sin(x) + 1], x, env=env)
    assert names(out) == (["small"] if joined else ["sin", "mul", "add"])
    value = np.linspace(-9, 9, devices * 8, dtype=np.float32).reshape(devices, 8)
    (result,) = Plan(out, env).run(value)
    (expected,) = Plan(program, env).run(value)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("f", "compiled"), [(jnp.sin, True), (jnp.sign, True), (jnp.exp, False), (jnp.abs, False)])
def test_functions_that_numpy_computes_slowly_are_compiled(f, compiled):
    _, out = found(lambda x: [f(x)], ShapedArray((4000,), np.dtype("float32")))
    assert (names(out) == ["small"]) is compiled


@pytest.mark.parametrize(("floats", "kernel"), [(1, "all_reduce"), (1024, "small")])
def test_sums_over_devices_are_compiled_where_numpy_takes_long(floats, kernel):
    n = sw.device_count()
    mesh = sw.make_mesh((n,), ("x",))
    f = sw.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=sw.P("x"), out_specs=sw.P())
    x = np.arange(n * floats, dtype=np.float32).reshape(n, floats)
    assert names(sw.jit(f).lower(x).compile().runtime_executable().plan.program) == [kernel]
    np.testing.assert_allclose(np.asarray(sw.jit(f)(x)), x.sum(0, keepdims=True), rtol=1e-6)


def test_much_elementwise_work_is_compiled():
    plan = sw.jit(lambda x: 2 * jnp.sin(x) + 1).lower(np.ones(8192, np.float32)).compile().runtime_executable().plan
    assert names(plan.program) == ["small"]


def test_values_used_outside_are_results():
    def f(x, y):
        s = chain(x)
        return [s, lax.igamma_grad_a(lax.mul(s, y), y), lax.sub(s, y)]

    _, out = found(f)
    assert names(out) == ["small", "igamma_grad_a"]
    assert len(out.equations[0].outputs) == 3


def test_a_region_never_waits_for_itself():
    def f(x, y):
        s = chain(x)
        return [lax.add(chain(lax.igamma_grad_a(s, s)), s)]

    program, out = found(f)
    assert names(out) == ["small", "igamma_grad_a", "small"]
    x = np.linspace(0, 1, 6, dtype=np.float32)
    for a, b in zip(Plan(out, Env()).run(x, x), Plan(program, Env()).run(x, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("shape", [(1 << 15,), (0,), (4, 1 << 13)])
def test_large_and_empty_values_are_left_to_others(shape):
    program, out = found(lambda x: [chain(x)], ShapedArray(shape, np.dtype("float32")))
    assert out is program


def test_size_counts_on_all_devices():
    env = Env(("x",), (64,))
    aval = ShapedArray((1000,), np.dtype("float32"), vma=frozenset("x"))
    program, out = found(lambda x: [chain(x)], aval, env=env)
    assert out is program
    assert names(found(lambda x: [chain(x)], aval, env=Env(("x",), (8,)))[1]) == ["small"]
    assert names(found(lambda x: [chain(x)], ShapedArray((1000,), aval.dtype), env=env)[1]) == ["small"]  # stored once


def test_types_without_a_register_are_left_to_numpy():
    program, out = found(lambda x: [chain(x)], ShapedArray((6,), np.dtype(ml_dtypes.float8_e5m2)))
    assert out is program


def test_long_programs_are_cut():
    _, out = found(lambda x, y: [chain(x, 700)])
    assert names(out) == ["small"] * 3


def test_loops_and_branches_go_in_whole():
    def f(x, y):
        def step(c, row):
            return lax.cond(row > 0, lambda c: c + row, lambda c: c * 2.0, c), row

        c, ys = lax.scan(step, x, y)
        return [c, ys, lax.while_loop(lambda v: v[0] < 5.0, lambda v: v + 1.0, x)]

    _, out = found(f)
    assert names(out) == ["small"]
    assert names(out.equations[0].params["program"]) == ["scan", "while"]


def test_bodies_that_cannot_go_in_have_regions_of_their_own():
    _, out = found(lambda x, y: [lax.fori_loop(0, 9, lambda i, c: chain(lax.igamma_grad_a(chain(c, 4), c), 4), x)])
    assert names(out) == ["scan"]
    assert sorted(names(out.equations[0].params["body"])) == ["igamma_grad_a", "small", "small"]


def test_effects_keep_their_order():
    seen = []

    @sw.jit
    def f(x):
        for k in range(4):
            x = jnp.sin(chain(x, 6)) if k % 2 else x * 2
            sw.debug.callback(lambda v, k=k: seen.append((k, float(v))), x[0], ordered=True)
        return chain(x, 9)

    f(jnp.ones(5)).block_until_ready()
    sw.effects_barrier()
    assert [k for k, _ in seen] == [0, 1, 2, 3]
