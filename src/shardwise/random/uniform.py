"""Uniform bits, floats, integers and truth values: the samplers from which all others are made."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import check_requested, default_dtype, finfo, iinfo, issubdtype
from shardwise.base.shapes import Shape
from shardwise.ir import Array, Literal, bind, literal
from shardwise.ir.showing import SHOWING
from shardwise.ops.elementwise.binary import add, mul, rem, sub
from shardwise.ops.elementwise.binary import max as maximum
from shardwise.ops.elementwise.bitwise import bitwise_and, bitwise_or, shift_right_logical
from shardwise.ops.elementwise.casts import bitcast_convert_type, convert
from shardwise.ops.elementwise.comparison import gt, le, lt
from shardwise.ops.elementwise.selection import clamp
from shardwise.ops.indexing.dim_slices import index_in_dim
from shardwise.ops.random.random_bits import random_bits, random_split
from shardwise.ops.random.random_floats import mul_add, unit_floats
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.ops.shapes.reshape import reshape, reshape_p
from shardwise.random.arguments import (
    aligned_rank,
    check_shape,
    choose,
    draw_in_mesh,
    extend_sharding,
    float_dtype,
    int_dtype,
    parameter,
    sample_shape,
    sampler,
    sampler_in_calls,
    shape_of,
)
from shardwise.random.keys import checked_key, typed_key
from shardwise.sharding import NamedSharding
from shardwise.transforms.jit.shown_calls import shown_call

_UINTS = {bits: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}


# -- bits ---------------------------------------------------------------------------------------------------------------------------


@sampler_in_calls
def _bits(key: Array, *, bit_width: int, shape: Shape, sharding: NamedSharding | None) -> Array:
    return random_bits(key, bit_width, shape, sharding)


def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Uniform bits as unsigned integers: uint[*shape].

    Args:
        dtype: an unsigned integer dtype; uint32 by default (uint64 with 64-bit types enabled).
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    Raises:
        ValueError: `dtype` is no unsigned integer.

    >>> jax.random.bits(jax.random.key(0), (2,))
    Array([4070199207, 4202968722], dtype=uint32)
    """
    own_key = checked_key("bits", key)
    result_dtype = default_dtype("u") if dtype is None else check_requested(dtype, "bits")
    if not issubdtype(result_dtype, np.unsignedinteger):
        raise ValueError(f"dtype argument to `bits` must be an unsigned int dtype, got {result_dtype.name}.")
    full_shape = shape_tuple(shape, "bits")
    return draw_in_mesh(
        "bits",
        out_sharding,
        len(full_shape),
        lambda sharding: _bits(own_key, bit_width=8 * result_dtype.itemsize, shape=full_shape, sharding=sharding),
    )


# -- floats --------------------------------------------------------------------------------------------------------------------------


def unit(key: Array, shape: Shape, dtype: Any, sharding: NamedSharding | None = None) -> Array:
    """Floats in [0, 1) from a typed key."""
    if _is_shown(dtype):
        return _shown_uniform(key, 0.0, 1.0, shape, dtype, sharding)
    info = finfo(dtype)
    if info.bits not in _UINTS:
        raise TypeError(f"uniform only accepts 8-, 16-, 32-, or 64-bit dtypes, got {dtype.name}.")
    width = 8 if info.nmant < 8 else info.bits  # no more bits than the mantissa takes
    return unit_floats(random_bits(key, width, shape, sharding), dtype)


@shown_call("shape dtype sharding", name="_uniform")
def _shown_uniform(key: Array, low: Any, high: Any, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    """The same numbers but for rounding, by the ops that JAX has for them."""
    info, rank = finfo(dtype), len(shape)
    low, high = (convert(as_value(x), dtype) for x in (low, high))
    low, high = (aligned_rank(x, rank) if x.ndim else broadcast_in_dim(x, (1,) * rank, ()) for x in (low, high))
    words = random_bits(key, info.bits, shape, sharding)
    one = literal(np.ones((), dtype).view(words.dtype)[()])
    unused_bits = literal(8 * words.dtype.itemsize - int(info.nmant), words.dtype)
    floats = bitcast_convert_type(bitwise_or(shift_right_logical(words, unused_bits), one), dtype)
    scaled_floats = add(mul(sub(floats, literal(1.0, dtype)), sub(high, low)), low)
    return maximum(low, scaled_floats if rank else bind(reshape_p, scaled_floats, new_sizes=(), out_sharding=None))


def _is_shown(dtype: Any) -> bool:
    info = finfo(dtype)
    return SHOWING.get() and info.nmant >= 8 and info.bits in _UINTS


def scale_floats(floats: Array, low: Any, high: Any) -> Array:
    """Floats in [0, 1) moved to [low, high); the bounds have the floats' dtype."""
    if isinstance(low, Literal) and isinstance(high, Literal):
        a, b = low.value[()], high.value[()]
        if a == 0 and b == 1:
            return floats
        scaled_floats = mul_add(floats, literal(b - a, floats.dtype), low)
        return scaled_floats if a <= b else maximum(low, scaled_floats)
    return maximum(low, mul_add(floats, sub(high, low), low))


def uniform_between(
    key: Array, shape: Shape, dtype: Any, low: Any, high: Any, sharding: NamedSharding | None = None
) -> Array:
    """Floats in [low, high) from a typed key; the bounds are numbers or arrays that broadcast to `shape`."""
    if _is_shown(dtype):
        return _shown_uniform(key, low, high, shape, dtype, sharding)
    low, high = (parameter(x, len(shape), dtype) for x in (low, high))
    return scale_floats(unit(key, shape, dtype, sharding), low, high)


@sampler
def _uniform(key: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return unit(key, shape, dtype, sharding)


@sampler
def _uniform_between(
    key: Array, low: Array, high: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None
) -> Array:
    return uniform_between(key, shape, dtype, low, high, sharding)


def uniform(
    key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0, *, out_sharding: Any = None
) -> Array:
    """Uniform floats in [minval, maxval): f[*shape].

    Args:
        dtype: a float dtype; float32 by default (float64 with 64-bit types enabled).
        minval, maxval: numbers or arrays that broadcast to `shape`. A single number has the dims of `minval`, as in JAX.
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    Raises:
        ValueError: `dtype` is no float dtype.

    >>> jax.random.uniform(jax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    own_key = checked_key("uniform", key)
    result_dtype = float_dtype("uniform", dtype)
    full_shape = shape_tuple(shape, "uniform")

    def sample(sharding: NamedSharding | None) -> Array:
        if _is_shown(result_dtype):
            return _shown_uniform(typed_key(own_key), minval, maxval, full_shape, result_dtype, sharding)
        if isinstance(minval, (int, float)) and isinstance(maxval, (int, float)) and minval == 0 and maxval == 1:
            return _uniform(own_key, shape=full_shape, dtype=result_dtype, sharding=sharding)
        return _uniform_between(own_key, minval, maxval, shape=full_shape, dtype=result_dtype, sharding=sharding)

    numbers = draw_in_mesh("uniform", out_sharding, len(full_shape), sample)
    around = shape_of(minval)
    return reshape(numbers, around) if around and not full_shape else numbers


# -- integers ------------------------------------------------------------------------------------------------------------------------


def _clip_to_dtype(x: Any, dtype: Any) -> Any:
    """An integer of any type as `dtype`, clipped to its range where it does not fit."""
    own, info = iinfo(x.dtype), iinfo(dtype)
    low, high = max(int(info.min), int(own.min)), min(int(info.max), int(own.max))
    return convert(clamp(literal(low, x.dtype), x, literal(high, x.dtype)), dtype)


def _integer(x: Any) -> Any:
    value = as_value(x)
    if issubdtype(value.dtype, np.integer):
        return convert(value, value.dtype)
    return convert(value, default_dtype("i"))


def randint_between(
    key: Array, low: Any, high: Any, shape: Shape, dtype: Any, sharding: NamedSharding | None = None
) -> Array:
    """Integers in [low, high) from a typed key.

    Twice as many bits as the dtype has are drawn, and their remainder by the span taken: nearly unbiased, and the same
    amount of work for every element.
    """
    check_shape("randint", shape, shape_of(low), shape_of(high))
    low, high = _integer(low), _integer(high)
    top = _clip_to_dtype(literal(int(iinfo(dtype).max), dtype), high.dtype)
    beyond = gt(high, top)  # as in randint(key, shape, 0, 256, 'uint8')
    low, high = (aligned_rank(_clip_to_dtype(x, dtype), len(shape)) for x in (low, high))
    beyond = aligned_rank(beyond, len(shape))

    info = iinfo(dtype)
    unsigned_dtype = _UINTS[info.bits]
    upper, lower = (random_bits(k, info.bits, shape, sharding) for k in subkeys(key, 2))

    span = convert(sub(high, low), unsigned_dtype)
    one = literal(1, unsigned_dtype)
    span = choose(le(high, low), one, span)  # nothing lies between: every draw gives `low`
    span = choose(bitwise_and(beyond, gt(high, low)), add(span, one), span)
    # The upper bits count 2**bits % span each, made from 2**(bits / 2) so that it does not overflow.
    factor = rem(literal(1 << (info.bits // 2), unsigned_dtype), span)
    factor = rem(mul(factor, factor), span)
    offset = rem(add(mul(rem(upper, span), factor), rem(lower, span)), span)
    return add(low, convert(offset, dtype))


def subkeys(key: Array, n: int) -> list[Array]:
    """`n` new keys from a typed key."""
    keys = random_split(key, (n,))
    return [index_in_dim(keys, i, 0, keepdims=False) for i in range(n)]


@sampler
def _randint(key: Array, low: Any, high: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    info = iinfo(dtype)
    if info.bits >= 32 or not config.dialect.functions.randint_samples_wide:
        return randint_between(key, low, high, shape, dtype, sharding)
    int32 = np.dtype(np.int32)  # sampled wide, so that the bias of the remainder is small
    least, most = (literal(int(n), int32) for n in (info.min, info.max))
    low = clamp(least, convert(as_value(low), int32), most)
    high = clamp(least, convert(as_value(high), int32), literal(int(info.max) + 1, int32))
    return as_array(convert(randint_between(key, low, high, shape, int32, sharding), dtype))


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Uniform integers in [minval, maxval): int[*shape].

    Args:
        minval, maxval: integers or integer arrays that broadcast to `shape`. Bounds that the dtype does not hold are clipped.
        dtype: an integer dtype; int32 by default (int64 with 64-bit types enabled).
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    Raises:
        TypeError: `dtype` is no integer dtype.
        ValueError: the bounds do not broadcast to `shape`.

    >>> jax.random.randint(jax.random.key(0), (4,), 0, 10)
    Array([9, 0, 2, 3], dtype=int32)
    """
    own_key = checked_key("randint", key)
    result_dtype = int_dtype("randint", dtype, TypeError)
    full_shape = shape_tuple(shape, "randint")
    return draw_in_mesh(
        "randint",
        out_sharding,
        len(full_shape),
        lambda sharding: _randint(own_key, minval, maxval, shape=full_shape, dtype=result_dtype, sharding=sharding),
    )


# -- truth values ----------------------------------------------------------------------------------------------------------------------


@sampler
def _bernoulli(key: Array, p: Any, *, shape: Shape, mode: str, sharding: NamedSharding | None) -> Array:
    p = aligned_rank(p, len(shape))
    dtype = p.dtype
    if mode == "low":
        return lt(unit(key, shape, dtype, sharding), p)
    both = unit(key, (2, *shape), dtype, extend_sharding(sharding, leading=1))
    high, low = (index_in_dim(both, i, 0, keepdims=False) for i in range(2))
    return lt(mul(low, literal(2.0 ** -int(finfo(dtype).nmant), dtype)), sub(p, high))


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None) -> Array:
    """True with probability `p`: bool[*shape].

    Args:
        p: a float or an array of floats that broadcasts to `shape`.
        shape: the result's; that of `p` by default.
        mode: 'high' draws twice the bits, so that probabilities below 1e-7 come out right.
        out_sharding: how the result is split over Explicit axes.

    Raises:
        TypeError: `p` is not floating.
        ValueError: another `mode`, or `p` does not broadcast to `shape`.

    >>> jax.random.bernoulli(jax.random.key(0), 0.5, (4,))
    Array([False, False,  True,  True], dtype=bool)
    """
    if mode not in ("high", "low"):
        raise ValueError(f"bernoulli: got mode={mode!r}, expected 'high' or 'low'.")
    own_key = checked_key("bernoulli", key)
    value = as_value(p)
    if not issubdtype(value.dtype, np.floating):
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {value.dtype.name}.")
    full_shape = sample_shape("bernoulli", shape, value)
    return draw_in_mesh(
        "bernoulli",
        out_sharding,
        len(full_shape),
        lambda sharding: _bernoulli(
            own_key, convert(value, value.dtype), shape=full_shape, mode=mode, sharding=sharding
        ),
    )


@sampler
def _rademacher(key: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    default = default_dtype("f")
    heads = lt(unit(key, shape, default, sharding), literal(0.5, default))
    return choose(heads, literal(1, dtype), literal(-1, dtype))


def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """-1 or 1 with equal probability: [*shape], int32 by default. `out_sharding` as for `exponential`.

    >>> jax.random.rademacher(jax.random.key(0), (4,))
    Array([-1, -1,  1,  1], dtype=int32)
    """
    own_key = checked_key("rademacher", key)
    result_dtype = check_requested(int if dtype is None else dtype, "rademacher")
    full_shape = shape_tuple(shape, "rademacher")
    return draw_in_mesh(
        "rademacher",
        out_sharding,
        len(full_shape),
        lambda sharding: _rademacher(own_key, shape=full_shape, dtype=result_dtype, sharding=sharding),
    )
