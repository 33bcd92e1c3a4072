"""A choice between a value and its update becomes an update that is held back: the same bits, and nothing chosen between whole arrays."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.simplify import simplify
from shardwise.sharding import PartitionSpec as P

AT = jnp.asarray([3, 1, 50], jnp.int32)
HELD = {
    "set": lambda p, x: jnp.where(p, x.at[3].set(1.0), x),
    "set where not": lambda p, x: jnp.where(p, x, x.at[3].set(1.0)),
    "add": lambda p, x: jnp.where(p, x.at[AT].add(2.0), x),
    "largest": lambda p, x: lax.select(p, x.at[AT, 1].max(2.0), x),
    "window": lambda p, x: jnp.where(p, lax.dynamic_update_slice(x, x[:2] + 1, (AT[0], 0)), x),
    "not window": lambda p, x: jnp.where(p, x, lax.dynamic_update_slice(x, x[:2] + 1, (AT[0], 0))),
    "two": lambda p, x: jnp.where(p, (y := jnp.where(p, x.at[AT].set(1.0), x)).at[5].set(2.0), y),
}
NOT_HELD = {
    "read besides": lambda p, x: jnp.where(p, (y := x.at[3].set(1.0)), x) + y,
    "another value": lambda p, x: jnp.where(p, x.at[3].set(1.0), x + 1),
    "no operand": lambda p, x: jnp.where(p, lax.full(x.shape, 2.0), x.at[3].set(1.0)) + x.at[3].set(2.0),
    "each element": lambda p, x: jnp.where(x > 0, x.at[3].set(1.0), x),
    "clipped": lambda p, x: jnp.where(p, x.at[AT].set(1.0, mode="clip"), x),
    "the second result of a loop": lambda p, x: jnp.where(
        p, lax.while_loop(lambda c: c[1].sum() < 9, lambda c: (c[0] + 1, c[1] + 1), (0, x))[1], x.at[3].set(1.0)
    ),
    "most of it": lambda p, x: jnp.where(p, lax.dynamic_update_slice(x, x[:7] + 1, (AT[0], 0)), x),
}


def _chooses(f, x):
    """Whether the simplified program chooses between whole arrays."""
    types = [ShapedArray((), np.dtype(bool)), ShapedArray(x.shape, x.dtype)]
    program = simplify(trace_program(lambda *a: [f(*a)], types)[0])
    verify(program, after="simplify")
    return any(e.op.name == "select_n" and e.outputs[0].aval.shape == x.shape for e in program.equations)


@pytest.mark.parametrize("name", [*HELD, *NOT_HELD])
def test_what_is_held_back(name):
    f, x = (HELD | NOT_HELD)[name], jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))
    assert _chooses(f, x) == (name in NOT_HELD)
    for p in (True, False):
        np.testing.assert_array_equal(jax.jit(f)(jnp.asarray(p), x), f(jnp.asarray(p), x))


def test_each_device_holds_back_its_own():
    mesh = jax.make_mesh((4,), ("x",))

    def body(x):
        def step(i, c):
            return jnp.where(lax.axis_index("x") == i, c.at[i].set(c[0] + 1), c)

        return lax.fori_loop(0, 4, step, x)

    x = np.arange(32.0, dtype=np.float32).reshape(16, 2)
    got = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x)
    expected = x.reshape(4, 4, 2).copy()
    for i in range(4):
        expected[i, i] = expected[i, 0] + 1
    np.testing.assert_array_equal(got, expected.reshape(16, 2))
