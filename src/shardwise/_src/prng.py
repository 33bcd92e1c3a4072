"""`prng`: the default generator on words alone: keys that are uint32[2], as libraries with keys of their own take them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise import lax, random
from shardwise import numpy as jnp
from shardwise.extend.random import rbg_prng_impl as rbg_prng_impl
from shardwise.extend.random import threefry_2x32 as threefry_2x32
from shardwise.extend.random import threefry_prng_impl as threefry_prng_impl
from shardwise.extend.random import unsafe_rbg_prng_impl as unsafe_rbg_prng_impl
from shardwise.ir import Array

_WIDTHS = (8, 16, 32, 64)


def _key(words: Any) -> Array:
    return random.wrap_key_data(words, impl="threefry2x32")


def threefry_seed(seed: Any) -> Array:
    """The words of an integer: its high 32 bits and its low ones. TypeError for any other value than a scalar of integer type."""
    value = jnp.asarray(seed)
    if value.shape or not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(f"threefry_seed takes a scalar of integer type, got {value.aval.str_short()}.")
    wide = value.dtype.itemsize == 8
    high = lax.shift_right_logical(value, jnp.asarray(32, value.dtype)).astype(np.uint32) if wide else jnp.uint32(0)
    return jnp.stack([high, value.astype(np.uint32)])


def threefry_split(key: Any, shape: Sequence[int]) -> Array:
    """The words of new keys: uint32[2] -> uint32[*shape, 2]."""
    return random.key_data(random.split(_key(key), tuple(shape)))


def threefry_fold_in(key: Any, data: Any) -> Array:
    """The words of a key and an integer: uint32[2] -> uint32[2]."""
    return random.key_data(random.fold_in(_key(key), data))


def threefry_random_bits(key: Any, bit_width: int, shape: Sequence[int]) -> Array:
    """Random unsigned integers of 8, 16, 32 or 64 bits. TypeError for other widths."""
    if bit_width not in _WIDTHS:
        raise TypeError(f"threefry_random_bits makes integers of 8, 16, 32 or 64 bits, got {bit_width}.")
    return random.bits(_key(key), tuple(shape), f"uint{bit_width}")
