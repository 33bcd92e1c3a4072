"""Loops, branches and barriers give only results that somebody reads."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ad_checkpoint import checkpoint_name
from shardwise.ir import ShapedArray, region_of, trace_program, verify
from shardwise.passes.inline import inline_calls
from shardwise.passes.live_results import live_results
from shardwise.passes.simplify import simplify

X = ShapedArray((4, 4), np.dtype("float32"))
N = ShapedArray((), np.dtype("int32"))
RNG = np.random.default_rng(0)


def live(f, *types):
    return verify(live_results(inline_calls(trace_program(f, types or (X,))[0])))


def loops(program):
    """The equations that run programs, those inside of others included."""
    for eqn in program.equations:
        region = region_of(eqn)
        if region is not None:
            yield eqn
            for inner in region.programs:
                yield from loops(inner)


def names(program):
    return [e.op.name for e in program.equations]


def test_a_program_of_live_results_stays_the_same_object():
    program = inline_calls(
        trace_program(lambda x: list(lax.scan(lambda c, _: (lax.sin(c), c), x, None, length=3)), [X])[0]
    )
    assert live_results(program) is program


def test_stacked_results_that_nobody_reads():
    (loop,) = loops(live(lambda x: [lax.scan(lambda c, _: (lax.sin(c), (lax.exp(c), c)), x, None, length=3)[0]]))
    assert len(loop.outputs) == 1
    assert names(loop.params["body"]) == ["sin"]


def test_operands_that_only_dead_results_follow_from():
    def f(x, y, rows):
        last, ys = lax.scan(lambda c, row: (lax.sin(c), (lax.mul(row, y), c)), x, rows)
        return [last, ys[1]]

    (loop,) = loops(live(f, X, X, ShapedArray((3, 4, 4), np.dtype("float32"))))
    assert (len(loop.inputs), len(loop.outputs)) == (1, 2)
    assert loop.params["num_consts"] == 0


def test_carries_that_only_carry_themselves():
    def f(x, y):
        return [lax.scan(lambda c, _: ((lax.sin(c[0]), lax.add(c[0], c[1])), None), (x, y), None, length=3)[0][0]]

    (loop,) = loops(live(f, X, X))
    assert loop.params["num_carry"] == len(loop.inputs) == 1


def test_carries_that_others_follow_from_stay():
    def f(x, y, z):
        def step(c, _):
            return (c[1], c[2], lax.sin(c[2])), None

        return [lax.scan(step, (x, y, z), None, length=3)[0][0]]

    (loop,) = loops(live(f, X, X, X))
    assert loop.params["num_carry"] == 3


def test_while_loops_keep_what_their_test_reads():
    def f(n, x, y):
        def step(c):
            i, x, y = c
            return lax.add(i, np.int32(1)), lax.sin(x), lax.exp(y)

        return [lax.while_loop(lambda c: lax.lt(c[0], n), step, (np.int32(0), x, y))[1]]

    (loop,) = loops(live(f, N, X, X))
    assert len(loop.outputs) == 2
    assert "exp" not in names(loop.params["body"])
    assert loop.params["cond_consts"] == 1


def test_results_and_operands_of_branches():
    def f(p, x, y):
        both = lax.cond(p, lambda x, y: (lax.sin(x), lax.exp(y)), lambda x, y: (lax.cos(x), y), x, y)
        return [both[0]]

    (branches,) = loops(live(f, ShapedArray((), np.dtype(bool)), X, X))
    assert (len(branches.inputs), len(branches.outputs)) == (2, 1)
    assert [names(p) for p in branches.params["branches"]] == [["cos"], ["sin"]]


def test_operands_of_barriers():
    program = live(lambda x, y: [lax.optimization_barrier((x, lax.exp(y)))[0]], X, X)
    assert names(program) == ["optimization_barrier"]
    assert len(program.equations[0].outputs) == 1


def test_loops_within_loops():
    def f(x):
        def inner(c, _):
            return (lax.sin(c[0]), lax.exp(c[1])), (c[0], c[1])

        def outer(c, _):
            c, ys = lax.scan(inner, c, None, length=2)
            return c, ys

        return [lax.scan(outer, (x, x), None, length=3)[1][0]]

    outer, inner = loops(live(f))
    assert len(outer.outputs) == 2 and len(inner.outputs) == 2
    assert names(inner.params["body"]) == ["sin"]


def test_loops_that_share_a_body_share_its_part():
    @sw.jit
    def layer(x):
        return lax.scan(lambda c, _: (lax.sin(c), lax.exp(c)), x, None, length=2)[0]

    def f(x):
        for _ in range(3):
            x = layer(x)
        return [x]

    bodies = {loop.params["body"] for loop in loops(live(f))}
    assert len(bodies) == 1


def test_effects_stay_with_what_they_read(capsys):
    def f(x, y):
        def step(c, _):
            a, b = c
            sw.debug.print("{}", b)
            return (lax.sin(a), lax.add(b, np.float32(1))), lax.exp(b)

        last, _ = lax.scan(step, (x, y), None, length=2)
        return last[0]

    assert np.allclose(sw.jit(f)(np.float32(1), np.float32(5)), np.sin(np.sin(np.float32(1))))
    sw.effects_barrier()
    assert capsys.readouterr().out.split() == ["5.0", "6.0"]


@pytest.mark.parametrize("policy", ["name", "everything"])
def test_a_residual_that_only_a_named_copy_reads_is_not_kept(policy):
    """The backward pass begins from the named value, which is the layer's input."""

    def layer(x, w):
        x = checkpoint_name(x * 2, "input")
        return jnp.tanh(x @ w), None

    policies = sw.checkpoint_policies
    kept = policies.save_only_these_names("input") if policy == "name" else policies.everything_saveable

    def loss(x, stack):
        return lax.scan(sw.checkpoint(layer, policy=kept), x, stack)[0].sum()

    x, stack = RNG.normal(size=(300, 300)).astype("float32"), RNG.normal(size=(8, 300, 300)).astype("float32")
    types = [ShapedArray(a.shape, a.dtype) for a in (x, stack)]
    program = simplify(inline_calls(trace_program(lambda x, s: [sw.grad(loss, 1)(x, s)], types)[0]))
    stacked = [v.aval.shape for loop in loops(program) for v in loop.outputs[loop.params["num_carry"] :]]
    # The named value, with everything saved the layer's result too, and the gradients.
    assert stacked.count((8, 300, 300)) == (2 if policy == "name" else 3)
    plain = sw.grad(lambda x, s: lax.scan(layer, x, s)[0].sum(), 1)(x, stack)
    # Gradients through eight layers, of sums of 300 terms each: products of other shapes add them up in another order.
    np.testing.assert_allclose(sw.jit(sw.grad(loss, 1))(x, stack), plain, rtol=1e-4, atol=1e-5 * np.abs(plain).max())
