"""Programs with less to do: equal equations once, dead ones never."""

from __future__ import annotations

import numpy as np

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import Literal, ShapedArray, trace_program, verify
from shardwise.passes.inline import inline_calls
from shardwise.passes.simplify import common_subexpressions, simplify

X = ShapedArray((4, 4), np.dtype("float32"))


def simplified(f, *types):
    return verify(simplify(inline_calls(trace_program(f, types or (X,))[0])))


def names(program):
    return [e.op.name for e in program.equations]


def test_equal_equations_run_once():
    out = simplified(lambda x: [lax.add(lax.sin(x), lax.cos(lax.sin(x)))])
    assert names(out) == ["sin", "cos", "add"]


def test_dead_equations_never():
    out = simplified(lambda x: [lax.sin(x), lax.exp(x)][:1])
    assert names(out) == ["sin"]


def test_zeros_of_different_signs_are_not_equal():
    def f(x):
        return [lax.max(x, np.float32(0.0)), lax.max(x, np.float32(-0.0))]

    out = simplified(f)
    assert len(out.equations) == 2


def test_effects_stay_and_stay_two():
    def f(x):
        sw.debug.print("again {}", x)
        sw.debug.print("again {}", x)
        return [x]

    out = simplified(f)
    assert sum(e.op.has_effects(e.params) for e in out.equations) == 2


def test_loop_bodies_too():
    def f(x):
        return [lax.fori_loop(0, 3, lambda i, c: lax.add(lax.sin(c), lax.sin(c)), x)]

    (loop,) = [e for e in simplified(f).equations if e.op.name == "scan"]
    assert names(loop.params["body"]).count("sin") == 1


def test_merging_keeps_the_first():
    program, _ = trace_program(lambda x: [lax.sin(x), lax.sin(x)], [X])
    merged = common_subexpressions(program)
    assert len(merged.equations) == 1
    assert merged.outputs[0] is merged.outputs[1] is program.outputs[0]


def test_equal_stacked_results_are_one():
    def f(x):
        _, (a, b, c) = lax.scan(lambda c, _: (lax.sin(c), (lax.exp(c), lax.exp(c), c)), x, None, length=3)
        return [a, b, c]

    out = simplified(f)
    (loop,) = [e for e in out.equations if e.op.name == "scan"]
    assert len(loop.outputs) == 3  # the carry, and two stacks
    assert out.outputs[0] is out.outputs[1] is not out.outputs[2]


def test_equal_results_of_all_branches_are_one():
    def f(p, x):
        def one(x):
            return lax.exp(x), lax.exp(x), x, np.float32(1)

        def other(x):
            return x, x, lax.exp(x), np.float32(1)

        return [*lax.cond(p, one, other, x)]

    out = simplified(f, ShapedArray((), np.dtype(bool)), X)
    (branches,) = [e for e in out.equations if e.op.name == "cond"]
    assert len(branches.outputs) == 3
    assert out.outputs[0] is out.outputs[1] is not out.outputs[2]


def test_a_last_carry_is_not_a_stacked_result():
    def f(x):
        last, ys = lax.scan(
            lambda c, _: ((lax.sin(c[0]), lax.sin(c[0])), lax.sin(c[0])), (x, lax.exp(x)), None, length=3
        )
        return [*last, ys]

    out = simplified(f)
    (loop,) = [e for e in out.equations if e.op.name == "scan"]
    assert len(set(out.outputs)) == len(loop.outputs) == 3


def test_known_scalars_are_computed():
    """`x % 8` asks whether 8 is 0 and whether it is negative."""
    out = simplified(lambda x: [jnp.remainder(x, np.uint32(8))], ShapedArray((4,), np.dtype("uint32")))
    assert all(e.outputs[0].aval.shape for e in out.equations)


def test_known_scalars_keep_rounding_signs_and_effects():
    """Transcendentals round as where they run; zeros keep their signs."""
    zero = np.float32(-0.0)

    def f(x):
        return [lax.exp(np.float32(1)), lax.neg(lax.neg(zero)), lax.div(np.float32(1), lax.mul(zero, np.float32(1))), x]

    out = simplified(f)
    assert names(out) == ["exp"]
    found = [a.value for a in out.outputs[1:3] if isinstance(a, Literal)]
    assert np.signbit(found[0])
    assert found[1] == -np.inf


def test_equal_loops_get_one_cheaper_body():
    """Later passes and the planner do once what they do to a body; fission cuts `cos` off these loops."""

    @sw.jit
    def layer(x):
        return lax.scan(lambda c, row: (lax.add(c, row), lax.sin(lax.add(c, row))), x[0], lax.cos(x))[1]

    out = simplified(lambda x: [layer(layer(layer(x)))], ShapedArray((64, 4), np.dtype("float32")))
    loops = [e for e in out.equations if e.op.region is not None]
    assert len(loops) == 3
    assert len(names(out)) > 6  # what fission put around the loops
    assert len({id(e.params["body"]) for e in loops}) == 1


def test_pads_that_only_cut_are_views():
    """As the slopes of pads are."""

    def cut(*config):
        return simplified(lambda x: [lax.pad(x, np.float32(0), config)])

    out = cut((-1, 0, 0), (0, -2, 0))
    assert names(out) == ["slice"] and out.outputs[0].aval.shape == (3, 2)
    assert names(cut((-1, 1, 0), (0, 0, 0))) == names(cut((-1, 0, 1), (0, 0, 0))) == ["pad"]
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    got = sw.jit(lambda x: lax.pad(x, np.float32(0), ((-1, 0, 0), (0, -2, 0))))(x)
    np.testing.assert_array_equal(got, x[1:, :2])
    nothing = sw.jit(lambda x: lax.pad(x, np.float32(0), ((-3, -1, 0), (0, 0, 0))))(x)
    assert nothing.shape == (0, 4)
    slopes = sw.grad(lambda x: (lax.pad(x, np.float32(0), ((1, 2, 0), (-1, 0, 1))) ** 2).sum())
    want = 2 * x
    want[:, 0] = 0
    np.testing.assert_array_equal(sw.jit(slopes)(x), want)
