"""Random bits as ops: keys made, split, folded and turned into bits, each device making its own block alone.

Keys are values of dtype `KeyDtype`, stored as one uint64 each. Where an op adds dims to those of its keys, every new dim
is free to be split over devices: the local form makes the same elements that a single device would have made there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import KeyDtype, key_dtype
from shardwise.ir import Array, ShapedArray, bind, define_op
from shardwise.ir.explicit import specs_from_rule
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops import threefry
from shardwise.ops.collective import all_slice
from shardwise.ops.operands import Block, aligned
from shardwise.ops.operands import broadcast_shape as broadcast_shape_of
from shardwise.ops.out_sharding import in_context, sharding_spec, with_out_sharding
from shardwise.runtime.env import Env
from shardwise.sharding import NamedSharding
from shardwise.sharding.rule import Kind, Rule

Shape = tuple[int, ...]
ShardAxes = tuple[tuple[str, ...], ...]

_UINT32 = np.dtype(np.uint32)
_BITS = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}


def _check_keys(name: str, t: ShapedArray) -> None:
    if not isinstance(t.dtype, KeyDtype):
        raise TypeError(f"{name} takes an array of PRNG keys, got {t.str_short()}. Make one with random.key, or from uint32 words "
                        "with random.wrap_key_data.")  # fmt: skip


# -- between integers, words and keys -----------------------------------------------------------------------------------------


def _seed_type(seeds: ShapedArray) -> ShapedArray:
    if not np.issubdtype(seeds.dtype, np.integer):
        raise TypeError(f"PRNG key seed must be an integer; got {seeds.str_short()}.")
    return in_context(ShapedArray(seeds.shape, key_dtype))


random_seed_p = define_op("random_seed", type_rule=_seed_type, kernel=lambda env, seeds: threefry.seed(seeds))


def random_seed(seeds: Any) -> Array:
    """A key from each integer: int[...] -> key[...]. TypeError for other dtypes."""
    return bind(random_seed_p, seeds)


def _word_rule(words: Shape, keys: Shape, into_words: bool) -> Rule:
    """Dims of keys pass; the dim of the two words must be whole."""
    shared = tuple((d,) if n != 1 else () for d, n in enumerate(keys))
    with_words = (*shared, (len(keys),))
    kinds = (*(Kind.PASS,) * len(keys), Kind.REPLICATE)
    sides = ((shared,), (with_words,)) if into_words else ((with_words,), (shared,))
    return Rule(*sides, words, kinds)


def _wrap_type(words: ShapedArray) -> ShapedArray:
    if words.dtype != _UINT32 or words.shape[-1:] != (2,):
        raise TypeError(f"the data of threefry keys is uint32 with a last dim of size 2, got {words.str_short()}. "
                        "Use random.key or random.PRNGKey to make keys.")  # fmt: skip
    return ShapedArray(words.shape[:-1], key_dtype)


random_wrap_p = define_op(
    "random_wrap", type_rule=_wrap_type, kernel=lambda env, words: threefry.key_from_words(words),
    rule=lambda ins, outs, params: _word_rule(ins[0].shape, outs[0].shape, into_words=False),
)  # fmt: skip


def random_wrap(words: Any) -> Array:
    """Keys from their words: u32[..., 2] -> key[...]. TypeError for other dtypes and shapes."""
    return bind(random_wrap_p, words)


def _unwrap_type(keys: ShapedArray) -> ShapedArray:
    _check_keys("key_data", keys)
    return ShapedArray((*keys.shape, 2), _UINT32)


random_unwrap_p = define_op(
    "random_unwrap", type_rule=_unwrap_type, kernel=lambda env, keys: threefry.key_words(keys),
    rule=lambda ins, outs, params: _word_rule(outs[0].shape, ins[0].shape, into_words=True),
)  # fmt: skip


def random_unwrap(keys: Any) -> Array:
    """The words of keys: key[...] -> u32[..., 2]."""
    return bind(random_unwrap_p, keys)


def _clone_type(keys: ShapedArray) -> ShapedArray:
    return ShapedArray(keys.shape, keys.dtype, keys.weak_type)


random_clone_p = define_op("random_clone", type_rule=_clone_type, kernel=lambda env, keys: keys)


# -- new keys from keys ---------------------------------------------------------------------------------------------------------


def _fold_in_type(keys: ShapedArray, data: ShapedArray) -> ShapedArray:
    _check_keys("fold_in", keys)
    if data.dtype != _UINT32:
        raise TypeError(f"fold_in takes uint32 data, got {data.str_short()}.")
    return ShapedArray(broadcast_shape_of("fold_in", [keys.shape, data.shape]), key_dtype)


def _fold_in_kernel(env: Env, keys: Block, data: Block) -> Block:
    return threefry.fold_in(*aligned(env, (keys, data)))


random_fold_in_p = define_op("random_fold_in", type_rule=_fold_in_type, kernel=_fold_in_kernel)


def random_fold_in(keys: Any, data: Any) -> Array:
    """New keys from keys and numbers, elementwise: key[...], u32[...] -> key[...]."""
    return bind(random_fold_in_p, keys, data)


# -- results whose new dims each device fills on its own --------------------------------------------------------------------------


def _appended_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Dims of the keys pass; the dims behind them are the result's alone."""
    out = out_types[0].shape
    factors = tuple((d,) if n != 1 else () for d, n in enumerate(out))
    return Rule((factors[: in_types[0].ndim],), (factors,), out, (Kind.PASS,) * len(out))


def _appended_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    return {**params, "block_shape": out_types[0].shape[in_types[0].ndim :]}


def _appended_place(params: Params, in_dims: ShardAxes, out_dims: tuple[ShardAxes, ...]) -> Params:
    shard_axes = out_dims[0][len(in_dims[0]) :]
    return {**params, "shard_axes": shard_axes} if any(shard_axes) else params


def _appended_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    sharding = params["out_sharding"]
    if sharding is not None:
        return (sharding_spec(sharding, out_types[0].ndim),)
    return specs_from_rule("random_bits", in_types, out_types, rule)


def _appended_type(keys: ShapedArray, dtype: Any, params: dict[str, Any]) -> ShapedArray:
    block_shape = params.get("block_shape")
    shape: Shape = params["shape"] if block_shape is None else block_shape
    out = with_out_sharding(
        ShapedArray(keys.shape + shape, dtype), params["out_sharding"] if block_shape is None else None
    )
    return in_context(out) if keys.mesh is None else out


def _made(env: Env, keys: Block, shape: Shape, block_shape: Shape, shard_axes: ShardAxes, whole: Callable[..., Block],
          part: Callable[..., Block]) -> Block:  # fmt: skip
    """The blocks that the devices along `shard_axes` make.

    Where they share a key, their blocks are views of the whole, which is made in one go and in its own memory order.
    """
    if all(keys.shape[env.dim(a)] == 1 for axes in shard_axes for a in axes):
        out, cut = whole(keys, shape), all_slice.kernel
        assert cut is not None
        for d, axes in enumerate(shard_axes, keys.ndim - env.lead):
            if axes:
                out = cut(env, out, axes=axes, sizes=tuple(env.size(a) for a in axes), dim=d)
        return out
    starts: list[Any] = []
    for n, axes in zip(block_shape, shard_axes, strict=True):
        place = env.index(axes).astype(np.int64) * n
        starts.append(place.reshape(place.shape + (1,) * (keys.ndim - env.lead)))
    return part(keys, shape, block_shape, starts)


def _split_type(keys: ShapedArray, **params: Any) -> ShapedArray:
    _check_keys("split", keys)
    return _appended_type(keys, key_dtype, params)


def _split_kernel(env: Env, keys: Block, *, shape: Shape, out_sharding: Any, block_shape: Shape | None = None,
                  shard_axes: ShardAxes = ()) -> Block:  # fmt: skip
    if not shard_axes:
        return threefry.split(keys, shape)
    assert block_shape is not None
    return _made(env, keys, shape, block_shape, shard_axes, threefry.split, threefry.split_block)


# `shape` is the global shape; `block_shape` and `shard_axes` say which part of it a device makes.
random_split_p = define_op(
    "random_split", type_rule=_split_type, kernel=_split_kernel, rule=_appended_rule, localize=_appended_localize,
    place=_appended_place, explicit=_appended_explicit,
)  # fmt: skip


def random_split(keys: Any, shape: Shape, out_sharding: NamedSharding | None = None) -> Array:
    """`shape` new keys from each key: key[...] -> key[..., *shape]."""
    return bind(random_split_p, keys, shape=shape, out_sharding=out_sharding)


def _bits_type(keys: ShapedArray, *, bit_width: int, **params: Any) -> ShapedArray:
    _check_keys("random_bits", keys)
    if bit_width not in _BITS:
        raise TypeError(f"random bits come in widths of 8, 16, 32 or 64, not {bit_width!r}.")
    return _appended_type(keys, _BITS[bit_width], params)


def _bits_kernel(env: Env, keys: Block, *, bit_width: int, shape: Shape, out_sharding: Any,
                 block_shape: Shape | None = None, shard_axes: ShardAxes = ()) -> Block:  # fmt: skip
    if not shard_axes:
        return threefry.random_bits(keys, bit_width, shape)
    assert block_shape is not None
    return _made(
        env, keys, shape, block_shape, shard_axes,
        lambda keys, shape: threefry.random_bits(keys, bit_width, shape),
        lambda keys, *place: threefry.random_bits_block(keys, bit_width, *place),
    )  # fmt: skip


random_bits_p = define_op(
    "random_bits", type_rule=_bits_type, kernel=_bits_kernel, rule=_appended_rule, localize=_appended_localize,
    place=_appended_place, explicit=_appended_explicit,
)  # fmt: skip


def random_bits(keys: Any, bit_width: int, shape: Shape, out_sharding: NamedSharding | None = None) -> Array:
    """Random unsigned integers of 8, 16, 32 or 64 bits from each key: key[...] -> uint[..., *shape]."""
    return bind(random_bits_p, keys, bit_width=bit_width, shape=shape, out_sharding=out_sharding)
