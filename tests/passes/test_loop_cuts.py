"""Where a dim of a loop is cut, and the programs of parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import Equation, ShapedArray, region_of, trace_program, verify
from shardwise.passes.inline import inline_calls
from shardwise.passes.loop_cuts import alone, cut, localized, outermost, simple, swept
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
    parts = swept(localized(program, found.dims, size), 6 // size, program, found.dims)
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
