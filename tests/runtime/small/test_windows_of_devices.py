"""Gathers, scatters and random bits in small programs where devices have indices, updates or parts of their own."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.small.kernel import available
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
GRID = sw.make_mesh((4, 2), ("x", "y"))
DRAWN = np.random.default_rng(5)
INDICES = DRAWN.integers(-2, 9, 16).astype(np.int32)  # some of them are outside
ROWS = DRAWN.integers(-8, 9, (16, 3)).astype(np.float32)


def same(f, made, *args):
    """`f`, in a loop so that it is compiled, on a grid and on one device; args are pairs of a value and its spec."""

    def run(*values):
        return lax.fori_loop(0, 8, lambda i, c: f(c, *values[1:]), values[0])

    alone = np.asarray(sw.jit(run)(*[jnp.asarray(x) for x, _ in args]))
    del made[:]
    split = [sw.device_put(x, NamedSharding(GRID, spec)) for x, spec in args]
    np.testing.assert_array_equal(np.asarray(sw.jit(run)(*split)), alone)
    assert len(made) == 1


@pytest.mark.parametrize("spec", [P("x"), P(("x", "y")), P(("y", "x"))])
@pytest.mark.parametrize("combine", ["add", "max", "min", "mul"])
def test_updates_that_are_split_are_combined_in_one_operand(made, combine, spec):
    def step(table, indices, rows):
        return getattr(table.at[indices], combine)(rows, mode="drop")

    rows = np.sign(ROWS - 0.5) if combine == "mul" else ROWS
    same(step, made, (np.ones((7, 3), np.float32), P()), (INDICES, spec), (rows, P(spec[0], None)))


def test_updates_that_all_devices_share_count_once(made):
    rows = np.ones((16, 3), np.float32)
    same(lambda t, i: t.at[i].add(1.0), made, (np.ones((7, 3), np.float32), P()), (INDICES, P("x")))
    same(lambda t, r: t.at[jnp.arange(16) % 7].add(r), made, (np.ones((7, 3), np.float32), P()), (rows, P("y")))


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("spec", [P("x"), P(("x", "y"))])
def test_devices_take_rows_of_their_own(made, mode, spec):
    def step(table, indices):
        taken = jnp.take(table, indices, axis=0, mode=mode, fill_value=1.0)
        return table * 0.5 + taken.sum(0)

    same(step, made, (ROWS, P()), (INDICES, spec))


def test_rows_move_in_shard_map(made):
    def body(table, indices, rows):
        def step(i, c):
            return c.at[indices].add(rows[::-1]) + c[indices].sum() * 0.25

        return lax.fori_loop(0, 8, step, table)

    def run(choice):
        with config.override("shardwise_fused", choice):
            f = sw.shard_map(body, mesh=GRID, in_specs=P("x"), out_specs=P("x"), check_vma=False)
            return np.asarray(sw.jit(f)(ROWS, INDICES % 4, ROWS))

    np.testing.assert_array_equal(run("auto"), run("off"))
    assert len(made) == 1


@pytest.mark.parametrize("spec", [P("x"), P(None, ("x", "y"))])
def test_devices_draw_parts_of_their_own(made, spec):
    key = sw.random.key(3)

    def step(c, key):
        bits = sw.random.bits(key, c.shape)
        return lax.with_sharding_constraint(
            c ^ bits + jnp.arange(c.shape[1], dtype=jnp.uint32), NamedSharding(GRID, spec)
        )

    def run(c, key):
        return lax.fori_loop(0, 3, lambda i, c: step(c, sw.random.fold_in(key, i)), c)

    zeros = jnp.zeros((8, 16), jnp.uint32)
    split = sw.jit(run)(sw.device_put(zeros, NamedSharding(GRID, spec)), key)
    del made[:]
    with config.override("shardwise_fused", "off"):
        alone = sw.jit(lambda c, k: run(c, k))(sw.device_put(zeros, NamedSharding(GRID, spec)), key)
    np.testing.assert_array_equal(np.asarray(split), np.asarray(alone))


def test_products_are_contracted_over_devices(made):
    x, w = DRAWN.integers(-3, 4, (32, 5)).astype(np.float32), DRAWN.integers(-3, 4, (5, 5)).astype(np.float32)
    for spec in (P("x"), P(("x", "y")), P(("y", "x"))):
        same(lambda w, x: (x.T @ (x @ w)) % 7, made, (w, P()), (x, spec))
