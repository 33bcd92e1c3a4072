"""Threefry-2x32: the counter-based random bits of JAX, as plain NumPy.

In and out: *key arrays*, `uint64[...]` with one element per key. The two `uint32` words of a key lie in it in
memory order, so `key_words` and `key_from_words` are views.

A key and a 64-bit counter are hashed to two words. Element `i`, in row-major order, of an array of random
bits comes from counter `i` alone (JAX's "partitionable" mode). So any block of the array can be made without
the rest, and the bits do not depend on how the array is split over devices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:  # takes longer to import than all of this package's randomness
    from numpy.typing import ArrayLike, NDArray

Words: TypeAlias = "NDArray[np.uint32]"
Keys: TypeAlias = "NDArray[np.uint64]"

_WORD = 0xFFFFFFFF
PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
# 0-d arrays spare each ufunc call the conversion of a Python int.
_SHIFTS = tuple(
    tuple((np.array(r, np.uint32), np.array(32 - r, np.uint32)) for r in rotations) for rotations in ROTATIONS
)
_TILE = 1 << 15  # elements hashed at a time: three such uint32 arrays stay in the L2 cache
_FEW = 96  # up to so many elements Python's long ints are faster than NumPy's 110 calls

_KEY_TYPE = np.dtype(np.uint64)
_UINTS = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}


# ------------------------------------------------------------------------------------------------------------
# The hash


def threefry_2x32(
    key0: ArrayLike, key1: ArrayLike, x0: ArrayLike, x1: ArrayLike
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Hash the counter words `x0`, `x1` under the key words `key0`, `key1`: uint32 arrays that broadcast.

    Returns two new uint32 arrays of the common shape. TypeError for other dtypes.
    """
    words = [np.asarray(word) for word in (key0, key1, x0, x1)]
    if any(word.dtype != np.uint32 for word in words):
        given = ", ".join(str(word.dtype) for word in words)
        raise TypeError(f"threefry_2x32 takes four uint32 arrays, got {given}.")
    shape = np.broadcast_shapes(*[word.shape for word in words])
    k0, k1 = (_flat(word, shape) for word in words[:2])
    y0, y1 = (np.array(np.broadcast_to(word, shape), order="C").reshape(-1) for word in words[2:])
    scratch = np.empty(min(y0.size, _TILE), np.uint32)
    for start in range(0, y0.size, _TILE):
        tile = slice(start, start + _TILE)
        tile_k0, tile_k1 = (k if k.size == 1 else k[tile] for k in (k0, k1))
        _hash_in_place(tile_k0, tile_k1, y0[tile], y1[tile], scratch[: y0[tile].size])
    return y0.reshape(shape), y1.reshape(shape)


def _flat(word: Words, shape: tuple[int, ...]) -> Words:
    """One element if `word` is one, else `word` broadcast to `shape` and flattened."""
    return word.reshape(1) if word.size == 1 else np.broadcast_to(word, shape).reshape(-1)


def _hash_in_place(k0: Words, k1: Words, x0: Words, x1: Words, scratch: Words) -> None:
    """Replace `x0`, `x1` by their hash. The keys broadcast against them; no scalars, whose overflow warns."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(PARITY))
    x0 += keys[0]
    x1 += keys[1]
    for i in range(5):
        for left, right in _SHIFTS[i % 2]:
            x0 += x1
            np.left_shift(x1, left, out=scratch)
            np.right_shift(x1, right, out=x1)
            np.bitwise_or(x1, scratch, out=x1)
            np.bitwise_xor(x1, x0, out=x1)
        x0 += keys[(i + 1) % 3]
        x1 += keys[(i + 2) % 3] + np.uint32(i + 1)


def _hash_lanes(count: int, k0: int, k1: int, x0: int, x1: int) -> tuple[int, int]:
    """The hash of `count` counters at once, in Python's long ints: each word takes 64 bits, the upper half 0."""
    ones, words = _lanes(count)
    keys = (k0, k1, k0 ^ k1 ^ ones * PARITY)
    x0 = (x0 + k0) & words
    x1 = (x1 + k1) & words
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x0 = (x0 + x1) & words
            x1 = ((x1 << r | x1 >> 32 - r) & words) ^ x0
        x0 = (x0 + keys[(i + 1) % 3]) & words
        x1 = (x1 + keys[(i + 2) % 3] + ones * (i + 1)) & words
    return x0, x1


@functools.cache
def _lanes(count: int) -> tuple[int, int]:
    """`count` words side by side that are 1, or have all bits set."""
    ones = _as_int(np.ones(count, np.uint64))
    return ones, ones * _WORD


def _as_int(words: NDArray[Any]) -> int:
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


# ------------------------------------------------------------------------------------------------------------
# Keys


def key_from_words(words: ArrayLike) -> Keys:
    """Key arrays from their words: u32[..., 2] -> u64[...]; a view where the memory allows."""
    words = np.asarray(words)
    if words.dtype != np.uint32 or words.shape[-1:] != (2,):
        raise TypeError(f"A threefry key is two uint32 words, shape (..., 2); got {words.dtype}{list(words.shape)}.")
    return np.ascontiguousarray(words).view(np.uint64)[..., 0]


def key_words(keys: ArrayLike) -> Words:
    """The words of key arrays: u64[...] -> u32[..., 2]; a view where the memory allows."""
    keys = _as_keys(keys)
    return np.ascontiguousarray(keys).view(np.uint32).reshape(*keys.shape, 2)


def _as_keys(keys: ArrayLike) -> Keys:
    keys = np.asarray(keys)
    if keys.dtype != np.uint64:
        raise TypeError(f"Expected threefry keys as uint64 elements, got {keys.dtype}{list(keys.shape)}.")
    return keys


def seed(value: int | NDArray[Any] | np.integer[Any], *, x64: bool = False) -> Keys:
    """Keys from integer seeds: int[...] -> u64[...].

    A Python int counts as int64 when `x64`, else its low 32 bits count; arrays count at their own width. The
    second key word holds the low 32 bits, the first the rest. OverflowError for a Python int beyond int64,
    TypeError for seeds that are no integers.
    """
    if isinstance(value, int):
        value = np.asarray(value, np.int64)
        value = value if x64 else value.astype(np.int32)
    seeds = np.asarray(value)
    if seeds.dtype.kind not in "iu":
        raise TypeError(f"A PRNG key is made from an integer seed, got {seeds.dtype}{list(seeds.shape)}.")
    words = np.zeros((*seeds.shape, 2), np.uint32)
    if seeds.dtype.itemsize == 8:
        words[..., 0] = seeds.astype(np.uint64) >> np.uint64(32)
    words[..., 1] = seeds.astype(np.uint32)
    return key_from_words(words)


def fold_in(keys: ArrayLike, data: ArrayLike) -> Keys:
    """New keys from keys and integers, which broadcast: u64[...], int[...] -> u64[...].

    Arrays of other widths wrap to uint32; a Python int must fit it (OverflowError).
    """
    keys = _as_keys(keys)
    data = np.asarray(data, np.uint32) if isinstance(data, int) else np.asarray(data).astype(np.uint32)
    shape = np.broadcast_shapes(keys.shape, data.shape)
    counters = np.broadcast_to(data, shape).reshape(-1).astype(np.uint64)
    flat_keys = np.broadcast_to(keys, shape).reshape(-1)
    return _hash_runs(flat_keys, counters, 1, _KEY_TYPE, _pack_keys).reshape(shape)


def split(keys: ArrayLike, shape: int | Sequence[int] = 2) -> Keys:
    """`shape` new keys from each key: u64[...] -> u64[..., *shape]."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return _hash_all(_as_keys(keys), shape, _KEY_TYPE, _pack_keys)


def split_block(
    keys: ArrayLike, global_shape: Sequence[int], block_shape: Sequence[int], starts: Sequence[ArrayLike]
) -> Keys:
    """The blocks of `split(keys, global_shape)` at `starts`; arguments as in `random_bits_block`."""
    return _hash_block(_as_keys(keys), global_shape, block_shape, starts, _KEY_TYPE, _pack_keys)


# ------------------------------------------------------------------------------------------------------------
# Bits


def random_bits(keys: ArrayLike, bit_width: int, shape: Sequence[int]) -> NDArray[Any]:
    """Random unsigned integers of 8, 16, 32 or 64 bits from each key: u64[...] -> uint[..., *shape]."""
    dtype, finish = _bits_of_width(bit_width)
    return _hash_all(_as_keys(keys), tuple(shape), dtype, finish)


def random_bits_block(
    keys: ArrayLike,
    bit_width: int,
    global_shape: Sequence[int],
    block_shape: Sequence[int],
    starts: Sequence[ArrayLike],
) -> NDArray[Any]:
    """The blocks of `random_bits(keys, bit_width, global_shape)` that begin at the indices `starts`.

    Args:
        keys: u64[*loop].
        bit_width: 8, 16, 32 or 64 (else TypeError).
        global_shape: the shape of the whole array.
        block_shape: the shape of a block.
        starts: for each dim the first index of the block: an int, or an int array over the loop axes (mesh
            axes, for example). The loop axes of all `starts` and of `keys` broadcast.

    Returns:
        uint[*loop, *block_shape]. Elements outside `global_shape`, padding of uneven shards, are arbitrary.
    """
    dtype, finish = _bits_of_width(bit_width)
    return _hash_block(_as_keys(keys), global_shape, block_shape, starts, dtype, finish)


def _bits_of_width(bit_width: int) -> tuple[np.dtype[Any], _Finish]:
    if bit_width not in _UINTS:
        raise TypeError(f"Random bits come in widths of 8, 16, 32 or 64, not {bit_width!r}.")
    return _UINTS[bit_width], _concatenate if bit_width == 64 else _mix


# ------------------------------------------------------------------------------------------------------------
# Blocks of counters

# Turns the hash words of a tile into the elements `out`; may overwrite the words.
_Finish: TypeAlias = "Callable[[Words, Words, NDArray[Any]], None]"


def _mix(x0: Words, x1: Words, out: NDArray[Any]) -> None:
    np.bitwise_xor(x0, x1, out=x0)
    np.copyto(out, x0, casting="unsafe")


def _concatenate(x0: Words, x1: Words, out: NDArray[Any]) -> None:
    np.copyto(out, x0)
    np.left_shift(out, np.uint64(32), out=out)
    np.bitwise_or(out, x1, out=out)


def _pack_keys(x0: Words, x1: Words, out: NDArray[Any]) -> None:
    words = out.view(np.uint32).reshape(*out.shape, 2)
    words[..., 0] = x0
    words[..., 1] = x1


def _hash_all(keys: Keys, shape: tuple[int, ...], dtype: np.dtype[Any], finish: _Finish) -> NDArray[Any]:
    """Hash all row-major indices of `shape` under each key."""
    _check_sizes(shape)
    bases = np.zeros(keys.size, np.uint64)
    size = math.prod(shape)
    hashed_words = _hash_runs(keys.reshape(-1), bases, size, dtype, finish) if size else np.empty(0, dtype)
    return hashed_words.reshape(keys.shape + shape)


def _hash_block(
    keys: Keys,
    global_shape: Sequence[int],
    block_shape: Sequence[int],
    starts: Sequence[ArrayLike],
    dtype: np.dtype[Any],
    finish: _Finish,
) -> NDArray[Any]:
    """Hash the row-major indices of blocks: see `random_bits_block`."""
    firsts = [np.asarray(start) for start in starts]
    if not len(global_shape) == len(block_shape) == len(firsts):
        raise ValueError(
            f"A block of shape {tuple(block_shape)} at {len(firsts)} start indices does not fit the rank of "
            f"{tuple(global_shape)}."
        )
    _check_sizes(global_shape)
    _check_sizes(block_shape)
    loop = np.broadcast_shapes(keys.shape, *[first.shape for first in firsts])
    shape = (*loop, *block_shape)
    if 0 in shape:
        return np.empty(shape, dtype)

    # The trailing dims that the block covers whole, and the one before them, are one run of indices.
    outer_dims = len(block_shape)
    while outer_dims > 0:
        outer_dims -= 1
        if block_shape[outer_dims] != global_shape[outer_dims]:
            break
    run = math.prod(block_shape[outer_dims:])
    strides = [math.prod(global_shape[dim + 1 :]) for dim in range(len(global_shape))]
    bases = np.zeros((), np.uint64)
    for dim in range(outer_dims):
        bases = bases[..., None] + np.arange(block_shape[dim], dtype=np.uint64) * np.uint64(strides[dim])
    offset = np.zeros((), np.uint64)
    for first, stride in zip(firsts, strides, strict=True):
        offset = offset + first.astype(np.uint64) * np.uint64(stride)
    bases = offset[..., None] + bases.reshape(-1)

    per_loop = (*loop, bases.shape[-1])
    bases = np.broadcast_to(bases, per_loop).reshape(-1)
    flat_keys = keys.reshape(1) if keys.size == 1 else np.broadcast_to(keys[..., None], per_loop).reshape(-1)
    return _hash_runs(flat_keys, bases, run, dtype, finish).reshape(shape)


def _check_sizes(shape: Sequence[int]) -> None:
    if min(shape, default=0) < 0:
        raise ValueError(f"Sizes must not be negative, got shape {tuple(shape)}.")
    if math.prod(shape) > 1 << 64:
        raise NotImplementedError(f"Shape {tuple(shape)} has more than 2**64 elements; draw it in parts.")


def _hash_runs(keys: Keys, bases: Keys, run: int, dtype: np.dtype[Any], finish: _Finish) -> NDArray[Any]:
    """Hash the counters `bases[n] + 0 ... run - 1`, under one key or under n keys -> dtype[n, run]."""
    out = np.empty((len(bases), run), dtype)
    words = key_words(keys)
    k0, k1 = words[..., 0], words[..., 1]
    if out.size <= _FEW:
        _hash_few(k0, k1, bases, out, finish)
        return out
    rows, columns = max(1, _TILE // run), min(run, _TILE)
    x0, x1, scratch = np.empty((3, min(rows, len(bases)), columns), np.uint32)
    steps = np.arange(columns, dtype=np.uint64)
    for row in range(0, len(bases), rows):
        base = bases[row : row + rows, None]
        tile_keys = (k if len(k) == 1 else k[row : row + rows, None] for k in (k0, k1))
        tile_k0, tile_k1 = (np.ascontiguousarray(k) for k in tile_keys)
        for column in range(0, run, columns):
            target = out[row : row + rows, column : column + columns]
            tile = (slice(len(base)), slice(target.shape[1]))
            counters = base + np.uint64(column) + steps[tile[1]]
            np.copyto(x1[tile], counters, casting="unsafe")
            np.right_shift(counters, np.uint64(32), out=counters)
            np.copyto(x0[tile], counters, casting="unsafe")
            _hash_in_place(tile_k0, tile_k1, x0[tile], x1[tile], scratch[tile])
            finish(x0[tile], x1[tile], target)
    return out


def _hash_few(k0: Words, k1: Words, bases: Keys, out: NDArray[Any], finish: _Finish) -> None:
    """`_hash_runs` of few counters."""
    counters = bases[:, None] + np.arange(out.shape[1], dtype=np.uint64)
    if len(k0) == 1:
        ones = _lanes(out.size)[0]
        key0, key1 = (ones * int(k[0]) for k in (k0, k1))
    else:
        key0, key1 = (_as_int(np.repeat(k, out.shape[1])) for k in (k0, k1))
    high, low = _as_int(counters >> np.uint64(32)), _as_int(counters & np.uint64(_WORD))
    word_bytes = [x.to_bytes(8 * out.size, "little") for x in _hash_lanes(out.size, key0, key1, high, low)]
    x0, x1 = (np.frombuffer(x, "<u8").astype(np.uint32).reshape(out.shape) for x in word_bytes)
    finish(x0, x1, out)
