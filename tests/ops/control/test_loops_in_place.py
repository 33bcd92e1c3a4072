"""Loops update their carries in place, and only where nobody else sees them: results are those of the same steps in NumPy."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.memory import pool
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P

N, STEPS = 1 << 17, 40  # elements: enough for the pool, which counts


def loops(step):
    """A step ``(i, carry) -> carry`` as each kind of loop."""

    def by_while(x):
        return lax.while_loop(lambda c: c[0] < STEPS, lambda c: (c[0] + 1, step(c[0], c[1])), (0, x))[1]

    return {
        "for": lambda x: lax.fori_loop(0, STEPS, step, x),
        "while": by_while,
        "scan": lambda x: lax.scan(lambda c, i: (step(i, c), None), x, jnp.arange(STEPS))[0],
        "stacked": lambda x: lax.scan(lambda c, i: (step(i, c), i), x, jnp.arange(STEPS))[0],
    }


# Steps, and how many large arrays may be made beside the loop's own copies of its carries.
def _two(i, c):
    return c[0].at[i].set(i * 1.0), c[1].at[i].add(c[0][i] + 1)


STEPS_OF = {
    "set": (lambda i, c: c.at[i].set(i * 1.0), 1),
    "add": (lambda i, c: c.at[i].add(i * 1.0), 1),
    "max": (lambda i, c: c.at[i].max(i * 1.0), 1),
    "slice": (lambda i, c: lax.dynamic_update_slice(c, jnp.ones(3) * i, (i,)), 1),
    "several": (lambda i, c: c.at[jnp.array([1, 5, 7]) + i].set(i * 1.0), 1),
    "reads before": (lambda i, c: c.at[i].set(c[i - 1] + 1), 1),
    "reads after": (lambda i, c: c.at[i].set(1.0).at[i + 1].set(c[i + 1] + c[0] + 3), 1),
    "twice": (lambda i, c: c.at[i].set(1.0).at[i + 1].add(2.0), 1),
    "two carries": (_two, 2),
    "by a number": (lambda i, c: c * 0.5 + i, 1),
    "inner loop": (lambda i, c: lax.fori_loop(0, 3, lambda j, d: d.at[i + j].add(1.0), c), 1),
    "branch": (lambda i, c: lax.cond(i % 2 == 0, lambda d: d.at[i].set(1.0), lambda d: d, c), None),
    "sees both": (lambda i, c: c.at[i].set(1.0) + c * 0.5, None),
    "keeps the old": (lambda i, c: (c[0].at[i].set(1.0 + i), c[0]), None),
    "same twice": (lambda i, c: (c[0].at[i].set(1.0 + i),) * 2, None),
    "swap": (lambda i, c: (c[1].at[i].set(i * 1.0), c[0]), None),
    "a view": (lambda i, c: lax.dynamic_update_slice(c, c[3:9], (i,)), None),
    "reversed": (lambda i, c: c[::-1].at[i].set(1.0), None),
    "through": (lambda i, c: (c[0], c[1].at[i].set(c[0][i])), None),
    "constant": (lambda i, c: jnp.where(i == 3, CONSTANT, c.at[i].set(7.0)), None),
}  # fmt: skip
PAIRS = {"two carries", "keeps the old", "same twice", "swap", "through"}
CONSTANT = np.arange(N, dtype=np.float32)


def _given(name) -> Any:
    x = jnp.arange(N, dtype=jnp.float32)
    return (x, x) if name in PAIRS else x


def _by_hand(step, carry):
    """The steps one after the other, each on copies."""
    one = jax.jit(lambda i, c: jax.tree.map(lambda v: v + 0, step(i, c)))
    for i in range(STEPS):
        carry = one(i, carry)
    return carry


def _check_equal(found, want, kind):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=kind), found, want)


@pytest.mark.parametrize("name", list(STEPS_OF))
def test_loops_are_their_steps(name):
    step, most = STEPS_OF[name]
    want = _by_hand(step, _given(name))
    for kind, loop in loops(step).items():
        f, x = jax.jit(loop), _given(name)
        before = jax.tree.map(np.array, x)
        f(x)
        gc.collect()
        made = pool.stats()["num_allocs"]
        out = f(x)
        made = pool.stats()["num_allocs"] - made
        _check_equal(out, want, kind)
        _check_equal(x, before, kind)
        assert most is None or made <= most, (kind, made)


@pytest.mark.parametrize(
    "name", ["set", "add", "slice", "by a number", "reads before", "two carries", "keeps the old", "swap"]
)
def test_mapped_loops_are_their_steps(name):
    step, most = STEPS_OF[name]
    xs = jax.tree.map(lambda v: jnp.stack([v, v * 2, v * 3]), _given(name))
    want = [_by_hand(step, jax.tree.map(lambda v, r=r: v[r], xs)) for r in range(3)]
    for kind, loop in loops(step).items():
        f = jax.jit(jax.vmap(loop))
        f(xs)
        gc.collect()
        made = pool.stats()["num_allocs"]
        out = f(xs)
        made = pool.stats()["num_allocs"] - made
        for r in range(3):
            rows = jax.tree.map(lambda v, r=r: v[r], out)
            _check_equal(rows, want[r], kind)
        assert most is None or made <= 3 * most, (kind, made)


UNTIL = [9, 0, STEPS]  # the steps of each element
HELD = {name: STEPS_OF[name] for name in ("set", "add", "max", "slice", "several", "reads before", "twice", "two carries", "keeps the old",
                                          "same twice", "swap", "a view", "through", "sees both")} | {
    "inner loop": (STEPS_OF["inner loop"][0], None),
    "promised": (lambda i, c: c.at[i].add(2.0, mode="promise_in_bounds"), 1),
    "clipped": (lambda i, c: c.at[N - 5 + i].set(i * 1.0, mode="clip"), None),
    "dropped": (lambda i, c: c.at[N - 5 + i].mul(3.0), 1),
    "negative": (lambda i, c: c.at[-i].set(c[i]), 1),
    "narrow indices": (lambda i, c: c.at[i.astype(jnp.int8)].set(1.0), None),
    "no indices": (lambda i, c: c.at[...].set(i * 1.0), None),
    "numbers": (lambda i, c: c.at[i].set(jnp.nan).at[i + 1].set(-0.0), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", list(HELD))
def test_elements_that_stop_at_different_times(name):
    step, most = HELD[name]
    one = _given("swap" if name in PAIRS else "set")
    xs = jax.tree.map(lambda v: jnp.stack([v, v * 2, v * 3]), one)

    def loop(n, x):
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(c[0], c[1])), (0, x))[1]

    f, counts = jax.jit(jax.vmap(loop)), jnp.array(UNTIL)
    f(counts, xs)
    gc.collect()
    made = pool.stats()["num_allocs"]
    out = f(counts, xs)
    made = pool.stats()["num_allocs"] - made
    alone = jax.jit(loop)
    for r, n in enumerate(UNTIL):
        want = alone(n, jax.tree.map(lambda v, r=r: v[r], xs))
        _check_equal(jax.tree.map(lambda v, r=r: v[r], out), want, f"{r}")
    assert most is None or made <= 3 * most, made


def test_elements_that_have_stopped_take_part_in_collectives():
    def loop(n, x):
        def step(c):
            i, x, total = c
            x = x.at[i].set(n * 1.0)
            return i + 1, x, total + lax.psum(x[i], "rows")

        return lax.while_loop(lambda c: c[0] < n, step, (0, x, jnp.float32(0)))

    found = jax.vmap(loop, axis_name="rows")(jnp.array([3, 1]), jnp.zeros((2, 4)))
    np.testing.assert_array_equal(found[1], [[3, 3, 3, 0], [1, 0, 0, 0]])
    # The second element stays at its second step, whose update it computes and drops.
    np.testing.assert_array_equal(found[2], [12, 4])


@pytest.mark.parametrize("outer", [False, True])
def test_one_mapped_element_is_updated_in_place(outer):
    def loop(n, x):
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1].at[c[0]].set(5.0)), (0, x))

    f, counts, x = jax.vmap(loop), jnp.array([STEPS]), jnp.zeros((1, N))
    want = np.zeros((1, N), np.float32)
    want[:, :STEPS] = 5.0
    if outer:
        f, counts, x, want = jax.vmap(f), jnp.array([[STEPS], [3]]), jnp.zeros((2, 1, N)), np.stack([want, want])
        want[1, :, 3:] = 0.0
    f = jax.jit(f)
    f(counts, x)
    gc.collect()
    made = pool.stats()["num_allocs"]
    steps, out = f(counts, x)
    made = pool.stats()["num_allocs"] - made
    np.testing.assert_array_equal(steps, counts)
    np.testing.assert_array_equal(out, want)
    assert outer or made <= 1, made


def test_what_goes_in_is_seen_afterwards():
    @jax.jit
    def f(x):
        y = x * 2
        out = lax.fori_loop(0, STEPS, lambda i, c: c.at[i].set(-1.0), y)
        again = lax.fori_loop(0, STEPS, lambda i, c: c.at[i].set(-2.0), out)
        return y, out, again, lax.while_loop(lambda c: c[0] < 0, lambda c: (c[0] + 1, c[1].at[0].set(9.0)), (0, out))[1]

    x = jnp.arange(N, dtype=jnp.float32)
    y, out, again, never = map(np.asarray, f(x))
    np.testing.assert_array_equal(y, 2 * np.arange(N, dtype=np.float32))
    assert (out[:STEPS] == -1).all() and (again[:STEPS] == -2).all()
    np.testing.assert_array_equal(out[STEPS:], y[STEPS:])
    np.testing.assert_array_equal(never, out)


def test_stacked_carries_are_those_of_their_step():
    x = jnp.zeros(8)
    last, each = jax.jit(lambda x: lax.scan(lambda c, i: ((d := c.at[i].set(i + 1.0)), (c, d)), x, jnp.arange(8)))(x)
    want = np.tril(np.broadcast_to(np.arange(1.0, 9.0), (8, 8)))
    np.testing.assert_array_equal(each[1], want)
    np.testing.assert_array_equal(each[0][1:], want[:-1])
    np.testing.assert_array_equal(last, want[-1])


def test_effects_see_what_was_there():
    seen = []

    def step(i, c):
        d = c.at[i].set(i + 1.0)
        jax.debug.callback(lambda old, new: seen.append((old.tolist(), new.tolist())), c[:3], d[:3], ordered=True)
        return d

    jax.jit(lambda x: lax.fori_loop(0, 3, step, x))(jnp.zeros(N))
    assert seen == [([0, 0, 0], [1, 0, 0]), ([1, 0, 0], [1, 2, 0]), ([1, 2, 0], [1, 2, 3])]


@pytest.mark.parametrize("stepped", [False, True])
def test_on_a_mesh(stepped):
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    n = 64
    x = jax.device_put(jnp.arange(n, dtype=jnp.float32), NamedSharding(mesh, P("x")))
    with config.override("shardwise_stepped", stepped):
        for name in ("set", "add", "reads after", "slice"):
            step = STEPS_OF[name][0]

            def small(i, c, step=step):
                return step(i % 12, c)

            want = x
            for i in range(8):
                want = jax.jit(small)(i, want)

            def looped(x, small=small):
                return lax.fori_loop(0, 8, small, x)

            np.testing.assert_array_equal(jax.jit(looped)(x), want, err_msg=name)
            local = jax.jit(jax.shard_map(looped, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x)
            parts = [np.asarray(jax.jit(looped)(jnp.asarray(part))) for part in np.split(np.asarray(x), 4)]
            np.testing.assert_array_equal(local, np.concatenate(parts), err_msg=name)


def test_one_value_may_begin_several_carries():
    def looped(x):
        s, t = jnp.sin(x), jnp.cos(x)
        step = lambda i, c: (c[0].at[0].add(c[1][1]), c[1] * 2, c[2].at[i].set(0.0))  # noqa: E731
        return lax.fori_loop(0, 3, step, (s, s, t))

    x = np.arange(30_000, dtype=np.float32)
    first, second, third = jax.jit(looped)(x)
    np.testing.assert_allclose(second, np.sin(x) * 8, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(first[0], 7 * np.sin(1), rtol=1e-6)
    np.testing.assert_allclose(first[1:], np.sin(x[1:]), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(third, np.where(x < 3, 0, np.cos(x)), rtol=2e-6, atol=1e-6)


def test_rows_that_are_kept_are_copied_and_not_their_array():
    w = jnp.asarray(np.random.default_rng(0).random((1024, 1024), np.float32) * 1e-3)  # too large for a small program

    def step(cache, i):
        old = cache[i + 1]
        return cache.at[i + 1].set(jnp.tanh(cache[i] @ w) + old), old

    f = jax.jit(lambda cache: lax.scan(step, cache, jnp.arange(16)), donate_argnums=0)
    cache, _ = f(jnp.ones((300, 1024), jnp.float32))
    want = np.array(cache)
    kept = want[1:17].copy()
    for i in range(16):
        want[i + 1] += np.tanh(want[i] @ np.asarray(w))
    gc.collect()
    made = pool.stats()["num_allocs"]
    cache, rows = f(cache)
    assert pool.stats()["num_allocs"] - made <= 1
    np.testing.assert_allclose(cache, want, rtol=1e-5)
    np.testing.assert_array_equal(rows, kept)
