"""Keys: both forms, everywhere, and the same words as JAX's."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import random
from shardwise.base import config


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


def words(key):
    return np.asarray(random.key_data(key))


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**40 + 5, True, np.int32(-7), np.uint8(3)])
def test_keys_of_seeds_equal_jaxs(jax, seed):
    assert (np.asarray(random.PRNGKey(seed)) == np.asarray(jax.random.PRNGKey(seed))).all()
    assert (words(random.key(seed)) == np.asarray(jax.random.PRNGKey(seed))).all()


def test_typed_keys_have_their_own_dtype():
    key = random.key(3)
    assert key.shape == () and key.dtype == random.key_dtype() and str(key.dtype) == "key<fry>"
    assert random.key_impl(key) == random.key_impl(random.PRNGKey(0)) == "threefry2x32"
    with pytest.raises(TypeError, match="NumPy"):
        np.asarray(key)


@pytest.mark.parametrize("num", [2, 5, (2, 3), ()])
def test_split_equals_jaxs_in_both_forms(jax, num):
    expected = np.asarray(jax.random.split(jax.random.PRNGKey(9), num))
    assert (np.asarray(random.split(random.PRNGKey(9), num)) == expected).all()
    assert (words(random.split(random.key(9), num)) == expected).all()


def test_fold_in_equals_jaxs_in_both_forms(jax):
    expected = np.asarray(jax.random.fold_in(jax.random.PRNGKey(9), 77))
    assert (np.asarray(random.fold_in(random.PRNGKey(9), 77)) == expected).all()
    assert (words(random.fold_in(random.key(9), np.int32(77))) == expected).all()
    with pytest.raises(OverflowError):
        random.fold_in(random.key(0), -1)
    with pytest.raises(TypeError, match="scalar"):
        random.fold_in(random.key(0), np.arange(3))


def test_words_and_keys_convert_both_ways():
    raw = random.split(random.PRNGKey(1), (2, 3))
    keys = random.wrap_key_data(raw)
    assert keys.shape == (2, 3)
    assert (words(keys) == np.asarray(raw)).all()
    assert (np.asarray(random.key_data(raw)) == np.asarray(raw)).all()
    assert (words(random.clone(keys)) == np.asarray(raw)).all()


def test_a_traced_seed_makes_the_same_key():
    made = sw.jit(lambda n: random.key_data(random.key(n)))(np.int32(5))
    assert (np.asarray(made) == words(random.key(5))).all()


def test_custom_prng_setting_makes_typed_keys():
    config.update("jax_enable_custom_prng", True)
    try:
        assert random.PRNGKey(0).dtype == random.key_dtype()
        with pytest.warns(FutureWarning, match="Raw arrays"):
            random.split(np.zeros(2, np.uint32))
    finally:
        config.update("jax_enable_custom_prng", False)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: random.key(1.5), TypeError),
        (lambda: random.key(np.arange(2)), TypeError),
        (lambda: random.key(random.key(0)), TypeError),
        (lambda: random.key(0, impl="threefry2x32", dtype="threefry2x32"), ValueError),
        (lambda: random.key(0, impl="nope"), ValueError),
        (lambda: random.key(0, impl=3.5), TypeError),
        (lambda: random.wrap_key_data(np.zeros(2, np.int32)), TypeError),
        (lambda: random.split("key"), TypeError),
        (lambda: random.split(np.zeros(3, np.uint32)), TypeError),
        (lambda: random.split(random.split(random.key(0))), ValueError),
        (lambda: random.uniform(random.split(random.PRNGKey(0))), ValueError),
    ],
)
def test_what_is_no_key_is_refused(call, error):
    with pytest.raises(error):
        call()
