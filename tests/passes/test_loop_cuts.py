"""Where a dim of a loop is cut, and the programs of parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import Equation, Loop, ShapedArray, region_of, trace_program, verify
from shardwise.passes.inline import inline_calls
from shardwise.passes.loop_cuts import alone, cut, localize, one_apart, outermost, simple, sweep
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan

X = np.random.default_rng(0).uniform(-1, 1, (6, 5, 4)).astype(np.float32)


def loop_of(f: Callable[..., Any], *args: Any) -> Equation:
    types = [ShapedArray(a.shape, a.dtype) for a in args]
    program = inline_calls(trace_program(lambda *a: jax.tree.leaves(f(*a)), types)[0])
    (loop,) = [e for e in program.equations if region_of(e) is not None]
    return loop


def halved(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, x: x * 0.5 + 1, x)


def added_to_the_next(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, x: x + jnp.roll(x, 1, axis=0), x)


def summed(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, x: x - x.sum(axis=(0, 2), keepdims=True), x)


@pytest.mark.parametrize(("f", "dim"), [(halved, 0), (added_to_the_next, 1), (summed, 1)])
def test_the_first_dim_along_which_elements_do_not_meet(f: Callable[..., Any], dim: int):
    program = alone(loop_of(f, X))
    found = cut(program)
    assert found is not None and found.size == X.shape[dim] and not found.stop_apart
    assert {found.dims.get(v) for v in program.equations[0].outputs} == {None, dim}  # None: the number of rounds
    assert outermost(program, found.dims) == (dim == 0)


def test_elements_that_all_meet():
    assert cut(alone(loop_of(lambda x: lax.fori_loop(0, 3, lambda _, x: x - x.sum(), x), X))) is None


def test_elements_that_stop_apart():
    def f(count: Any, x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, s[1] * 0.5), (0, x))

    found = cut(alone(loop_of(jax.vmap(f), np.arange(6), X)))
    assert found is not None and found.stop_apart and found.size == 6


@pytest.mark.parametrize("size", [1, 2, 3])
def test_parts_one_after_the_other_are_the_whole(size: int):
    program = alone(loop_of(halved, X))
    found = cut(program)
    assert found is not None
    parts = sweep(localize(program, found.dims, size), 6 // size, program, found.dims)
    verify(parts, after="swept")
    given = [X.reshape(6 // size, size, 5, 4) if v in found.dims else np.int32(0) for v in program.inputs]
    results = Plan(parts, Env()).run(*given)
    whole = Plan(program, Env()).run(*[X if v in found.dims else np.int32(0) for v in program.inputs])
    for part, expected in zip(results, whole, strict=True):
        np.testing.assert_array_equal(part.reshape(expected.shape), expected)


def test_what_is_simple():
    multiplies = alone(loop_of(lambda x: lax.fori_loop(0, 3, lambda _, x: x @ x, x), X[0, :4]))
    assert simple(multiplies, products=True) and not simple(multiplies)
    assert not simple(alone(loop_of(lambda x: lax.fori_loop(0, 3, lambda _, x: jnp.sort(x), x), X)), products=True)
    assert simple(alone(loop_of(halved, X)))


def bools_asked(program: Any) -> list[str]:
    """The comparisons that a loop's body makes and uses."""
    (eqn,) = program.equations
    loop = region_of(eqn)
    assert isinstance(loop, Loop)
    read = {a for e in loop.body.equations for a in e.inputs}
    return [e.op.name for e in loop.body.equations for v in e.outputs if v.aval.dtype == bool and v in read]


def test_one_that_goes_round_alone_goes_on_in_each_round():
    """What the test has found is not asked again; entries that go round together ask."""

    def f(count: Any, x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, s[1] * 0.5), (0, x))

    program = alone(loop_of(jax.vmap(f), np.arange(6), X))
    found = cut(program)
    assert found is not None
    assert "lt" in bools_asked(localize(program, found.dims, 1))
    one = one_apart(program, found.dims)
    verify(one, after="one_apart")
    assert "lt" not in bools_asked(one)
    for k in range(6):
        given = [np.array([k], np.int32) if v.aval.shape == (1,) else X[k : k + 1] for v in one.inputs]
        counts = [i for i, v in enumerate(program.inputs) if v.aval.shape == (6,)]
        for i, rounds in zip(counts, (k, 0), strict=False):
            given[i] = np.array([rounds], np.int32)
        whole = Plan(localize(program, found.dims, 1), Env()).run(*given)
        for a, b in zip(Plan(one, Env()).run(*given), whole, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_test_of_what_goes_round_itself():
    """A carry that says whether it goes on is true in each round, but not after it."""

    def f(x: Any) -> Any:
        def step(s: Any) -> Any:
            on, x, n = s
            return on & (x[0, 0] > 0.1), jnp.where(on, x * 0.5, x), n + on

        return lax.while_loop(lambda s: s[0], step, (x[0, 0] > 0.3, x, 0))

    program = alone(loop_of(jax.vmap(f), X))
    found = cut(program)
    assert found is not None and found.stop_apart
    one = one_apart(program, found.dims)
    verify(one, after="one_apart")
    for k in range(6):
        given = [
            np.asarray([X[k, 0, 0] > 0.3]) if v.aval.dtype == bool else
            X[k : k + 1] if v.aval.ndim == 3 else np.zeros(v.aval.shape, v.aval.dtype)
            for v in one.inputs
        ]  # fmt: skip
        whole = Plan(localize(program, found.dims, 1), Env()).run(*given)
        for a, b in zip(Plan(one, Env()).run(*given), whole, strict=True):
            np.testing.assert_array_equal(a, b)
