"""The older order of threefry's counters, which `jax_threefry_partitionable=False` asks for.

The counters 0, 1, ..., n - 1 of all words that an array needs are cut in two halves, and each of the first half is hashed as
a pair with its fellow in the second; the words that come out are laid one half behind the other. So every element depends on
the size of the whole array, and no part of it can be made without the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise.ops.random import threefry

_MOST = 2**32 - 1  # counters have 32 bits


class Draws(NamedTuple):
    """How keys are split and bits are made: ``split(keys, shape)`` and ``random_bits(keys, bit_width, shape)``."""

    split: Callable[..., Any]
    random_bits: Callable[..., Any]


def split(keys: Any, shape: int | Sequence[int] = 2) -> Any:
    """`shape` new keys from each key: u64[...] -> u64[..., *shape]."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    words = _hash_words(keys, 2 * math.prod(shape))
    return threefry.key_from_words(words.reshape(*words.shape[:-1], *shape, 2))


def random_bits(keys: Any, bit_width: int, shape: Sequence[int]) -> Any:
    """Random unsigned integers of 8, 16, 32 or 64 bits from each key: u64[...] -> uint[..., *shape]."""
    size, dtype = math.prod(shape), np.dtype(f"uint{bit_width}")
    words = _hash_words(keys, -(-bit_width * size // 32))
    if bit_width == 64:
        bits = words[..., :size].astype(dtype) << np.uint64(32) | words[..., size:]
    else:  # narrow numbers lie in a word from its low end on
        bits = words.astype("<u4", copy=False).view(dtype)[..., :size]
    return bits.reshape(words.shape[:-1] + tuple(shape))


def _hash_words(keys: Any, count: int) -> Any:
    """`count` words from each key: u64[...] -> u32[..., count]."""
    if count > _MOST:
        raise NotImplementedError(
            f"{count} random words in one array need counters of more than 32 bits: draw them in parts, or turn "
            "jax_threefry_partitionable on."
        )
    words = threefry.key_words(keys)
    half = -(-count // 2)
    second = np.arange(half, 2 * half, dtype=np.uint32)
    second[count - half :] = 0
    pair = threefry.threefry_2x32(words[..., :1], words[..., 1:], np.arange(half, dtype=np.uint32), second)
    return np.ascontiguousarray(np.concatenate(pair, -1)[..., :count])


COUNTED_DRAWS = Draws(threefry.split, threefry.random_bits)
HALVED_DRAWS = Draws(split, random_bits)
