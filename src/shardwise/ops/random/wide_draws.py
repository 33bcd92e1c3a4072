"""New keys and bits of `rbg` and `unsafe_rbg`, as blocks, for kernels that draw for each key by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import KEY_DTYPES
from shardwise.base.shapes import Ndarray
from shardwise.ops.random import threefry
from shardwise.ops.random.bit_generators import philox_bits
from shardwise.ops.random.counted_bits import BITS
from shardwise.ops.random.threefry_halves import Draws
from shardwise.ops.random.wide_keys import ROUNDS
from shardwise.runtime.blocks import with_dim_at

_UINT32 = np.dtype(np.uint32)


def wide_draws(tag: str, halves: Draws) -> Draws:
    """How keys of this type are split and bits are made; `halves` says how the halves of `rbg` keys, threefry keys, are split."""

    def split_halves(keys: Ndarray, shape: int | Sequence[int] = 2) -> Ndarray:
        count = shape if isinstance(shape, int) else math.prod(shape)
        pairs = threefry.key_from_words(_words(keys).reshape(*keys.shape, 2, 2))
        words = threefry.key_words(with_dim_at(halves.split(pairs, count), -1, -2))
        return _keys(words.reshape(*keys.shape, count, 4))

    def split_bits(keys: Ndarray, shape: int | Sequence[int] = 2) -> Ndarray:
        count = shape if isinstance(shape, int) else math.prod(shape)
        return _keys(_bits(keys, (ROUNDS * count, 4), _UINT32)[..., ::ROUNDS, :])

    def random_bits(keys: Ndarray, bit_width: int, shape: Sequence[int]) -> Ndarray:
        return _bits(keys, tuple(shape), BITS[bit_width])

    return Draws(split_halves if tag == KEY_DTYPES["rbg"].tag else split_bits, random_bits)


def _words(keys: Ndarray) -> Ndarray:
    return np.ascontiguousarray(keys).reshape(*keys.shape, 1).view(_UINT32)


def _keys(words: Ndarray) -> Ndarray:
    return np.ascontiguousarray(words).view(KEY_DTYPES["rbg"].physical)[..., 0]


def _bits(keys: Ndarray, shape: tuple[int, ...], dtype: Any) -> Ndarray:
    states = _words(keys).reshape(-1, 4).view(np.uint64)
    return philox_bits(states, shape, np.dtype(dtype))[1].reshape(*keys.shape, *shape)
