"""Keys made, opened and closed again within small programs, beside the ones that NumPy's kernels make."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.ir import subprograms
from shardwise.ops.random import threefry

SEEDS = {
    name: np.array([0, 1, 7, np.iinfo(name).max, np.iinfo(name).min], name)
    for name in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")
}


def inner_equations(program):
    """The equations of a program and of those within it."""
    for eqn in program.equations:
        yield eqn
        for _, inner in subprograms(eqn.params):
            yield from inner_equations(inner)


def words_of_seed(seed):
    return sw.random.key_data(sw.random.key(seed))


@pytest.mark.parametrize("dtype", SEEDS)
def test_keys_from_seeds_in_loops(made, dtype):
    with sw.enable_x64(np.dtype(dtype).itemsize == 8):
        seeds = jnp.asarray(SEEDS[dtype])
        blank = jnp.zeros((len(seeds), 2), jnp.uint32)

        def step(i, words):
            return words.at[i].set(words_of_seed(seeds[i]))

        found = sw.jit(lambda n, words: lax.fori_loop(0, n, step, words))(len(seeds), blank)
        np.testing.assert_array_equal(found, threefry.key_words(threefry.seed(SEEDS[dtype])))
    assert "random_seed" in {e.op.name for p in made for e in inner_equations(p)}


def test_keys_under_vmap_in_loops(made):
    """Each entry has a loop of its own length."""

    def walk(start, end):
        def step(c):
            seed, total = c
            key = sw.random.wrap_key_data(sw.random.key_data(sw.random.PRNGKey(seed)))
            return seed + 1, total + sw.random.randint(key, (3,), 0, seed + 5)

        return lax.while_loop(lambda c: c[0] < end, step, (start, jnp.zeros(3, jnp.int32)))[1]

    starts, ends = jnp.array([0, 5, -3]), jnp.array([4, 6, 9])
    found = sw.jit(sw.vmap(walk))(starts, ends)
    assert "random_seed" in {e.op.name for p in made for e in inner_equations(p)}
    np.testing.assert_array_equal(found, [walk(s, e) for s, e in zip(starts, ends, strict=True)])


def test_keys_chosen_under_vmap(made):
    """A mapped loop keeps the keys of entries that have ended."""

    def draw(key):
        def step(state):
            key, _ = state
            key, own = sw.random.split(key)
            return key, sw.random.uniform(own)

        return lax.while_loop(lambda state: state[1] < 0.7, step, (key, 0.0))[1]

    keys = sw.random.split(sw.random.key(1), 5)
    found = sw.jit(sw.vmap(draw))(keys)
    assert "select_n" in {e.op.name for p in made for e in inner_equations(p)}
    np.testing.assert_array_equal(found, [draw(key) for key in keys])
