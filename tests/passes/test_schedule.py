"""Scheduling groups elementwise equations without changing what a program computes or in which order effects happen."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import Program, ShapedArray, trace_program, verify
from shardwise.passes import schedule as module
from shardwise.passes.schedule import schedule
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.plan import Plan

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for fused loops")

SHAPE = (128, 128)
X = ShapedArray(SHAPE, np.dtype("float32"))


def scheduled(f, *types, env=None) -> tuple[Program, Program]:
    program, _ = trace_program(f, types or (X, X))
    return program, verify(schedule(program, env or Env()))


def names(program: Program) -> list[str]:
    return [e.op.name for e in program.equations]


def groups(program: Program) -> list[list[str]]:
    return [names(e.params["program"]) for e in program.equations if e.op.name == "fused"]


def test_a_chain_is_one_group():
    _, out = scheduled(lambda x, y: [lax.add(lax.mul(lax.sin(x), 2.0), y)])
    assert groups(out) == [["sin", "mul", "add"]]
    assert len(out.equations) == 1


def test_values_used_outside_are_results():
    def f(x, y):
        s = lax.sin(x)
        return [lax.add(s, y), s, lax.sort(lax.exp(s))]

    _, out = scheduled(f)
    assert groups(out) == [["sin", "add", "exp"]]
    assert len(out.equations[0].outputs) == 3


def test_a_group_never_waits_for_itself():
    """sin feeds a product that feeds the sum: sin and the sum are groups of their own."""

    def f(x, y):
        s = lax.sin(x)
        return [lax.add(s, lax.dot(s, y))]

    _, out = scheduled(f)
    assert names(out) == ["fused", "dot_general", "fused"]


def test_producers_move_to_their_only_user():
    def f(x, y):
        return [lax.add(lax.sin(x), lax.dot(x, y))]

    _, out = scheduled(f)
    assert names(out) == ["dot_general", "fused"]
    assert groups(out) == [["sin", "add"]]


def test_small_programs_stay_as_they_are():
    small = ShapedArray((8, 8), np.dtype("float32"))
    before, out = scheduled(lambda x: [lax.sin(lax.neg(x))], small)
    assert out is before


def test_many_devices_make_small_shards_large():
    for vma, found in (({"x"}, [["neg", "sin"]]), ({}, [])):  # what is the same on all devices is stored once
        small = ShapedArray((8, 8), np.dtype("float32"), vma=frozenset(vma))
        _, out = scheduled(lambda x: [lax.sin(lax.neg(x))], small, env=Env(("x",), (512,)))
        assert groups(out) == found


def test_constants_do_not_cut_a_group():
    def f(x):
        e = lax.exp(x - lax.broadcast_in_dim(lax.reduce_max(x, (1,)), SHAPE, (0,)))
        ones = lax.broadcast_in_dim(jnp.float32(1), SHAPE[:1], ())
        scale = lax.div(ones, lax.reduce_sum(e, (1,)))
        zeros = lax.broadcast_in_dim(jnp.float32(0), SHAPE, ())
        return [lax.add(lax.mul(e, lax.broadcast_in_dim(scale, SHAPE, (0,))), zeros)]

    _, out = scheduled(f, X)
    assert [e.op.name for e in out.equations if e.op.name != "broadcast_in_dim"] == ["fused"]


def test_other_shapes_and_varying_axes_do_not_mix():
    rows = ShapedArray((1, 128), np.dtype("float32"))
    _, out = scheduled(lambda x, r: [lax.add(x, lax.exp(r))], X, rows)
    assert names(out) == ["exp", "fused"]
    varying = ShapedArray(SHAPE, np.dtype("float32"), vma=frozenset("x"))
    _, out = scheduled(lambda x, y: [lax.add(lax.exp(x), y)], X, varying, env=Env(("x",), (2,)))
    assert groups(out) == [["exp"], ["add"]]


def test_sums_of_complex_values_are_left_alone():
    c = ShapedArray(SHAPE, np.dtype("complex64"))
    before, out = scheduled(lambda c: [lax.reduce_sum(c, (0,)), lax.reduce_sum(c, (1,))], c)
    assert out is before


def test_copies_alone_are_not_a_group():
    before, out = scheduled(lambda x: [lax.stop_gradient(x)], X)
    assert out is before


def test_long_chains_are_cut():
    def f(x):
        for _ in range(250):
            x = lax.sin(x)
        return [x]

    _, out = scheduled(f, X)
    assert [len(g) for g in groups(out)] == [96, 96, 58]


def all_with_all(x, y):
    """Many values, each of which is read until the end."""
    values = [lax.mul(x, float(i)) for i in range(16)]
    for step in (3, 5):
        values = [lax.sub(a, b) for a, b in zip(values, values[step:] + values[:step], strict=True)]
    return [reduce(lax.add, values)]


def narrow_and_wide(x, y):
    for _ in range(6):
        x = lax.add(x, y)
    return all_with_all(x, y)


@pytest.mark.parametrize(
    ("f", "most", "lengths"),
    [
        (all_with_all, 100, [63]),
        (all_with_all, 62, [62, 1]),  # it ends with a sum
        (all_with_all, 40, [32, 31]),
        (narrow_and_wide, 100, [6, 63]),  # one value crosses
    ],
)
def test_groups_are_cut_where_few_values_cross(f, most, lengths, monkeypatch):
    for name, value in (("FUSED_GROUP", 8), ("FUSED_CUT_VALUES", 2), ("FUSED_GROUP_MOST", most)):
        monkeypatch.setattr(costs, name, value)
    before, out = scheduled(f)
    assert [len(g) for g in groups(out)] == lengths
    xs = [np.random.default_rng(i).normal(size=SHAPE).astype(np.float32) for i in range(2)]
    np.testing.assert_array_equal(Plan(before, Env()).run(*xs)[0], Plan(out, Env()).run(*xs)[0])


def test_without_a_compiler_reductions_are_not_fused(monkeypatch):
    monkeypatch.setattr(module, "available", lambda: False)
    _, out = scheduled(lambda x, y: [lax.add(lax.sin(x), y)])
    assert [e.op.name for e in out.equations] == ["fused"]
    before, out = scheduled(lambda x, y: [lax.reduce_max(x, (1,))])
    assert out is before


STEPS = {
    "sin": lambda x, y: lax.sin(x), "add": lambda x, y: lax.add(x, y), "max": lambda x, y: lax.max(x, y),
    "dot": lambda x, y: lax.mul(lax.dot(x, y), 1 / 128), "sum": lambda x, y: lax.broadcast_in_dim(lax.reduce_max(x, (1,)), SHAPE, (0,)),
    "turn": lambda x, y: lax.transpose(x, (1, 0)), "tanh": lambda x, y: lax.tanh(lax.sub(x, y)),
}  # fmt: skip


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=14
    ),
    st.integers(1, 4),
)
def test_programs_compute_the_same(graph, results):
    def f(x, y):
        known = [x, y]
        for name, i, j in graph:
            known.append(STEPS[name](known[i % len(known)], known[j % len(known)]))
        return known[-results:]

    before, out = scheduled(f)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=SHAPE).astype(np.float32) for _ in range(2))
    for got, want in zip(Plan(out, Env()).run(x, y), Plan(before, Env()).run(x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


def test_effects_keep_their_order():
    import shardwise as jax

    seen = []

    def f(x):
        jax.debug.callback(lambda v: seen.append("first"), x[0, 0])
        y = lax.sin(x)
        jax.debug.callback(lambda v: seen.append("second"), y[0, 0])
        z = lax.add(y, lax.cos(x))
        jax.debug.callback(lambda v: seen.append("third"), z[0, 0])
        return lax.mul(z, lax.exp(x))

    if not hasattr(getattr(jax, "debug", None), "callback"):
        pytest.skip("no callbacks")
    jax.jit(f)(np.ones(SHAPE, np.float32))
    jax.effects_barrier() if hasattr(jax, "effects_barrier") else None
    assert seen == ["first", "second", "third"]


def test_loops_that_a_small_program_holds_are_left_to_it():
    def ops_inside(step, rows, columns):
        _, out = scheduled(
            lambda x: [lax.fori_loop(0, 3, lambda i, c: step(c), x)], ShapedArray((rows, columns), np.dtype("float32"))
        )
        (eqn,) = out.equations
        return "fused" in [e.op.name for e in eqn.params["body"].equations]

    def wave(c):
        return lax.sin(lax.mul(c, 2.0))

    def turned(c):
        return lax.transpose(wave(lax.transpose(wave(c), (1, 0))), (1, 0))

    assert not ops_inside(wave, 128, costs.SMALL_LARGEST_IN_LOOPS // 128)
    assert ops_inside(wave, 128, costs.SMALL_LARGEST_IN_LOOPS // 128 + 1)
    few = lambda c: lax.add(lax.mul(c, 2.0), 1.0)  # noqa: E731
    assert not ops_inside(few, 128, costs.SMALL_LARGEST_IN_LIGHT_LOOPS // 128)
    assert ops_inside(few, 128, costs.SMALL_LARGEST_IN_LIGHT_LOOPS // 128 + 1)
    assert not ops_inside(turned, 128, costs.SMALL_LARGEST // 128)
    assert ops_inside(turned, 128, costs.SMALL_LARGEST_IN_LOOPS // 128)  # its elements lie a row apart
    assert not ops_inside(lambda c: lax.cumsum(wave(c), 0), 128, costs.SMALL_LARGEST // 128)
    assert ops_inside(lambda c: lax.cumsum(wave(c), 1), 128, costs.SMALL_LARGEST // 128)  # its kernel goes along rows


def test_bodies_of_loops_are_scheduled():
    def f(x):
        return [lax.fori_loop(0, 3, lambda i, c: lax.sin(lax.mul(c, 2.0)), x)]

    shape = (256, 256)
    before, out = scheduled(f, ShapedArray(shape, np.dtype("float32")))
    assert "fused" in str([e.params for e in out.equations])
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(Plan(out, Env()).run(x)[0], Plan(before, Env()).run(x)[0], rtol=1e-5, atol=1e-5)


def test_a_callback_may_read_what_a_loop_reduces():
    seen = []

    @jax.jit
    def f(x):
        rows = jnp.exp(x).sum(1)
        jax.debug.callback(seen.append, rows)
        return rows

    expected = f(np.ones((512, 128), np.float32))
    jax.effects_barrier()
    np.testing.assert_array_equal(seen, [expected])


def test_what_meets_reductions_in_a_later_group_is_a_group_without_their_loops():
    """There is nothing to reduce in it, and what squeezes pieces of the reduced dim stays outside."""

    def f(x):
        most = lax.reduce_max(x, (1,))
        placed = lax.sort(lax.concatenate([x[:, :1], lax.expand_dims(most, (1,)), x[:, 2:]], 1), dimension=0)
        red, green = (lax.squeeze(lax.slice_in_dim(placed, i, i + 1, axis=1), (1,)) for i in range(2))
        span = lax.sub(most, lax.reduce_min(x, (1,)))
        return [lax.select(lax.eq(most, red), lax.div(lax.sub(green, red), span), lax.mul(most, 2.0)), most, span]

    _, out = scheduled(f, ShapedArray((20_000, 3), np.dtype("float32")))
    first, second = groups(out)
    assert {"reduce_max", "reduce_min", "sub"} <= set(first)
    assert second == ["eq", "sub", "div", "mul", "select_n"]


def test_pieces_of_the_reduced_dim_meet_its_reductions_in_one_group():
    def f(x):
        red, green = (lax.squeeze(lax.slice_in_dim(x, i, i + 1, axis=1), (1,)) for i in range(2))
        most = lax.reduce_max(x, (1,))
        return [lax.select(lax.eq(most, red), lax.sub(green, red), lax.mul(most, 2.0))]

    _, out = scheduled(f, ShapedArray((20_000, 3), np.dtype("float32")))
    (group,) = groups(out)
    assert {"reduce_max", "eq", "select_n"} <= set(group)
