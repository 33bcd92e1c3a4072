"""Generators by name, keys made with them, and the hash, against the numbers of JAX 0.10.2."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.extend import random
from shardwise.extend.core import Token

PAIR = np.uint32(3), np.uint32(7)


def test_the_hash():
    three = [4253538500, 197315834, 2173464010, 3660800929, 2678451132, 2260854145]
    counters = np.arange(6, dtype=np.uint32)
    for call in (random.threefry_2x32, sw.jit(random.threefry_2x32)):
        assert call(PAIR, counters).tolist() == three
        assert call(PAIR, counters.reshape(2, 3)).shape == (2, 3)
        assert call(PAIR, counters[:5]).tolist() == [4253538500, 197315834, 977526136, 3660800929, 2678451132]
    with pytest.raises(TypeError, match="uint32 counters, got"):
        random.threefry_2x32(PAIR, np.arange(6))


def test_keys_of_each_generator():
    words = lambda key: sw.random.key_data(key).tolist()  # noqa: E731
    assert words(random.random_seed(5, random.threefry_prng_impl)) == [0, 5]
    assert words(random.random_seed(-1, random.threefry_prng_impl)) == [0, 2**32 - 1]
    assert words(random.random_seed(np.arange(2), random.threefry_prng_impl)) == [[0, 0], [0, 1]]
    assert words(random.seed_with_impl(random.rbg_prng_impl, 5)) == [0, 5, 0, 5]
    key = random.seed_with_impl(random.unsafe_rbg_prng_impl, 5)
    assert sw.random.key_impl(key) == "unsafe_rbg"
    assert (sw.random.key(5, impl=random.threefry_prng_impl) == random.random_seed(5, random.threefry_prng_impl)).all()
    with pytest.raises(NotImplementedError, match=r"random\.key"):
        random.define_prng_impl(key_shape=(2,), name="mine")


def test_a_token_waits_for_its_array():
    assert Token(jnp.ones(2)).block_until_ready() is None
    assert isinstance(sw.jit(lambda t: t)(sw.lax.create_token()), Token)
