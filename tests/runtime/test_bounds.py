"""Compiled loops stay within the memory of their results: each buffer lies between bytes that nobody may write."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.runtime import costs, memory
from shardwise.runtime.machine import available
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for loops")

GUARD, FILL = 4096, 0xAB
DTYPES = ("int8", "int32", "bfloat16", "float16", "float32", "complex64")
SIZES = (8, 40, 72, 129)


@pytest.fixture
def buffers(monkeypatch):
    """All buffers of the pool, which every result comes from, with what lies around them."""
    found = []
    aligned = memory._aligned_buffer

    def guarded(size):
        whole = aligned(size + 2 * GUARD)
        whole.view(np.ndarray)[...] = FILL
        found.append(whole.view(np.ndarray))
        return whole[GUARD : GUARD + size]

    monkeypatch.setattr(memory, "_aligned_buffer", guarded)
    monkeypatch.setattr(memory, "room_of", lambda size: size)
    monkeypatch.setattr(costs, "POOLED_FROM", 1)
    monkeypatch.setattr(costs, "SMALL_POOLED_FROM", 0)
    memory.pool.trim()
    yield found
    memory.pool.trim()


def turned(x, y):
    return x.T + y, x.T, y.T * 2


def reduced(x, y):
    return x.sum(0), (x * y).sum(1), jnp.cumsum(x, 1), jnp.cumsum(y, 0)


def moved(x, y):
    return jnp.roll(x, 3, 0), jnp.concatenate([x[1:], y], 0), jnp.pad(x, ((1, 2), (3, 0))), x[::-1, ::2]


def placed(x, y):
    rows = jnp.arange(len(x)) * 7 % len(x)
    return (
        x[rows],
        x.at[rows, rows % x.shape[1]].add(1),
        x.at[:, 2].set(y[:, 0]),
        jnp.take_along_axis(x, rows[:, None] % 8, 1),
    )


def repeated(x, y):
    return lax.fori_loop(
        0, 3, lambda i, c: (c[0] * 2 + c[1], jnp.roll(c[1], i, 1), c[2].T.reshape(c[2].shape)), (x, y, x - y)
    )


def crossed(x, y):
    """Squares that small programs transpose."""
    return lax.fori_loop(0, 3, lambda i, c: (c[1].T, c[0].T, c[2]), (x, y.T, x - y))[:2], x.T


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("f", [turned, reduced, moved, placed, repeated, crossed])
def test_nothing_is_written_around_results(buffers, f, dtype):
    mesh = sw.make_mesh((4,), ("x",))
    rng = np.random.default_rng(0)
    for rows in SIZES:
        x, y = (jnp.asarray(rng.integers(-9, 9, (rows, 8 * 17))).astype(dtype) for _ in range(2))
        split = NamedSharding(mesh, P(None, "x"))
        square = x[:, :rows], y[:, :rows]
        for given in (square if f is turned else (x, y), tuple(sw.device_put(a, split) for a in (x, y))):
            if f is not turned or given[0].shape[0] == given[0].shape[1]:
                sw.block_until_ready(sw.jit(f)(*given))
    assert buffers
    for whole in buffers:
        assert (whole[:GUARD] == FILL).all() and (whole[-GUARD:] == FILL).all()
