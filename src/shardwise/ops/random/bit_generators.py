"""Random bits of a state that each draw advances, as XLA's `RngBitGenerator` makes them: Philox-4x32-10 and Threefry-2x32.

In: states, uint64[n, 2]: a key, and the counter of the next block. Out: the states behind the draw, and the bits. A block is one
result of the generator: four words of Philox, two of Threefry.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shardwise.ops.random import threefry

if TYPE_CHECKING:  # takes longer to import than this module
    from numpy.typing import NDArray

Bits: TypeAlias = "NDArray[Any]"
States: TypeAlias = "NDArray[np.uint64]"

# The constants of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_TILE = 1 << 13  # blocks at a time: the eight uint64 arrays of a round stay in the L2 cache


def philox_4x32(counter: tuple[Bits, Bits, Bits, Bits], key: tuple[int, int]) -> tuple[Bits, Bits, Bits, Bits]:
    """Philox-4x32-10 of counters given as four words, lowest first: uint64 arrays that hold 32 bits each, as the results do."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        even, odd = x0 * PHILOX_MULTIPLIERS[0], x2 * PHILOX_MULTIPLIERS[1]
        x0, x1 = (odd >> _HALF) ^ x1 ^ np.uint64(k0), odd & _WORD
        x2, x3 = (even >> _HALF) ^ x3 ^ np.uint64(k1), even & _WORD
        k0, k1 = (k0 + PHILOX_WEYL[0]) & 0xFFFFFFFF, (k1 + PHILOX_WEYL[1]) & 0xFFFFFFFF
    return x0, x1, x2, x3


def philox_bits(states: States, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[States, Bits]:
    """The bits of each state: uint[n, *shape] in row-major order, one or two words per element.

    The counter has 128 bits. Its upper half begins as the key, and takes the carry; the state keeps only the lower half.
    """
    size = math.prod(shape)
    blocks = -(-size * (2 if dtype.itemsize == 8 else 1) // 4)
    words = np.empty((len(states), blocks, 4), np.uint32)
    for row, (key, first) in zip(words, states, strict=True):
        for start in range(0, blocks, _TILE):
            tile = row[start : start + _TILE]
            low = first + np.arange(start, start + len(tile), dtype=np.uint64)
            high = key + (low < first).astype(np.uint64)
            counter = (low & _WORD, low >> _HALF, high & _WORD, high >> _HALF)
            for i, word in enumerate(philox_4x32(counter, (int(key & _WORD), int(key >> _HALF)))):
                tile[:, i] = word
    flat = words.reshape(len(states), -1)
    if dtype.itemsize == 8:  # the first word of a pair is the lower half
        bits = flat[:, 0::2] | flat[:, 1::2].astype(np.uint64) << _HALF
    else:
        bits = flat.astype(dtype, copy=False)
    return _advance_states(states, blocks), np.ascontiguousarray(bits[:, :size]).reshape(len(states), *shape)


def threefry_bits(states: States, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[States, Bits]:
    """The bits of each state: uint[n, *shape].

    An element of 64 bits is a block. Of narrower ones, the two words of a block are neighbours in the first dim of even size, or
    else in the longest.
    """
    if dtype.itemsize == 8:
        blocks = math.prod(shape)
        first, second = _threefry_blocks(states, blocks)
        bits = first | second.astype(np.uint64) << _HALF
        return _advance_states(states, blocks), bits.reshape(len(states), *shape)
    pair_shape = shape or (1,)
    dim = next((d for d, n in enumerate(pair_shape) if n % 2 == 0), pair_shape.index(max(pair_shape)))
    halves = (*pair_shape[:dim], -(-pair_shape[dim] // 2), *pair_shape[dim + 1 :])
    blocks = math.prod(halves)
    pair = [words.reshape(len(states), *halves) for words in _threefry_blocks(states, blocks)]
    joined_words = np.stack(pair, dim + 2).reshape(
        len(states), *pair_shape[:dim], 2 * halves[dim], *pair_shape[dim + 1 :]
    )
    whole = joined_words[(slice(None),) * (dim + 1) + (slice(pair_shape[dim]),)]
    return _advance_states(states, blocks), np.ascontiguousarray(whole).astype(dtype, copy=False).reshape(
        len(states), *shape
    )


def _threefry_blocks(states: States, count: int) -> tuple[Bits, Bits]:
    """The two words of `count` blocks of each state: u32[n, count] each."""
    counters = states[:, 1:] + np.arange(count, dtype=np.uint64)
    keys = states[:, :1]
    words = [
        (x & _WORD).astype(np.uint32) if low else (x >> _HALF).astype(np.uint32)
        for x in (keys, counters)
        for low in (1, 0)
    ]
    return threefry.threefry_2x32(*words)


def _advance_states(states: States, blocks: int) -> States:
    return states + np.array([0, blocks], np.uint64)
