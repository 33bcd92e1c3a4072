"""Keys of `philox2x32`, `philox4x32` and `threefry4x32`: everything drawn is a cipher of the key's words and of a counter.

The ciphers are written with elementwise ops, so `vmap`, devices and fused loops treat them as any other arithmetic. A key of
`threefry2x32`, the default, has ops of its own (`random_bits`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shardwise.base.dtypes import KEY_DTYPES, KeyDtype
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array, ShapedArray, bind, literal
from shardwise.ops.elementwise import binary, bitwise
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.indexing.dim_slices import index_in_dim
from shardwise.ops.random.bit_generators import PHILOX_MULTIPLIERS, PHILOX_WEYL
from shardwise.ops.random.counted_bits import BITS, random_counters_p
from shardwise.ops.random.threefry import PARITY
from shardwise.ops.random.wide_keys import wide_unwrap, wide_wrap
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.out_sharding import in_context
from shardwise.ops.shapes.broadcast import broadcast_in_dim, expand_dims
from shardwise.ops.shapes.joining import concatenate

Shape: TypeAlias = tuple[int, ...]
Words: TypeAlias = Sequence[Any]

_UINT32 = np.dtype(np.uint32)

# The constants of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
_PHILOX_2X32_MULTIPLIER = 0xD256D193
_PHILOX_ROUNDS = 10
_THREEFRY_4X32_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_THREEFRY_4X32_ROUNDS = 20


def _number(value: int) -> Any:
    return literal(np.uint32(value & 0xFFFFFFFF))


_add = functools.partial(bind, binary.add_p)
_xor = functools.partial(bind, bitwise.xor_p)


def _product(factor: int, x: Any) -> tuple[Any, Any]:
    """The lower and the upper word of `factor * x`."""
    return bind(binary.mul_p, x, _number(factor)), bind(binary.mulhi_p, x, _number(factor))


def _philox_2x32(key: Words, counter: Words) -> Words:
    (k0,), (x0, x1) = key, counter
    for i in range(_PHILOX_ROUNDS):
        low, high = _product(_PHILOX_2X32_MULTIPLIER, x0)
        x0, x1 = _xor(_xor(high, x1), _add(k0, _number(i * PHILOX_WEYL[0]))), low
    return x0, x1


def _philox_4x32(key: Words, counter: Words) -> Words:
    (k0, k1), (x0, x1, x2, x3) = key, counter
    for i in range(_PHILOX_ROUNDS):
        (low0, high0), (low2, high2) = (
            _product(int(PHILOX_MULTIPLIERS[0]), x0),
            _product(int(PHILOX_MULTIPLIERS[1]), x2),
        )
        x0, x1 = _xor(_xor(high2, x1), _add(k0, _number(i * PHILOX_WEYL[0]))), low2
        x2, x3 = _xor(_xor(high0, x3), _add(k1, _number(i * PHILOX_WEYL[1]))), low0
    return x0, x1, x2, x3


def _rotate_left(x: Any, places: int) -> Any:
    left = bind(bitwise.shift_left_p, x, _number(places))
    return bind(bitwise.or_p, left, bind(bitwise.shift_right_logical_p, x, _number(32 - places)))


def _mix_words(x: Any, y: Any, places: int) -> tuple[Any, Any]:
    total = _add(x, y)
    return total, _xor(_rotate_left(y, places), total)


def _threefry_4x32(key: Words, counter: Words) -> Words:
    keys = (*key, functools.reduce(_xor, key, _number(PARITY)))
    x = [_add(word, k) for word, k in zip(counter, key, strict=True)]
    for i in range(_THREEFRY_4X32_ROUNDS):
        first, second = _THREEFRY_4X32_ROTATIONS[i % 8]
        # The odd words change places in every other round.
        near, far = (1, 3) if i % 2 == 0 else (3, 1)
        x[0], x[near] = _mix_words(x[0], x[near], first)
        x[2], x[far] = _mix_words(x[2], x[far], second)
        if i % 4 == 3:
            turn = i // 4 + 1
            x = [_add(word, keys[(turn + n) % 5]) for n, word in enumerate(x)]
            x[3] = _add(x[3], _number(turn))
    return x


@dataclass(frozen=True)
class _Generator:
    """One cipher: how many words its counter has, which of a result's words make 64 bits, and how a seed makes a key."""

    cipher: Callable[[Words, Words], Words]
    block: int
    upper: tuple[int, ...]
    lower: tuple[int, ...]
    seed_is_key: bool  # the seed's words are the key of a block; else they are its counter

    def seed_state(self, high: Any, low: Any, words: int) -> Words:
        zeros = [_number(0)] * 4
        given = (high, low, *zeros)
        key, counter = (given, zeros) if self.seed_is_key else (zeros, given)
        return self.cipher(key[:words], counter[: self.block])[:words]


_GENERATORS = {
    KEY_DTYPES["philox2x32"]: _Generator(_philox_2x32, 2, (0,), (1,), seed_is_key=False),
    KEY_DTYPES["philox4x32"]: _Generator(_philox_4x32, 4, (0,), (1,), seed_is_key=False),
    KEY_DTYPES["threefry4x32"]: _Generator(_threefry_4x32, 4, (0, 2), (1, 3), seed_is_key=True),
}


def is_ciphered(keys: Any) -> bool:
    """Whether `keys`, or keys of that dtype, are of a generator of this module."""
    return (keys if isinstance(keys, KeyDtype) else keys.dtype) in _GENERATORS


def _words_of(keys: Any, shape: Shape, *, draws: bool) -> list[Any]:
    """The words of keys, each of them repeated: key[...] -> u32[..., *shape] each."""
    words, n = wide_unwrap(keys, draws=draws), keys.ndim
    each = [index_in_dim(words, i, n, keepdims=False) for i in range(keys.dtype.words)]
    return [broadcast_in_dim(w, keys.shape + shape, range(n)) for w in each]


def _join_words(words: Words, dtype: KeyDtype) -> Array:
    n = words[0].ndim
    return wide_wrap(concatenate([expand_dims(w, (n,)) for w in words], n), dtype)


def _counters(shape: Shape, keys: Any) -> Any:
    """The low words of row-major indices, for each key: u32[*keys, *shape]. Their upper words are zero."""
    out = in_context(ShapedArray(shape, _UINT32))
    counters = bind(random_counters_p, shape=shape, mesh=out.mesh, spec=out.spec)
    return broadcast_in_dim(counters, keys.shape + shape, range(keys.ndim, keys.ndim + len(shape)))


def ciphered_seed(words: Any, dtype: KeyDtype) -> Array:
    """A key from the two words of each seed, the upper one first: u32[..., 2] -> key[...]."""
    n = words.ndim - 1
    high, low = (index_in_dim(words, i, n, keepdims=False) for i in range(2))
    return _join_words(_GENERATORS[dtype].seed_state(high, low, dtype.words), dtype)


def ciphered_fold_in(keys: Any, data: Any) -> Array:
    """New keys from keys and numbers, elementwise: key[...], u32[...] -> key[...]."""
    generator = _GENERATORS[keys.dtype]
    counter = [*[_number(0)] * (generator.block - 1), data]
    words = generator.cipher(_words_of(keys, (), draws=False), counter)
    return _join_words(words[: keys.dtype.words], keys.dtype)


def split_by_cipher(keys: Any, shape: Shape) -> Array:
    """`shape` new keys from each key: key[...] -> key[..., *shape]."""
    generator = _GENERATORS[keys.dtype]
    counter = [*[_number(0)] * (generator.block - 1), _counters(shape, keys)]
    words = generator.cipher(_words_of(keys, shape, draws=True), counter)
    return _join_words(words[: keys.dtype.words], keys.dtype)


def ciphered_bits(keys: Any, bit_width: int, shape: Shape) -> Array:
    """Random unsigned integers of 8, 16, 32 or 64 bits: key[...] -> uint[..., *shape]."""
    if bit_width not in BITS:
        raise TypeError(f"random bits come in widths of 8, 16, 32 or 64, not {bit_width!r}.")
    generator, zero = _GENERATORS[keys.dtype], _number(0)
    counter = [zero, _counters(shape, keys), *[zero] * (generator.block - 2)]
    words = generator.cipher(_words_of(keys, shape, draws=True), counter)
    if bit_width < 64:
        return as_array(convert(functools.reduce(_xor, words), BITS[bit_width]))
    upper, lower = (
        convert(functools.reduce(_xor, [words[i] for i in which]), BITS[64])
        for which in (generator.upper, generator.lower)
    )
    return bind(bitwise.or_p, bind(bitwise.shift_left_p, upper, literal(32, BITS[64])), lower)
