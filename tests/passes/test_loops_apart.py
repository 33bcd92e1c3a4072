"""Small loops whose elements stop at different times: which go round one element after the other, and that no result changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import Program, ShapedArray, trace_program, verify
from shardwise.passes.inline import inline_calls
from shardwise.passes.loops_apart import with_loops_apart
from shardwise.runtime.env import Env
from shardwise.runtime.machine import llvm

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for loops")

COUNTS = np.array([3, 1, 0, 7], np.int32)


def some(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def passed(f: Callable[..., Any], *args: Any) -> Program:
    types = [ShapedArray(a.shape, a.dtype) for a in args]
    program = with_loops_apart(inline_calls(trace_program(lambda *a: jax.tree.leaves(f(*a)), types)[0]), Env())
    verify(program, after="loops_apart")
    return program


def is_apart(f: Callable[..., Any], *args: Any) -> bool:
    names = [e.op.name for e in passed(f, *args).equations]
    assert ("scan" in names) != ("while" in names)
    return "scan" in names


def check(f: Callable[..., Any], *args: Any) -> None:
    """The same as element by element, and as without compiled loops."""
    got = jax.tree.leaves(jax.jit(jax.vmap(f))(*args))
    for i in range(len(args[0])):
        for x, y in zip(got, jax.tree.leaves(jax.jit(f)(*[a[i] for a in args])), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-5, atol=1e-6)
    with config.override("shardwise_fused", "off"):
        expected = jax.tree.leaves(jax.jit(lambda *a: jax.vmap(f)(*a))(*args))
    for x, y in zip(got, expected, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        largest = np.abs(
            np.asarray(y)
        ).max()  # rounds of products cancel: errors are as large as those of the largest terms
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-6 * max(1, largest))


def powers(count: Any, x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, jnp.tanh(s[1] @ x * 0.1)), (0, x))


def rounds(count: Any, x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, s[1] * 0.75 + x), (0, x))


def until_small(_: Any, x: Any) -> Any:
    """The test reads the elements; another carry is of another type."""
    return lax.while_loop(lambda s: s[1].sum() > 1, lambda s: (s[0] ^ True, jnp.sin(s[1]) * 0.5), (False, abs(x)))


@pytest.mark.parametrize(("f", "shape"), [(powers, (4, 24, 24)), (rounds, (4, 1000)), (until_small, (4, 150))])
def test_elements_go_round_until_they_are_done(f: Callable[..., Any], shape: tuple[int, ...]):
    x = some(*shape)
    assert is_apart(jax.vmap(f), COUNTS, x)
    check(f, COUNTS, x)


def test_each_takes_its_own_rounds():
    def f(count: Any, x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, jnp.exp(s[1])), (0, x))[1]

    counts, x = np.array([1, 30, 2], np.int32), np.ones((3, 200), np.float32)
    assert is_apart(jax.vmap(f), counts, x)
    got = np.asarray(jax.jit(jax.vmap(f))(counts, x))
    np.testing.assert_allclose(got[[0, 2]], np.exp([1.0, np.e])[:, None] * np.ones(200), rtol=1e-6)
    assert np.isposinf(got[1]).all()


def test_little_to_do_in_a_round_is_done_for_all_elements():
    assert not is_apart(jax.vmap(rounds), COUNTS, some(4, 16))
    assert not is_apart(jax.vmap(powers), COUNTS, some(4, 4, 4))


def test_loops_whose_elements_stop_together_or_meet_stay_whole():
    def together(x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, jax.vmap(jnp.sin)(s[1])), (0, x))

    def meeting(count: Any, x: Any) -> Any:
        def body(s: Any) -> Any:
            return s[0] + 1, lax.pmean(jnp.sin(s[1]), "rows")

        return lax.while_loop(lambda s: s[0] < count, body, (0, x))

    assert not is_apart(together, some(4, 1000))
    assert not is_apart(jax.vmap(meeting, axis_name="rows"), COUNTS, some(4, 1000))


def test_what_elements_share_and_further_dims():
    x, shared = some(4, 30, 20), some(20, 20)

    def f(count: Any, x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, s[1] @ shared + x), (0, x))

    check(f, COUNTS, x)
    twice = jax.vmap(jax.vmap(f))
    got = jax.jit(twice)(COUNTS.reshape(2, 2), x.reshape(2, 2, 30, 20))
    for g, y in zip(got, jax.jit(jax.vmap(f))(COUNTS, x), strict=True):
        np.testing.assert_allclose(np.asarray(g).reshape(y.shape), y, rtol=1e-5)


def test_inside_of_other_programs():
    """Beside other equations, in a scan, and under a derivative."""
    x = some(4, 12, 12)

    def whole(counts: Any, x: Any) -> Any:
        return (jax.vmap(powers)(counts, x * 0.5)[1] + 1).sum(0)

    def repeated(counts: Any, x: Any) -> Any:
        return lax.scan(lambda c, _: (jax.vmap(powers)(counts, c)[1], c.sum()), x, None, length=3)

    for f in (whole, repeated):
        got = jax.tree.leaves(jax.jit(f)(COUNTS, x))
        with config.override("shardwise_fused", "off"):
            expected = jax.tree.leaves(jax.jit(lambda *a, f=f: f(*a))(COUNTS, x))
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)  # powers, after 7 rounds
    tangent = jax.jit(lambda x: jax.jvp(lambda x: jax.vmap(powers)(COUNTS, x)[1], (x,), (x,))[1])(x)
    with config.override("shardwise_fused", "off"):
        expected = jax.jit(lambda x: jax.jvp(lambda x: jax.vmap(powers)(COUNTS, x)[1], (x,), (x,))[1])(x)
    np.testing.assert_allclose(
        np.asarray(tangent), np.asarray(expected), rtol=1e-4, atol=1e-5
    )  # powers, after 7 rounds


def test_no_elements_and_no_rounds():
    check(powers, np.zeros(4, np.int32), some(4, 24, 24))
    got = jax.jit(jax.vmap(powers))(np.zeros(0, np.int32), some(0, 24, 24))
    assert [y.shape for y in got] == [(0,), (0, 24, 24)]
