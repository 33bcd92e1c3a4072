"""Random bits as ops: keys made, split, folded and turned into bits, each device making its own block alone.

Keys are values of dtype `KeyDtype`. The ops are those of threefry2x32, whose keys are stored as one uint64 each; the functions take keys
of the other generators, too (`wide_keys`, `counter_ciphers`). Where an op
adds dims to those of its keys, every new dim is free to be split over devices: the local form makes the same elements that a
single device would have made there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.caches import recent
from shardwise.base.dtypes import KeyDtype, is_key_dtype, key_dtype
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import (
    Array,
    Equation,
    ExactParams,
    Op,
    Program,
    ShapedArray,
    Shown,
    bind,
    define_op,
    infer_types,
    trace_program,
)
from shardwise.ir.explicit import specs_from_rule
from shardwise.ir.key_uses import DRAWS, LEAVES, MAKES, SPLITS
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.devices.layout import reshard_op
from shardwise.ops.random import threefry, threefry_halves
from shardwise.ops.random.counted_bits import BITS, HASH_CALLS, bits_by_counters, own_part, small_form
from shardwise.ops.random.counted_bits import threefry_bits_p as threefry_bits_p
from shardwise.ops.random.counter_ciphers import (
    ciphered_bits,
    ciphered_fold_in,
    ciphered_seed,
    is_ciphered,
    split_by_cipher,
)
from shardwise.ops.random.wide_keys import (
    double_words,
    is_wide,
    wide_bits,
    wide_fold_in,
    wide_split,
    wide_unwrap,
    wide_wrap,
    word_rule,
)
from shardwise.ops.rules.batching import in_front
from shardwise.ops.rules.operands import align_blocks
from shardwise.ops.rules.operands import broadcast_shape as broadcast_shape_of
from shardwise.ops.rules.out_sharding import in_context, sharding_spec, with_out_sharding
from shardwise.ops.rules.steps import per_result
from shardwise.ops.shapes.transpose import transpose
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine import available
from shardwise.sharding import NamedSharding
from shardwise.sharding.rule import Kind, Rule

ShardAxes = tuple[tuple[str, ...], ...]


_UINT32 = np.dtype(np.uint32)


def _check_keys(name: str, t: ShapedArray) -> None:
    if not is_key_dtype(t.dtype):
        raise TypeError(
            f"{name} takes an array of PRNG keys, got {t.str_short()}. Make one with random.key, or from uint32 words "
            "with random.wrap_key_data."
        )


# -- between integers, words and keys -----------------------------------------------------------------------------------------


_partitionable = config.setting("jax_threefry_partitionable").get
_watches_keys = config.setting("jax_debug_key_reuse").get


def _seed_type(seeds: ShapedArray) -> ShapedArray:
    if not np.issubdtype(seeds.dtype, np.integer):
        raise TypeError(f"PRNG key seed must be an integer; got {seeds.str_short()}.")
    return in_context(ShapedArray(seeds.shape, key_dtype))


random_seed_p = define_op(
    "random_seed",
    type_rule=_seed_type,
    kernel=lambda env, seeds: threefry.seed(seeds),
    small=small_form("seed"),
    keys=MAKES,
    shown=Shown(change=lambda eqn, shown: {**shown, "impl": key_dtype.tag}),
)


def random_seed(seeds: Any, dtype: KeyDtype = key_dtype) -> Array:
    """A key from each integer: int[...] -> key[...]. TypeError for other dtypes."""
    keys = bind(random_seed_p, seeds)
    if dtype == key_dtype:
        return keys
    words = bind(random_unwrap_p, keys)
    return ciphered_seed(words, dtype) if is_ciphered(dtype) else double_words(words, dtype)


def _wrap_type(words: ShapedArray) -> ShapedArray:
    if words.dtype != _UINT32 or words.shape[-1:] != (2,):
        raise TypeError(
            f"the data of threefry keys is uint32 with a last dim of size 2, got {words.str_short()}. "
            "Use random.key or random.PRNGKey to make keys."
        )
    return ShapedArray(words.shape[:-1], key_dtype)


random_wrap_p = define_op(
    "random_wrap",
    small=small_form("wrap"),
    batch=in_front("random_wrap", lambda size: {}),
    type_rule=_wrap_type,
    kernel=lambda env, words: threefry.key_from_words(words),
    rule=lambda ins, outs, params: word_rule(ins[0].shape, outs[0].shape, into_words=False),
    keys=MAKES,
    shown=Shown(change=lambda eqn, shown: {**shown, "impl": "fry"}),
)


def random_wrap(words: Any, dtype: KeyDtype = key_dtype) -> Array:
    """Keys from their words: u32[..., n] -> key[...], n that of the generator. TypeError for other dtypes and shapes."""
    return bind(random_wrap_p, words) if dtype == key_dtype else wide_wrap(words, dtype)


def _unwrap_type(keys: ShapedArray) -> ShapedArray:
    _check_keys("key_data", keys)
    return ShapedArray((*keys.shape, 2), _UINT32)


random_unwrap_p = define_op(
    "random_unwrap",
    small=small_form("unwrap"),
    batch=in_front("random_unwrap", lambda size: {}),
    type_rule=_unwrap_type,
    kernel=lambda env, keys: threefry.key_words(keys),
    rule=lambda ins, outs, params: word_rule(outs[0].shape, ins[0].shape, into_words=True),
    keys=LEAVES,
)


def random_unwrap(keys: Any) -> Array:
    """The words of keys: key[...] -> u32[..., n], n that of the generator."""
    return wide_unwrap(keys) if is_wide(keys) or is_ciphered(keys) else bind(random_unwrap_p, keys)


def _clone_type(keys: ShapedArray) -> ShapedArray:
    return ShapedArray(keys.shape, keys.dtype, keys.weak_type)


random_clone_p = define_op(
    "random_clone", type_rule=_clone_type, kernel=lambda env, keys: keys, hands_on=True, keys=MAKES
)


def random_clone(keys: Any) -> Array:
    """The same keys, for another use on purpose: key[...] -> key[...]."""
    return bind(random_clone_p, keys)


def share_value(x: Any) -> Any:
    """`x`, which is used here and elsewhere on purpose, as only one of the results counts or both must be the same.

    Keys become clones where reuse is looked for.
    """
    return random_clone(x) if _watches_keys() and is_key_dtype(x.dtype) else x


# -- new keys from keys ---------------------------------------------------------------------------------------------------------


def _fold_in_type(keys: ShapedArray, data: ShapedArray) -> ShapedArray:
    _check_keys("fold_in", keys)
    if data.dtype != _UINT32:
        raise TypeError(f"fold_in takes uint32 data, got {data.str_short()}.")
    return ShapedArray(broadcast_shape_of("fold_in", [keys.shape, data.shape]), key_dtype)


def _fold_in_kernel(env: Env, keys: Ndarray, data: Ndarray) -> Ndarray:
    return threefry.fold_in(*align_blocks((keys, data)))


random_fold_in_p = define_op(
    "random_fold_in",
    type_rule=_fold_in_type,
    kernel=_fold_in_kernel,
    small=small_form("fold_in", HASH_CALLS),
    keys=MAKES,
)


def random_fold_in(keys: Any, data: Any) -> Array:
    """New keys from keys and numbers, elementwise: key[...], u32[...] -> key[...]."""
    if is_wide(keys):
        return wide_fold_in(keys, data, random_wrap, random_fold_in, random_unwrap, random_seed)
    if is_ciphered(keys):
        return ciphered_fold_in(keys, data)
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
    # The axes over which devices make parts of their own.
    own = frozenset(a for axes in params.get("shard_axes", ()) for a in axes)
    out = with_out_sharding(
        ShapedArray(keys.shape + shape, dtype, vma=own), params["out_sharding"] if block_shape is None else None
    )
    return in_context(out) if keys.mesh is None else out


def _make_bits(
    env: Env,
    keys: Ndarray,
    shape: Shape,
    block_shape: Shape,
    shard_axes: ShardAxes,
    whole: Callable[..., Ndarray],
    part: Callable[..., Ndarray],
) -> Ndarray:
    """The blocks that the devices along `shard_axes` make.

    Where they share a key, their blocks are views of the whole, which is made in one go and in its own memory order.
    """
    if all(keys.shape[env.dim(a)] == 1 for axes in shard_axes for a in axes):
        return own_part(env, whole(keys, shape), shard_axes)
    starts: list[Any] = []
    for n, axes in zip(block_shape, shard_axes, strict=True):
        place = env.index(axes).astype(np.int64) * n
        starts.append(place.reshape(place.shape + (1,) * (keys.ndim - env.lead)))
    return part(keys, shape, block_shape, starts)


def _keys_in_front(values: Any, dims: Any, params: Params) -> tuple[Any, dict[str, Any]]:
    """Mapped keys and the params for them: keys of any rank are taken as they are, with the mapped dim as the first of theirs."""
    (keys,), (d,) = values, dims
    if d:
        keys = transpose(keys, (d, *(i for i in range(keys.ndim) if i != d)))
    sharding = params["out_sharding"]
    if sharding is not None:
        partitions = (None,) * keys.ndim + sharding.spec.partitions[keys.ndim - 1 :]
        sharding = NamedSharding(sharding.mesh, sharding.spec.update(partitions=partitions))
    return keys, {**params, "out_sharding": sharding}


def _batch_of(op_of: Callable[[], Op]) -> Callable[..., tuple[list[Array], list[int]]]:
    def batch(size: int, axis_name: Any, values: Any, dims: Any, params: Params) -> tuple[list[Array], list[int]]:
        keys, given = _keys_in_front(values, dims, params)
        return [bind(op_of(), keys, **given)], [0]

    return batch


def _split_type(keys: ShapedArray, **params: Any) -> ShapedArray:
    _check_keys("split", keys)
    return _appended_type(keys, key_dtype, params)


def _split_kernel(
    env: Env,
    keys: Ndarray,
    *,
    shape: Shape,
    out_sharding: Any,
    block_shape: Shape | None = None,
    shard_axes: ShardAxes = (),
) -> Ndarray:
    if not shard_axes:
        return threefry.split(keys, shape)
    assert block_shape is not None
    return _make_bits(env, keys, shape, block_shape, shard_axes, threefry.split, threefry.split_block)


# `shape` is the global shape; `block_shape` and `shard_axes` say which part of it a device makes.
random_split_p = define_op(
    "random_split",
    small=small_form("split", HASH_CALLS),
    type_rule=_split_type,
    kernel=_split_kernel,
    rule=_appended_rule,
    localize=_appended_localize,
    place=_appended_place,
    explicit=_appended_explicit,
    batch=_batch_of(lambda: random_split_p),
    keys=SPLITS,
)


def random_split(keys: Any, shape: Shape, out_sharding: NamedSharding | None = None) -> Array:
    """`shape` new keys from each key: key[...] -> key[..., *shape]."""
    if is_wide(keys):
        return _constrain_sharding(wide_split(keys, shape, random_wrap, random_split, random_unwrap), out_sharding)
    if is_ciphered(keys):
        return _constrain_sharding(split_by_cipher(keys, shape), out_sharding)
    if not _partitionable():
        return _constrain_sharding(bind(random_split_halves_p, keys, shape=shape), out_sharding)
    return bind(random_split_p, keys, shape=shape, out_sharding=out_sharding)


def _bits_type(keys: ShapedArray, *, bit_width: int, **params: Any) -> ShapedArray:
    _check_keys("random_bits", keys)
    if bit_width not in BITS:
        raise TypeError(f"random bits come in widths of 8, 16, 32 or 64, not {bit_width!r}.")
    return _appended_type(keys, BITS[bit_width], params)


def _bits_kernel(
    env: Env,
    keys: Ndarray,
    *,
    bit_width: int,
    shape: Shape,
    out_sharding: Any,
    block_shape: Shape | None = None,
    shard_axes: ShardAxes = (),
) -> Ndarray:
    if not shard_axes:
        return threefry.random_bits(keys, bit_width, shape)
    assert block_shape is not None
    return _make_bits(
        env,
        keys,
        shape,
        block_shape,
        shard_axes,
        lambda keys, shape: threefry.random_bits(keys, bit_width, shape),
        lambda keys, *place: threefry.random_bits_block(keys, bit_width, *place),
    )


# The kernel makes all bits at once. `counted_bits` is the form in which a fused loop makes them where they are used.
random_block_p = define_op(
    "random_block",
    small=small_form("block", HASH_CALLS),
    algorithm=per_result("random"),
    batch=lambda *mapped: _block_batch(*mapped),
    rewrite=lambda eqn, devices: _drawn_where_used(eqn, devices),
    type_rule=_bits_type,
    kernel=_bits_kernel,
    rule=_appended_rule,
    localize=_appended_localize,
    place=_appended_place,
    explicit=_appended_explicit,
)


def _block_batch(size: int, axis_name: Any, values: Any, dims: Any, params: Params) -> tuple[list[Array], list[int]]:
    """All keys together may draw so many bits that they are made where they are used."""
    keys, given = _keys_in_front(values, dims, params)
    (out,) = infer_types(random_block_p, (keys.aval,), given)
    if not _fusable(keys.aval, keys.aval.size * math.prod(given["shape"]), given["bit_width"]):
        return [bind(random_block_p, keys, **given)], [0]
    return [bits_by_counters(keys, out, given)], [0]


def _drawn_where_used(eqn: Equation, devices: int) -> Program | None:
    """All devices together may draw so many bits in `shard_map`, where tracing sees one of them, that they are made where they are used."""
    (keys,), (out,), params = eqn.inputs, eqn.outputs, eqn.params
    if (
        not out.aval.vma
        or params.get("shard_axes")
        or not _fusable(keys.aval, out.aval.size * devices, params["bit_width"])
    ):
        return None
    return _bits_program(keys.aval, out.aval, ExactParams(dict(params)), True)


def _bits_inline(eqn: Equation) -> Program:
    params = dict(eqn.params)
    (keys,) = eqn.inputs
    out = eqn.outputs[0].aval if eqn.outputs else infer_types(random_bits_p, (keys.aval,), params)[0]
    return _bits_program(keys.aval, out, ExactParams(params), _fusable(keys.aval, out.size, params["bit_width"]))


def _fusable(keys: ShapedArray, size: int, bit_width: int) -> bool:
    """Whether `size` elements on all devices are made where they are used."""
    fuses = config.shardwise_fused == "auto" and not config.shardwise_stepped
    counters = size // max(keys.size, 1)
    return fuses and bit_width <= 32 and size >= costs.FUSED_FEWEST and counters <= 1 << 32 and available()


@recent(1024)
def _bits_program(keys: ShapedArray, out: ShapedArray, params: ExactParams, fusable: bool) -> Program:
    def make(keys: Array) -> list[Any]:
        return [bits_by_counters(keys, out, params) if fusable else bind(random_block_p, keys, **params)]

    return trace_program(make, [keys], "random_bits")[0]


random_bits_p = define_op(
    "random_bits",
    type_rule=_bits_type,
    rule=_appended_rule,
    explicit=_appended_explicit,
    inline=_bits_inline,
    batch=_batch_of(lambda: random_bits_p),
    keys=DRAWS,
)


def random_bits(keys: Any, bit_width: int, shape: Shape, out_sharding: NamedSharding | None = None) -> Array:
    """Random unsigned integers of 8, 16, 32 or 64 bits from each key: key[...] -> uint[..., *shape]."""
    if is_wide(keys):
        return wide_bits(keys, bit_width, shape, out_sharding)
    if is_ciphered(keys):
        return _constrain_sharding(ciphered_bits(keys, bit_width, shape), out_sharding)
    if not _partitionable():
        return _constrain_sharding(bind(random_bits_halves_p, keys, bit_width=bit_width, shape=shape), out_sharding)
    return bind(random_bits_p, keys, bit_width=bit_width, shape=shape, out_sharding=out_sharding)


# -- the older order of counters, where each element depends on all ------------------------------------------------------------


def _whole_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Dims of the keys pass; those behind them must be whole."""
    rule, n = _appended_rule(in_types, out_types, params), in_types[0].ndim
    kinds = tuple(Kind.PASS if d < n else Kind.REPLICATE for d in range(len(out_types[0].shape)))
    return Rule(rule.inputs, rule.outputs, rule.sizes, kinds)


def _split_halves_type(keys: ShapedArray, *, shape: Shape) -> ShapedArray:
    _check_keys("split", keys)
    return in_context(ShapedArray(keys.shape + shape, key_dtype))


random_split_halves_p = define_op(
    "random_split_halves",
    type_rule=_split_halves_type,
    rule=_whole_rule,
    kernel=lambda env, keys, *, shape: threefry_halves.split(keys, shape),
    keys=SPLITS,
)


def _bits_halves_type(keys: ShapedArray, *, bit_width: int, shape: Shape) -> ShapedArray:
    _check_keys("random_bits", keys)
    if bit_width not in BITS:
        raise TypeError(f"random bits come in widths of 8, 16, 32 or 64, not {bit_width!r}.")
    return in_context(ShapedArray(keys.shape + shape, BITS[bit_width]))


random_bits_halves_p = define_op(
    "random_bits_halves",
    type_rule=_bits_halves_type,
    algorithm=per_result("random"),
    rule=_whole_rule,
    kernel=lambda env, keys, *, bit_width, shape: threefry_halves.random_bits(keys, bit_width, shape),
)


def _constrain_sharding(x: Array, out_sharding: NamedSharding | None) -> Array:
    return x if out_sharding is None else bind(reshard_op, x, sharding=out_sharding, concrete=None)
