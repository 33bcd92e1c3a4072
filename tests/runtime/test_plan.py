"""Plans: what is made once, and what lets an update be written over its operand."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import ShapedArray, bind, define_op, trace_program
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan

ROWS = (64, 4096)


def some(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def plan_of(f, *args, owned=()):
    program = trace_program(f, [ShapedArray(a.shape, a.dtype) for a in args])[0]
    return Plan(program, Env(), owned)


def test_views_of_constants_belong_to_the_plan():
    f = lambda x: [jnp.full(x.shape, 2.0) * x, jnp.full((5, 7), 3.0)]  # noqa: E731
    x = some(4, 6)
    plan = plan_of(f, x)
    assert "broadcast" not in plan.source
    for _ in range(2):
        product, threes = plan.run(x)
        np.testing.assert_array_equal(product, 2 * x)
        np.testing.assert_array_equal(threes, np.full((5, 7), 3, np.float32))
    nested = plan_of(
        lambda x: [lax.broadcast_in_dim(jnp.full((6,), 2.0), x.shape, (1,)).reshape(3, 8) * x.reshape(3, 8)], x
    )
    assert "broadcast" not in nested.source  # views of views, too
    np.testing.assert_array_equal(nested.run(x)[0], (2 * x).reshape(3, 8))
    g = jax.jit(lambda x: [jnp.zeros((3, 4)), x + jnp.ones(6)], donate_argnums=0)
    assert [a.shape for a in g(jnp.asarray(x))] == [(3, 4), (4, 6)]
    donated = jax.jit(lambda z: z.at[0].set(1.0), donate_argnums=0)
    for _ in range(2):  # a result that is such a view may be given away
        zeros = jax.jit(lambda: jnp.zeros((3, 4)))()
        np.testing.assert_array_equal(donated(zeros), np.eye(3, 1) * np.ones(4))


def test_views_of_constants_on_a_mesh_and_in_loops():
    mesh = jax.make_mesh((4,), ("x",))
    placed = jax.device_put(some(8, 6), jax.NamedSharding(mesh, jax.P("x")))

    def f(x):
        return lax.fori_loop(0, 3, lambda i, x: x * jnp.full((8, 6), 2.0), x) + jnp.full((8, 6), 1.0)

    with config.override("shardwise_fused", "off"):
        for x in (some(8, 6), placed):
            np.testing.assert_array_equal(jax.jit(lambda x: f(x))(x), some(8, 6) * 8 + 1)


def test_what_follows_from_the_numbers_of_devices_is_computed_once(monkeypatch):
    """Nobody writes over it: not the plan, nor who is given a view of it."""
    mesh = jax.make_mesh((4,), ("x",))
    rows = jax.NamedSharding(mesh, jax.P("x"))

    def body(x):
        at = (lax.axis_index("x") + 3) % 4 * 5
        own = jnp.arange(3) + at
        return x + at.astype(x.dtype), own.reshape(3, 1), own * x[0, 0].astype(int)

    with config.override("shardwise_fused", "off"):
        mapped = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x")))
        x = jax.device_put(np.arange(8, dtype=np.float32).reshape(4, 2), rows)
        executable = mapped.lower(x).compile().runtime_executable()
        calls = []
        index = Env.index
        monkeypatch.setattr(Env, "index", lambda env, axes: (calls.append(axes), index(env, axes))[1])
        plan = Plan(executable.folded_program, executable.env)
        assert "axis_index" not in plan.source
        assert not calls
        at = np.array([15, 0, 5, 10])
        own = at[:, None] + np.arange(3)
        overwrite = jax.jit(lambda v: v.at[0].set(-1), donate_argnums=0)
        for _ in range(3):
            (block,) = executable.blocks([x])
            one, two, three = plan.run(block)
            np.testing.assert_array_equal(one.reshape(4, 2), np.arange(8).reshape(4, 2) + at[:, None])
            np.testing.assert_array_equal(two.reshape(4, 3), own)
            np.testing.assert_array_equal(three.reshape(4, 3), own * np.arange(0, 8, 2)[:, None])
            np.testing.assert_array_equal(mapped(x)[1], own.reshape(12, 1))
            overwrite(mapped(x)[1])
        assert len(calls) <= 2  # of each of the two plans


def test_large_values_are_computed_in_each_call():
    mesh = jax.make_mesh((4,), ("x",))
    mapped = jax.shard_map(
        lambda x: x + (jnp.arange(2048.0) * lax.axis_index("x")).sum(),
        mesh=mesh,
        in_specs=jax.P("x"),
        out_specs=jax.P("x"),
    )
    with config.override("shardwise_fused", "off"):
        executable = jax.jit(mapped).lower(some(4, 1)).compile().runtime_executable()
        source = Plan(executable.folded_program, executable.env).source
    assert "known()" in source
    assert "mul" in source


def old_row(x, i):
    """The row that is replaced, and the new one."""
    old = x[i]
    return x.at[i].set(old * 2 + 1), (old, x[3, :7].sum())


def reshaped(x, i):
    old = lax.dynamic_index_in_dim(x.reshape(-1, 64), i, keepdims=False)
    return x.at[i].set(1.0), old


@pytest.mark.parametrize("step", [old_row, reshaped])
@pytest.mark.parametrize("donate", [(), (0,)])
def test_rows_that_outlive_an_update_are_copied(step, donate):
    x = some(*ROWS)
    last, rows = np.array(x), []
    for i in range(5):
        old = last[i].copy() if step is old_row else last.reshape(-1, 64)[i].copy()
        rows.append(old)
        last[i] = old * 2 + 1 if step is old_row else 1.0
    with config.override("shardwise_fused", "off"):
        got, ys = jax.jit(lambda x: lax.scan(step, x, jnp.arange(5)), donate_argnums=donate)(jnp.array(x))
    np.testing.assert_array_equal(got, last)
    np.testing.assert_array_equal(ys[0] if step is old_row else ys, rows)


def test_small_results_that_repeat_elements_have_memory_of_their_own():
    """A program that reads them at each call would copy them at each call; large ones stay views."""
    n = jax.device_count()
    rows = jax.NamedSharding(jax.make_mesh((n,), ("x",)), jax.P("x"))
    spread = jax.jit(lambda x: [lax.broadcast_in_dim(x, (3, x.size), (1,)), jnp.ones(7, jnp.int8), x])
    for x in (some(5), jax.device_put(some(2 * n), rows)):
        made = [jnp.zeros((4, 4)), jnp.full((2, 3), 2 + 1j), *spread(x)]
        assert all(np.asarray(a).flags.c_contiguous for a in made)
        expected = [
            np.zeros((4, 4)),
            np.full((2, 3), 2 + 1j),
            np.tile(np.asarray(x), (3, 1)),
            np.ones(7),
            np.asarray(x),
        ]
        for a, e in zip(made, expected, strict=True):
            np.testing.assert_array_equal(a, e)
    assert 0 in np.asarray(jnp.zeros((512, 512))).strides


def test_a_large_value_is_not_copied_for_a_row():
    def f(x):
        row = x[3]
        return [x.at[3].set(0.0), row]

    x = some(*ROWS)
    plan = plan_of(f, x, owned=(0,))
    given = x.copy()
    at = given.ctypes.data
    blocks = [given]
    del given
    updated, row = plan.run(blocks)
    assert updated.ctypes.data == at
    np.testing.assert_array_equal(row, x[3])
    assert not updated[3].any()
    # As it was where the caller keeps the operand.
    updated, row = plan_of(f, x).run(x)
    assert np.shares_memory(row, x)


def test_kernels_get_arrays_where_ufuncs_made_scalars():
    """A kernel in machine code takes the address of what it gets; NumPy's ufuncs make scalars of 0-d arrays."""
    seen: list[tuple[type, ...]] = []

    def kernel(env: Env, *blocks: np.ndarray) -> np.ndarray:
        seen.append(tuple(type(b) for b in blocks))
        return np.add.reduce(blocks)

    probe = define_op("probe", type_rule=lambda x, y: x, kernel=kernel)
    scalar = ShapedArray((), np.dtype("float32"))
    program = trace_program(lambda x: [bind(probe, bind(probe, x, x * 2), x * x + 1)], [scalar])[0]
    (out,) = Plan(program, Env(())).run(np.array(3, np.float32))
    assert seen == [(np.ndarray, np.ndarray)] * 2
    assert out == 19


def test_uniform_numbers_between_bounds_that_are_traced():
    for _ in range(3):
        slope = jax.jacrev(lambda a: a * jax.random.uniform(jax.random.key(1), minval=0, maxval=0.1))(1.0)
        assert 0 <= slope < 0.1
