"""Random bits made where they are used: an elementwise function of a key's words and of counters, which joins fused loops.

Comes in: keys, and the type of the bits. Goes out: the bits, as three ops of which the last one is elementwise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Array, Emit, ShapedArray, SmallForm, bind, define_op
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.devices.all_slice import all_slice
from shardwise.ops.random import threefry
from shardwise.ops.rules.derivative import later
from shardwise.ops.rules.operands import align_blocks
from shardwise.ops.rules.operands import broadcast_shape as broadcast_shape_of
from shardwise.ops.rules.steps import per_result
from shardwise.ops.shapes.broadcast import expand_dims
from shardwise.runtime.env import Env
from shardwise.runtime.machine import Lane, Lanes
from shardwise.sharding.rule import Kind, Rule, pointwise_rule

ShardAxes = tuple[tuple[str, ...], ...]

_UINT32 = np.dtype(np.uint32)
BITS = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}
HASH_CALLS = 10  # calls of NumPy that hashing takes


def small_form(writer: str, calls: int = 1) -> SmallForm:
    """The form of an op on keys in small programs."""
    return SmallForm(later("shardwise.ops.random.small_random", writer), calls=calls)


def bits_by_counters(keys: Array, out: ShapedArray, params: Params) -> Array:
    """Bits of type `out` as an elementwise function of counters, which may join a loop with the steps that follow.

    `params`: of the op that otherwise makes the bits, including the part that each device makes.
    """
    words, n = bind(random_words_p, keys), keys.ndim
    part = {k: params[k] for k in ("block_shape", "shard_axes") if k in params}
    counters = bind(random_counters_p, shape=params["shape"], mesh=out.mesh, spec=out.spec[n:], **part)
    if n and out.ndim > n:
        words = [expand_dims(w, tuple(range(n, out.ndim))) for w in words]
        counters = expand_dims(counters, tuple(range(n)))
    return bind(threefry_bits_p, *words, counters, bit_width=params["bit_width"])


def _words_type(key: ShapedArray) -> tuple[ShapedArray, ShapedArray]:
    word = ShapedArray(key.shape, _UINT32)
    return word, word


def _words_kernel(env: Env, key: Ndarray) -> tuple[Ndarray, Ndarray]:
    words = threefry.key_words(key)
    return words[..., 0], words[..., 1]


def _words_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    return pointwise_rule((in_types[0].shape,), tuple(t.shape for t in out_types))


random_words_p = define_op(
    "random_words",
    type_rule=_words_type,
    multiple_results=True,
    kernel=_words_kernel,
    rule=_words_rule,
    small=small_form("words", HASH_CALLS),
)

_MOST_KEPT = 1 << 22  # counters that stay in memory for the next call
_kept_counters = np.arange(0, dtype=np.uint32)


def _counting_numbers(n: int) -> Ndarray:
    """0, 1, ..., n - 1, read only."""
    global _kept_counters
    if n > _MOST_KEPT:
        return np.arange(n, dtype=np.uint32)
    if n > len(_kept_counters):
        _kept_counters = np.arange(n, dtype=np.uint32)
        _kept_counters.flags.writeable = False
    return _kept_counters[:n]


def _counters_type(
    *, shape: Shape, mesh: Any, spec: Spec, block_shape: Shape | None = None, shard_axes: ShardAxes = ()
) -> ShapedArray:
    if block_shape is not None:
        return ShapedArray(block_shape, _UINT32, vma=frozenset(a for axes in shard_axes for a in axes))
    return ShapedArray(shape, _UINT32, mesh=mesh, spec=spec)


def _counters_kernel(
    env: Env, *, shape: Shape, mesh: Any, spec: Spec, block_shape: Shape | None = None, shard_axes: ShardAxes = ()
) -> Ndarray:
    return own_part(env, _counting_numbers(math.prod(shape)).reshape((1,) * env.lead + shape), shard_axes)


def own_part(env: Env, out: Ndarray, shard_axes: ShardAxes) -> Ndarray:
    """The blocks of a whole that devices along axes hold, which split its last dims."""
    cut = all_slice.block_kernel
    for d, axes in enumerate(shard_axes, out.ndim - env.lead - len(shard_axes)):
        if axes:
            out = cut(env, out, axes=axes, sizes=tuple(env.size(a) for a in axes), dim=d)
    return out


def _counters_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    shape = out_types[0].shape
    return Rule((), (tuple((d,) if n != 1 else () for d, n in enumerate(shape)),), shape, (Kind.PASS,) * len(shape))


def _counters_place(params: Params, in_dims: Any, out_dims: tuple[ShardAxes, ...]) -> Params:
    return {**params, "shard_axes": out_dims[0]}


# The low words of an array's row-major indices.
random_counters_p = define_op(
    "random_counters",
    type_rule=_counters_type,
    kernel=_counters_kernel,
    rule=_counters_rule,
    typed=True,
    localize=lambda params, in_types, out_types: {**params, "block_shape": out_types[0].shape},
    place=_counters_place,
)


def _threefry_type(word0: ShapedArray, word1: ShapedArray, counters: ShapedArray, *, bit_width: int) -> ShapedArray:
    return ShapedArray(broadcast_shape_of("threefry_bits", [word0.shape, counters.shape]), BITS[bit_width])


def _threefry_kernel(env: Env, *blocks: Ndarray, bit_width: int) -> Ndarray:
    word0, word1, counters = align_blocks(blocks)
    x0, x1 = threefry.threefry_2x32(word0, word1, np.zeros((), np.uint32), counters)
    return np.bitwise_xor(x0, x1, out=x0).astype(BITS[bit_width], copy=False)


def hash_counter(w: Lanes, word0: Lane, word1: Lane, low: Lane) -> tuple[Lane, Lane]:
    """Threefry-2x32 on the counters (0, low): five times four rounds, each followed by a part of the key."""
    parity = w.binary("xor", w.binary("xor", word0, word1), w.like(threefry.PARITY, word0))
    keys = (word0, word1, parity)
    x0, x1 = word0, w.add(low, word1)
    for i in range(5):
        for r in threefry.ROTATIONS[i % 2]:
            x0 = w.add(x0, x1)
            x1 = w.binary("xor", w.call("fshl", x1, x1, w.like(r, x1)), x0)
        x0 = w.add(x0, keys[(i + 1) % 3])
        x1 = w.add(x1, w.add(keys[(i + 2) % 3], w.like(i + 1, x1)))
    return x0, x1


def _threefry_lanes(w: Lanes, word0: Lane, word1: Lane, counter: Lane, *, bit_width: int) -> Lane:
    return w.convert(w.binary("xor", *hash_counter(w, word0, word1, counter)), f"uint{bit_width}")


threefry_bits_p = define_op(
    "threefry_bits",
    type_rule=_threefry_type,
    kernel=_threefry_kernel,
    emit=Emit(_threefry_lanes, "u", exact=True, cost=80),
    algorithm=per_result("random"),
)
