"""Constants of a loop are exchanged once, before it."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import subprograms, verify
from shardwise.runtime import costs
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.rounding import assert_normwise

RNG = np.random.default_rng(3)
MESH = Mesh(np.array(sw.devices()[:8]), ("x",))


def transfers(f, shape=(64, 16)):
    """What `f` of split rows sends; its result is that of whole rows."""
    x = RNG.standard_normal(shape).astype(np.float32) / 8
    split = sw.device_put(x, NamedSharding(MESH, P("x")))
    assert_normwise(sw.jit(f)(split), sw.jit(f)(x), 1e-5)
    executable = sw.jit(f).lower(split).compile().runtime_executable()
    verify(executable.device_program, after="hoist")
    return [(t.kind, t.trips) for t in executable.transfers]


def gram(s, x):
    return jnp.tanh(s @ (x @ x.T)[:16, :16])


LOOPS = {
    "fori_loop": lambda x, step: lax.fori_loop(0, 5, lambda i, s: step(s), jnp.eye(16)),
    "scan": lambda x, step: lax.scan(lambda s, _: (step(s), s[0]), jnp.eye(16), None, length=5)[0],
    "while_loop": lambda x, step: lax.while_loop(lambda s: s[1] < 5, lambda s: (step(s[0]), s[1] + 1), (jnp.eye(16), 0))[0],
}  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_a_gathered_constant(loop):
    def f(x):
        rows = lax.with_sharding_constraint(x, NamedSharding(MESH, P()))

        def step(s):
            return jnp.tanh(s @ lax.with_sharding_constraint(jnp.sin(x), NamedSharding(MESH, P()))[:16] + rows[16:32])

        return LOOPS[loop](x, step)

    sent = transfers(f)
    assert sent and all(sent_by == ("all_gather", 1) for sent_by in sent)


def test_out_of_nested_loops():
    def f(x):
        whole = lambda: lax.with_sharding_constraint(x * 2, NamedSharding(MESH, P()))  # noqa: E731
        inner = lambda i, s: lax.fori_loop(0, 3, lambda j, t: jnp.tanh(t + whole()[0]), s)  # noqa: E731
        return lax.fori_loop(0, 4, inner, jnp.zeros(16))

    assert transfers(f) == [("all_gather", 1)]


def test_a_sum_over_devices():
    assert transfers(lambda x: lax.fori_loop(0, 5, lambda i, s: jnp.tanh(s + x.sum(0)), jnp.zeros(16))) == [
        ("all_reduce", 1)
    ]


def test_what_changes_with_the_carry_stays():
    def f(x):
        return lax.fori_loop(0, 5, lambda i, s: jnp.tanh(x.T @ (x @ s)), jnp.ones(16))

    assert transfers(f) == [("all_reduce", 5)]


def test_what_is_recomputed_on_purpose_stays():
    """A barrier hands on its operands where it is."""

    def f(x):
        whole = lambda x: lax.with_sharding_constraint(x, NamedSharding(MESH, P()))  # noqa: E731
        step = lambda i, s: jnp.tanh(s + whole(lax.optimization_barrier(x))[0])  # noqa: E731
        return lax.fori_loop(0, 5, step, jnp.zeros(16))

    assert transfers(f) == [("all_gather", 5)]


def test_what_takes_much_memory_stays(monkeypatch):
    monkeypatch.setattr(costs, "HOISTED_BYTES", 64 * 16 * 4 - 1)

    def f(x):
        whole = lambda: lax.with_sharding_constraint(jnp.cos(x), NamedSharding(MESH, P()))  # noqa: E731
        return lax.fori_loop(0, 5, lambda i, s: jnp.tanh(s + whole()[0]), jnp.zeros(16))

    assert transfers(f) == [("all_gather", 5)]


def test_a_users_collective_stays():
    def f(x):
        def local(x):
            step = lambda i, s: jnp.tanh(s + lax.psum(x.sum(0), "x"))  # noqa: E731
            return lax.fori_loop(0, 5, step, jnp.zeros(16))

        return sw.shard_map(local, mesh=MESH, in_specs=P("x"), out_specs=P())(x)

    assert transfers(f) == [("all_reduce", 5)]


def test_rings_are_worth_more_than_a_gathered_constant():
    """Who asks for rings wants the memory that it would take."""

    def f(x):
        step = lambda i, s: jnp.tanh(lax.with_sharding_constraint(s @ x, NamedSharding(MESH, P("x"))))  # noqa: E731
        return lax.fori_loop(0, 5, step, jnp.cos(x))

    assert transfers(f, (64, 64)) == [("all_gather", 1)]
    with config.override("shardwise_collective_matmul", "on"):
        assert set(transfers(f, (64, 64))) == {("permute", 5)}


def bodies(f, *args):
    """The ops in the loops of the compiled program, and the number of equations ahead of them."""
    program = sw.jit(f).lower(*args).compile().runtime_executable().device_program
    loops = [e for e in program.equations if any(subprograms(e.params))]
    return [
        [e.op.name for e in p.equations] for loop in loops for name, p in subprograms(loop.params) if name == "body"
    ]


@pytest.mark.parametrize("loop", LOOPS)
def test_what_stays_the_same_is_computed_once(loop):
    """However large: a matrix that is scaled in each round, say. What only spreads a value stays."""
    x = RNG.standard_normal((16, 16)).astype(np.float32)
    wide = RNG.standard_normal((600, 600)).astype(np.float32)

    def f(x, wide):
        step = lambda s: jnp.tanh(s @ jnp.exp(x.T)) + ((0.5 * wide) @ jnp.ones(600))[:16] + x[0]  # noqa: E731
        return LOOPS[loop](x, step)

    (ops,) = bodies(f, x, wide)
    assert not {"exp", "transpose"} & set(ops)
    assert ops.count("dot_general") == 1
    state = jnp.eye(16)
    for _ in range(5):
        state = jnp.tanh(state @ jnp.exp(x.T)) + ((0.5 * wide) @ jnp.ones(600))[:16] + x[0]
    assert_normwise(sw.jit(f)(x, wide), state, 1e-5)


def test_spreads_stay():
    def f(x):
        return lax.while_loop(
            lambda s: s[1] < 5, lambda s: (s[0] * 2 + jnp.broadcast_to(x, (64, 64)), s[1] + 1), (jnp.ones((64, 64)), 0)
        )

    (ops,) = bodies(f, np.ones(64, np.float32))
    assert "broadcast_in_dim" in ops
