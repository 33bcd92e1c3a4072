"""Random bits against JAX's, bit for bit, and blocks against the whole."""

import itertools
import sys
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.ops.random import threefry

SEEDS = (0, 1, 42, 2**31 - 1, -1, -(2**31), 2**33 + 5)
SHAPES = [
    (),
    (0,),
    (1,),
    (2,),
    (5,),
    (6,),
    (7,),
    (3, 0, 2),
    (4, 4),
    (3, 5, 7),
    (1, 1, 9),
    (40_000,),
    (3, 33_000),
]


@pytest.fixture(autouse=True)
def no_overflow_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.fixture
def random():
    jax = pytest.importorskip("jax")
    with jax.threefry_partitionable(True):
        yield jax.random


def raw(keys):
    return threefry.key_words(keys)


@pytest.mark.parametrize("x64", [False, True])
def test_seed(random, x64):
    jax = sys.modules["jax"]
    with jax.enable_x64(x64):
        for value in SEEDS:
            np.testing.assert_array_equal(raw(threefry.seed(value, x64=x64)), random.PRNGKey(value))
        for value in (np.int8(-1), np.uint8(200), np.int16(-300), np.int32(-1), np.uint32(2**32 - 1)):
            np.testing.assert_array_equal(raw(threefry.seed(value)), random.PRNGKey(value))
    np.testing.assert_array_equal(raw(threefry.seed(np.array([[1, 2], [3, -1]]))).shape, (2, 2, 2))
    np.testing.assert_array_equal(raw(threefry.seed(np.uint64(2**64 - 2))), [2**32 - 1, 2**32 - 2])


def test_seed_refuses():
    with pytest.raises(OverflowError):
        threefry.seed(2**63)
    values: tuple[Any, ...] = (1.5, np.zeros(2), "a")
    for wrong in values:
        with pytest.raises(TypeError, match="integer"):
            threefry.seed(wrong)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_bits(random, shape, bits):
    with sys.modules["jax"].enable_x64(True):
        expected = np.asarray(random.bits(random.PRNGKey(7), shape, f"uint{bits}"))
    ours = threefry.random_bits(threefry.seed(7), bits, shape)
    assert ours.dtype == expected.dtype
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("shape", [(), (0,), 2, 3, 7, (2, 3), (40_000,)], ids=str)
def test_split(random, shape):
    for value in SEEDS[:3]:
        expected = random.split(random.PRNGKey(value), shape)
        np.testing.assert_array_equal(raw(threefry.split(threefry.seed(value), shape)), expected)


def test_fold_in(random):
    jax = sys.modules["jax"]
    for value, data in itertools.product(SEEDS, (0, 1, 2**32 - 1)):
        expected = random.fold_in(random.PRNGKey(value), data)
        np.testing.assert_array_equal(raw(threefry.fold_in(threefry.seed(value), data)), expected)
    many = np.arange(-5, 20, dtype=np.int32)
    expected = jax.vmap(random.fold_in, (None, 0))(random.PRNGKey(3), many)
    np.testing.assert_array_equal(raw(threefry.fold_in(threefry.seed(3), many)), expected)
    assert threefry.fold_in(threefry.split(threefry.seed(0), (4, 1)), many).shape == (4, 25)
    for wrong in (-1, 2**32):
        with pytest.raises(OverflowError):
            threefry.fold_in(threefry.seed(0), wrong)


def test_key_batches(random):
    jax = sys.modules["jax"]
    keys = threefry.split(threefry.seed(5), (2, 3))
    theirs = random.split(random.PRNGKey(5), (2, 3))
    bits = jax.vmap(jax.vmap(lambda k: random.bits(k, (4, 5))))(theirs)
    np.testing.assert_array_equal(threefry.random_bits(keys, 32, (4, 5)), bits)
    inner = jax.vmap(jax.vmap(lambda k: random.split(k, 4)))(theirs)
    np.testing.assert_array_equal(raw(threefry.split(keys, 4)), inner)
    assert threefry.random_bits(keys[:, :0], 32, (4,)).shape == (2, 0, 4)


@pytest.mark.parametrize("size", [1, 5, 1000, 70_000])
def test_hash_of_given_words(random, size):
    prng = pytest.importorskip("jax.extend.random")
    generator = np.random.default_rng(size)
    k0, k1, x0, x1 = generator.integers(0, 2**32, (4, size), dtype=np.uint32)
    expected = prng.threefry2x32_p.bind(k0, k1, x0, x1)
    np.testing.assert_array_equal(threefry.threefry_2x32(k0, k1, x0, x1), expected)
    expected = prng.threefry2x32_p.bind(k0[:1], k1[:1], x0, x1)
    np.testing.assert_array_equal(threefry.threefry_2x32(k0[0], k1[0], x0, x1), expected)


def test_hash_broadcasts_and_checks():
    k = np.arange(3, dtype=np.uint32)[:, None]
    x = np.arange(4, dtype=np.uint32)
    y0, y1 = threefry.threefry_2x32(k, k, x, x)
    assert y0.shape == y1.shape == (3, 4)
    assert (x == np.arange(4)).all(), "operands are not overwritten"
    assert y0[2, 3] == threefry.threefry_2x32(k[2, 0], k[2, 0], x[3], x[3])[0]
    with pytest.raises(TypeError, match="int64"):
        threefry.threefry_2x32(1, k, x, x)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_blocks_are_parts_of_the_whole(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), max_size=3)))
    block = tuple(data.draw(st.integers(1, n)) for n in shape)
    mesh = (2, 3)
    draw_starts = st.sampled_from([(), (1, 1), (2, 1), (1, 3), (2, 3)])
    starts = []
    for size, extent in zip(shape, block, strict=True):
        axes = data.draw(draw_starts)
        elements = data.draw(st.lists(st.integers(0, size - extent), min_size=6, max_size=6))
        starts.append(np.array(elements)[: int(np.prod(axes))].reshape(axes))
    key_axes = data.draw(draw_starts)
    keys = threefry.split(threefry.seed(9), key_axes)
    bits = data.draw(st.sampled_from([8, 16, 32, 64]))
    blocks = threefry.random_bits_block(keys, bits, shape, block, starts)
    loop = np.broadcast_shapes(key_axes, *[s.shape for s in starts])
    assert blocks.shape == loop + block and len(loop) in (0, len(mesh))
    whole = np.broadcast_to(threefry.random_bits(keys, bits, shape), loop + shape)
    for at in np.ndindex(loop):
        index = tuple(
            slice(first := int(np.broadcast_to(s, loop)[at]), first + n) for s, n in zip(starts, block, strict=True)
        )
        np.testing.assert_array_equal(blocks[at], whole[at][index])


def test_blocks_larger_than_a_tile():
    key = threefry.seed(1)
    shape = (3, 80_000)
    whole = threefry.random_bits(key, 32, shape)
    halves = threefry.random_bits_block(key, 32, shape, (3, 40_000), (0, np.array([0, 40_000])))
    np.testing.assert_array_equal(np.concatenate(halves, axis=1), whole)
    columns = threefry.random_bits_block(key, 32, (50_000, 4), (50_000, 1), (0, np.arange(4)))
    np.testing.assert_array_equal(np.concatenate(columns, axis=1), threefry.random_bits(key, 32, (50_000, 4)))
    keys = threefry.split(key, 3)
    by_key = threefry.random_bits(keys, 16, (40_000,))
    np.testing.assert_array_equal(by_key[2], threefry.random_bits(keys[2], 16, (40_000,)))


def test_counters_beyond_32_bits(random):
    """The last rows of an array too large to make."""
    huge = (2**20, 2**14)
    block = threefry.random_bits_block(threefry.seed(2), 32, huge, (1, 8), (2**20 - 1, 2**14 - 8))
    counters = 2**34 - 8 + np.arange(8)
    prng = pytest.importorskip("jax.extend.random")
    k0, k1 = np.array([0], np.uint32), np.array([2], np.uint32)
    words = prng.threefry2x32_p.bind(k0, k1, (counters >> 32).astype(np.uint32), counters.astype(np.uint32))
    np.testing.assert_array_equal(block[0], np.bitwise_xor(*words))


def test_split_block():
    key = threefry.seed(3)
    whole = threefry.split(key, (4, 6))
    block = threefry.split_block(key, (4, 6), (2, 6), (np.array([0, 2]), 0))
    np.testing.assert_array_equal(block.reshape(4, 6), whole)


def test_keys_are_views():
    words = np.arange(6, dtype=np.uint32).reshape(3, 2)
    keys = threefry.key_from_words(words)
    assert keys.shape == (3,) and np.shares_memory(keys, words)
    assert np.shares_memory(threefry.key_words(keys), words)
    np.testing.assert_array_equal(threefry.key_words(keys), words)
    assert threefry.key_words(threefry.seed(1)).shape == (2,)
    np.testing.assert_array_equal(threefry.key_words(keys[::2]), words[::2])
    for wrong in (words.astype(np.int32), words[:, :1], np.uint32(3)):
        with pytest.raises(TypeError, match="two uint32 words"):
            threefry.key_from_words(wrong)
    with pytest.raises(TypeError, match="uint64"):
        threefry.split(words)


def test_padding_of_uneven_blocks():
    key = threefry.seed(4)
    whole = threefry.random_bits(key, 32, (5, 7))
    blocks = threefry.random_bits_block(key, 32, (5, 7), (3, 4), (np.array([[0], [3]]), np.array([0, 4])))
    assert blocks.shape == (2, 2, 3, 4)
    np.testing.assert_array_equal(np.block([[blocks[i, j] for j in (0, 1)] for i in (0, 1)])[:5, :7], whole)


def test_wrong_blocks():
    key = threefry.seed(0)
    with pytest.raises(TypeError, match="24"):
        threefry.random_bits(key, 24, (2,))
    with pytest.raises(ValueError, match="negative"):
        threefry.random_bits(key, 32, (2, -1))
    with pytest.raises(ValueError, match="rank"):
        threefry.random_bits_block(key, 32, (2, 4), (2, 4), (0,))
    with pytest.raises(NotImplementedError, match=r"2\*\*64"):
        threefry.random_bits_block(key, 32, (2**33, 2**33), (1, 1), (0, 0))


def test_memory_is_the_result_and_little_more():
    tracemalloc.start()
    threefry.random_bits(threefry.seed(0), 32, (1 << 20,))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 << 20


@pytest.mark.parametrize("count", [1, 2, 5, 95, 96, 97])
def test_few_counters_hash_like_many(count):
    keys = threefry.seed(np.arange(3))
    for bits in (8, 32, 64):
        whole = threefry.random_bits(keys, bits, (200,))
        np.testing.assert_array_equal(threefry.random_bits(keys, bits, (count,)), whole[:, :count])
        np.testing.assert_array_equal(threefry.random_bits(keys[:1], bits, (count,)), whole[:1, :count])
