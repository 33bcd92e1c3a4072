"""Distributions of real numbers that are one formula of a uniform number."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import finfo
from shardwise.base.shapes import Shape
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.ops.random.random_bits import random_bits
from shardwise.ops.rules.dims import shape_tuple
from shardwise.random.arguments import (
    choose,
    draw_floats,
    draw_in_mesh,
    extend_sharding,
    float_dtype,
    parameter,
    sampler,
)
from shardwise.random.keys import checked_key
from shardwise.random.uniform import uniform_between, unit
from shardwise.sharding import NamedSharding

__all__ = ["cauchy", "exponential", "gumbel", "laplace", "logistic", "pareto", "rayleigh", "triangular"]


def exponential_of(floats: Array) -> Array:
    """Exponential numbers from floats in [0, 1)."""
    return lax.neg(lax.log1p(lax.neg(floats)))


@sampler
def _exponential(key: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return exponential_of(unit(key, shape, dtype, sharding))


def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Exponential numbers of rate 1: f[*shape].

    Args:
        dtype: a float dtype, by default the default float; ValueError for another one.
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    >>> jax.random.exponential(jax.random.key(0), (2,)).shape
    (2,)
    """
    return draw_floats(_exponential, "exponential", key, (), shape, dtype, out_sharding)


@sampler
def _cauchy(key: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    floats = uniform_between(key, shape, dtype, literal(finfo(dtype).eps, dtype), 1.0, sharding)
    return lax.tan(lax.mul(literal(np.pi, dtype), lax.sub(floats, literal(0.5, dtype))))


def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Standard Cauchy numbers: f[*shape]. `dtype` and `out_sharding` as for `exponential`.

    >>> jax.random.cauchy(jax.random.key(0), (2,)).shape
    (2,)
    """
    return draw_floats(_cauchy, "cauchy", key, (), shape, dtype, out_sharding)


@sampler
def _laplace(key: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    floats = uniform_between(key, shape, dtype, -1.0 + float(finfo(dtype).epsneg), 1.0, sharding)
    return lax.mul(lax.sign(floats), lax.log1p(lax.neg(lax.abs(floats))))


def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Standard Laplace numbers: f[*shape]. `dtype` and `out_sharding` as for `exponential`.

    >>> jax.random.laplace(jax.random.key(0), (2,)).shape
    (2,)
    """
    return draw_floats(_laplace, "laplace", key, (), shape, dtype, out_sharding)


@sampler
def _logistic(key: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    floats = uniform_between(key, shape, dtype, literal(finfo(dtype).tiny, dtype), 1.0, sharding)
    return lax.sub(lax.log(floats), lax.log1p(lax.neg(floats)))


def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Standard logistic numbers: f[*shape]. `dtype` and `out_sharding` as for `exponential`.

    >>> jax.random.logistic(jax.random.key(0), (2,)).shape
    (2,)
    """
    return draw_floats(_logistic, "logistic", key, (), shape, dtype, out_sharding)


@sampler
def _pareto(key: Array, b: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return lax.exp(lax.div(exponential_of(unit(key, shape, dtype, sharding)), parameter(b, len(shape), dtype)))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Pareto numbers of shape parameter `b`: f[*shape], all at least 1. `dtype` and `out_sharding` as for
    `exponential`.

    >>> jax.random.pareto(jax.random.key(0), 2.0, (4,)).shape
    (4,)
    """
    return draw_floats(_pareto, "pareto", key, (b,), shape, dtype, out_sharding)


@sampler
def _rayleigh(key: Array, scale: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    root = lax.sqrt(lax.mul(lax.log(unit(key, shape, dtype, sharding)), literal(-2.0, dtype)))
    return lax.mul(parameter(scale, len(shape), dtype), root)


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Rayleigh numbers of this `scale`: f[*shape]. `dtype` and `out_sharding` as for `exponential`.

    >>> jax.random.rayleigh(jax.random.key(0), 1.0, (4,)).shape
    (4,)
    """
    return draw_floats(_rayleigh, "rayleigh", key, (scale,), shape, dtype, out_sharding)


@sampler
def _triangular(
    key: Array, left: Any, mode: Any, right: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None
) -> Array:
    left, mode, right = (parameter(x, len(shape), dtype) for x in (left, mode, right))
    floats = unit(key, shape, dtype, sharding)
    width, rise, fall = lax.sub(right, left), lax.sub(mode, left), lax.sub(right, mode)
    rising_value = lax.add(left, lax.sqrt(lax.mul(lax.mul(floats, width), rise)))
    falling_value = lax.sub(right, lax.sqrt(lax.mul(lax.mul(lax.sub(literal(1.0, dtype), floats), width), fall)))
    return choose(lax.lt(floats, lax.div(rise, width)), rising_value, falling_value)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Numbers whose density rises from `left` to `mode` and falls to `right`: f[*shape]. `dtype` and `out_sharding`
    as for `exponential`.

    >>> jax.random.triangular(jax.random.key(0), 0.0, 0.5, 1.0, (4,)).shape
    (4,)
    """
    return draw_floats(_triangular, "triangular", key, (left, mode, right), shape, dtype, out_sharding)


# -- gumbel: three resolutions of its tail ----------------------------------------------------------------------------------------------


def gumbel_of(key: Array, shape: Shape, dtype: Any, mode: str, sharding: NamedSharding | None = None) -> Array:
    """Gumbel numbers from a typed key; `mode` as in `gumbel`."""
    if mode == "low":
        floats = uniform_between(key, shape, dtype, literal(finfo(dtype).tiny, dtype), 1.0, sharding)
        return lax.neg(lax.log(lax.neg(lax.log(floats))))
    twice = extend_sharding(sharding, leading=1)
    if mode == "highest" and dtype == np.float32:
        return _gumbel_highest(key, shape, twice)
    info = finfo(dtype)
    high, low = _both(unit(key, (2, *shape), dtype, twice))
    fine = lax.add(lax.add(high, lax.mul(low, literal(2.0 ** -int(info.nmant), dtype))), literal(info.tiny, dtype))
    floats = choose(lax.ge(high, literal(0.5, dtype)), high, fine)
    return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(floats)))))


def _both(pairs: Array) -> tuple[Array, Array]:
    return lax.index_in_dim(pairs, 0, 0, keepdims=False), lax.index_in_dim(pairs, 1, 0, keepdims=False)


def _gumbel_highest(key: Array, shape: Shape, sharding: NamedSharding | None) -> Array:
    """From 64 bits per number, taken as a fraction below one half or as its complement, to full float precision."""

    def word(n: int) -> Any:
        return literal(n, np.dtype(np.uint32))

    high, low = _both(random_bits(key, 32, (2, *shape), sharding))
    below_half = lax.lt(high, word(1 << 31))
    # The negative of the 64-bit number: all bits turned over, plus one with its carry.
    low_turned = lax.bitwise_not(low)
    carry = lax.convert_element_type(lax.eq(low_turned, word(0xFFFFFFFF)), np.uint32)
    high = choose(below_half, high, lax.add(lax.bitwise_not(high), carry))
    low = choose(below_half, low, lax.add(low_turned, word(1)))
    floats = _fraction(high, low)
    return choose(
        below_half, lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(floats))))), lax.neg(lax.log(lax.neg(lax.log(floats))))
    )


def _fraction(high: Array, low: Array) -> Array:
    """The 64-bit number of two words, over 2**64, as float32 rounded towards zero."""

    def word(n: int) -> Any:
        return literal(n, np.dtype(np.uint32))

    zeros_high, zeros_low = lax.clz(high), lax.clz(low)
    empty = lax.eq(zeros_high, word(32))
    filler = choose(empty, lax.shift_left(low, zeros_low), lax.shift_right_logical(low, lax.sub(word(32), zeros_high)))
    # The first set bit is now the highest of the word.
    leading_bits = lax.bitwise_or(lax.shift_left(high, zeros_high), filler)
    mantissa = lax.bitwise_and(lax.shift_right_logical(leading_bits, word(8)), word((1 << 23) - 1))
    zeros = choose(empty, lax.add(word(32), zeros_low), zeros_high)
    exponent = lax.bitwise_and(lax.shift_left(lax.sub(word(126), zeros), word(23)), word((1 << 30) - (1 << 22)))
    return lax.bitcast_convert_type(lax.bitwise_or(exponent, mantissa), np.float32)


@sampler
def _gumbel(key: Array, *, shape: Shape, dtype: Any, mode: str, sharding: NamedSharding | None) -> Array:
    return gumbel_of(key, shape, dtype, mode, sharding)


def gumbel_mode(mode: str | None, name: str) -> str:
    """`mode` checked; None means 'low', or 'high' under ``jax_high_dynamic_range_gumbel``."""
    if mode not in (None, "highest", "high", "low"):
        raise ValueError(f"{name}: mode must be 'highest', 'high' or 'low', got {mode!r}.")
    return mode or ("high" if config.jax_high_dynamic_range_gumbel else "low")


def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None, *, out_sharding: Any = None) -> Array:
    """Standard Gumbel numbers: f[*shape].

    Args:
        mode: how far the upper tail is resolved: 'low' (to about 16 in float32), 'high' (32, twice the bits),
            'highest'.
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    Raises:
        ValueError: another mode, or a dtype that is no float.

    >>> jax.random.gumbel(jax.random.key(0), (2,)).shape
    (2,)
    """
    own_key, chosen = checked_key("gumbel", key), gumbel_mode(mode, "gumbel")
    result_dtype, full_shape = float_dtype("gumbel", dtype), shape_tuple(shape, "gumbel")
    return draw_in_mesh(
        "gumbel",
        out_sharding,
        len(full_shape),
        lambda sharding: _gumbel(own_key, shape=full_shape, dtype=result_dtype, mode=chosen, sharding=sharding),
    )
