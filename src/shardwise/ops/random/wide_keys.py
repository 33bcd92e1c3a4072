"""Keys of other generators than threefry2x32: their words, and the keys of `rbg` and `unsafe_rbg`.

The bits of those come from `rng_bit_generator`, as JAX's do.
`rbg` makes new keys with threefry, from each half of the key. `unsafe_rbg` takes them from the bits of the key itself. Both are
written with the ops of threefry keys and of `rng_bit_generator`, so `vmap` and devices treat them as they treat those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import KEY_DTYPES, KeyDtype
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Array, ShapedArray, bind, define_op
from shardwise.ir.key_uses import DRAWS, LEAVES, MAKES
from shardwise.ir.op import Params, Types
from shardwise.ops.elementwise.bitwise import bitwise_xor
from shardwise.ops.indexing.dim_slices import index_in_dim
from shardwise.ops.random.counted_bits import BITS
from shardwise.ops.random.rng_bits import RandomAlgorithm, rng_bit_generator_p
from shardwise.ops.shapes.joining import concatenate
from shardwise.ops.shapes.pieces import slice_in_dim
from shardwise.ops.shapes.reshape import reshape
from shardwise.ops.shapes.transpose import transpose
from shardwise.runtime.env import Env
from shardwise.sharding import NamedSharding
from shardwise.sharding.rule import Kind, Rule

_UINT32 = np.dtype(np.uint32)
ROUNDS = 10  # unsafe_rbg takes every tenth block of four words for a key


def is_wide(keys: Any) -> bool:
    """Whether `keys` are keys of `rbg` or `unsafe_rbg`."""
    return keys.dtype in (KEY_DTYPES["rbg"], KEY_DTYPES["unsafe_rbg"])


# -- between words and keys ---------------------------------------------------------------------------------------------------


def word_rule(words: Shape, keys: Shape, into_words: bool) -> Rule:
    """Dims of keys pass; the dim of their words must be whole."""
    key_dims = tuple((d,) if n != 1 else () for d, n in enumerate(keys))
    with_words = (*key_dims, (len(keys),))
    kinds = (*(Kind.PASS,) * len(keys), Kind.REPLICATE)
    sides = ((key_dims,), (with_words,)) if into_words else ((with_words,), (key_dims,))
    return Rule(*sides, words, kinds)


def _wrap_type(words: ShapedArray, *, dtype: KeyDtype) -> ShapedArray:
    if words.dtype != _UINT32 or words.shape[-1:] != (dtype.words,):
        raise TypeError(
            f"the data of {dtype.name} keys is uint32 with a last dim of size {dtype.words}, got {words.str_short()}. "
            "Use random.key or random.PRNGKey to make keys."
        )
    return ShapedArray(words.shape[:-1], dtype)


def _wrap_kernel(env: Env, words: Ndarray, *, dtype: KeyDtype) -> Ndarray:
    return np.ascontiguousarray(words).view(dtype.physical)[..., 0]


wide_wrap_p = define_op(
    "wide_wrap",
    type_rule=_wrap_type,
    kernel=_wrap_kernel,
    rule=lambda ins, outs, params: word_rule(ins[0].shape, outs[0].shape, into_words=False),
    keys=MAKES,
)


def wide_wrap(words: Any, dtype: KeyDtype) -> Array:
    """Keys from their words: u32[..., n] -> key[...]. TypeError for other dtypes and shapes."""
    return bind(wide_wrap_p, words, dtype=dtype)


def _unwrap_type(keys: ShapedArray, *, draws: bool) -> ShapedArray:
    assert isinstance(keys.dtype, KeyDtype)
    return ShapedArray((*keys.shape, keys.dtype.words), _UINT32)


def _unwrap_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    return word_rule(out_types[0].shape, in_types[0].shape, into_words=True)


wide_unwrap_p = define_op(
    "wide_unwrap",
    type_rule=_unwrap_type,
    kernel=lambda env, keys, *, draws: np.ascontiguousarray(keys).reshape(*keys.shape, 1).view(np.uint32),
    rule=_unwrap_rule,
    keys=lambda eqn, uses_of: DRAWS if eqn.params["draws"] else LEAVES,
)


def wide_unwrap(keys: Any, *, draws: bool = False) -> Array:
    """The words of keys: key[...] -> u32[..., n]. With `draws` they make bits or new keys, so the keys count as used."""
    return bind(wide_unwrap_p, keys, draws=draws)


def double_words(words: Any, dtype: KeyDtype) -> Array:
    """Keys whose halves are both these words: u32[..., 2] -> key[...]."""
    return wide_wrap(concatenate([words, words], words.ndim - 1), dtype)


# -- new keys and bits ----------------------------------------------------------------------------------------------------------


def _draw_bits(words: Any, batch: Shape, shape: Shape, dtype: Any, out_sharding: NamedSharding | None = None) -> Array:
    """The bits of keys, given as u32[*batch, 4], of which the first draws for all, as under `vmap`: -> uint[*batch, *shape]."""
    for _ in batch:
        words = index_in_dim(words, 0, 0, keepdims=False)
    _, bits = bind(
        rng_bit_generator_p,
        words,
        shape=batch + shape,
        dtype=np.dtype(dtype),
        algorithm=RandomAlgorithm.RNG_DEFAULT,
        out_sharding=out_sharding,
    )
    return bits


def wide_bits(keys: Any, bit_width: int, shape: Shape, out_sharding: NamedSharding | None) -> Array:
    """Random unsigned integers of 8, 16, 32 or 64 bits: key[...] -> uint[..., *shape]."""
    if bit_width not in BITS:
        raise TypeError(f"random bits come in widths of 8, 16, 32 or 64, not {bit_width!r}.")
    return _draw_bits(wide_unwrap(keys, draws=True), keys.shape, shape, BITS[bit_width], out_sharding)


def _halves(keys: Any, wrap: Callable[[Any], Array], *, draws: bool) -> Array:
    """The halves of `rbg` keys as threefry keys: key<rbg>[...] -> key<fry>[..., 2]."""
    return wrap(reshape(wide_unwrap(keys, draws=draws), (*keys.shape, 2, 2)))


def wide_split(keys: Any, shape: Shape, wrap: Callable[[Any], Array], split: Any, unwrap: Any) -> Array:
    """`shape` new keys from each key: key[...] -> key[..., *shape]; `wrap`, `split` and `unwrap` are those of threefry keys."""
    n, batch = keys.ndim, keys.shape
    if keys.dtype == KEY_DTYPES["rbg"]:
        new_keys = split(_halves(keys, wrap, draws=True), shape)
        new_keys = transpose(new_keys, (*range(n), *range(n + 1, new_keys.ndim), n))
        return wide_wrap(reshape(unwrap(new_keys), (*batch, *shape, 4)), keys.dtype)
    blocks = _draw_bits(wide_unwrap(keys, draws=True), batch, (ROUNDS * math.prod(shape), 4), _UINT32)
    return wide_wrap(reshape(slice_in_dim(blocks, None, None, ROUNDS, n), (*batch, *shape, 4)), keys.dtype)


def wide_fold_in(keys: Any, data: Any, wrap: Callable[[Any], Array], fold_in: Any, unwrap: Any, seed: Any) -> Array:
    """A new key from a key and a number: key[], u32[] -> key[]; the functions are those of threefry keys."""
    if keys.dtype == KEY_DTYPES["rbg"]:
        return wide_wrap(reshape(unwrap(fold_in(_halves(keys, wrap, draws=False), data)), (4,)), keys.dtype)
    words = unwrap(seed(data))
    bits = _draw_bits(concatenate([words, words], 0), (), (ROUNDS, 4), _UINT32)
    return wide_wrap(bitwise_xor(wide_unwrap(keys), index_in_dim(bits, ROUNDS - 1, 0, keepdims=False)), keys.dtype)
