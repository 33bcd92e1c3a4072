"""Distributions of counts: Poisson, binomial, multinomial, geometric.

The first two draw until every element is accepted, in a loop that all elements share.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise.base.dtypes import check_requested, iinfo, result_type, to_inexact
from shardwise.base.shapes import Shape
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.ops.control import scan, while_loop
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.random.random_bits import random_split, share_value
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.shapes.transpose import transpose
from shardwise.random.arguments import (
    broadcast_to,
    check_shape,
    choose,
    draw_in_mesh,
    float_dtype,
    int_dtype,
    parameter,
    sample_shape,
    sampler,
)
from shardwise.random.keys import checked_key, key_impl
from shardwise.random.permute import rows_at
from shardwise.random.uniform import subkeys, unit
from shardwise.sharding import NamedSharding

__all__ = ["binomial", "geometric", "multinomial", "poisson"]

_FLOAT32 = np.dtype(np.float32)
_BOOL = np.dtype(np.bool_)


def _any(x: Array) -> Array:
    return lax.reduce_or(x, tuple(range(x.ndim)))


# -- Poisson -----------------------------------------------------------------------------------------------------------


def _by_waiting(key: Array, lam: Array, dtype: Any, sharding: NamedSharding | None) -> Array:
    """D. Knuth's method: the number of exponential times that fit into an interval of length `lam`."""
    limit = int(iinfo(dtype).max)

    def keep_waiting(state: Any) -> Array:
        steps, _, _, log_product = state
        return lax.bitwise_and(_any(lax.gt(log_product, lax.neg(lam))), lax.lt(steps, limit))

    def step(state: Any) -> Any:
        steps, count, key, log_product = state
        key, subkey = subkeys(key, 2)
        count = choose(lax.gt(log_product, lax.neg(lam)), lax.add(count, literal(1, dtype)), count)
        floats = unit(subkey, lam.shape, _FLOAT32, sharding)
        return lax.add(steps, 1), count, key, lax.add(log_product, lax.log(floats))

    start = (0, lax.full_like(lam, 0, dtype), key, lax.full_like(lam, 0))
    return lax.sub(while_loop(keep_waiting, step, start)[1], literal(1, dtype))


def _by_rejection(key: Array, lam: Array, dtype: Any, sharding: NamedSharding | None) -> Array:
    """W. Hoermann's transformed rejection (1993), for large `lam`."""
    limit = int(iinfo(dtype).max)
    log_lam = lax.log(lam)
    b = lax.add(lax.mul(lax.sqrt(lam), 2.53), 0.931)
    a = lax.sub(lax.mul(b, 0.02483), 0.059)
    inverse_alpha = lax.add(lax.div(literal(1.1328, _FLOAT32), lax.sub(b, 3.4)), 1.1239)
    v_r = lax.sub(literal(0.9277, _FLOAT32), lax.div(literal(3.6224, _FLOAT32), lax.sub(b, 2.0)))

    def has_rejected(state: Any) -> Array:
        steps, _, is_accepted, _ = state
        return lax.bitwise_and(_any(lax.bitwise_not(is_accepted)), lax.lt(steps, limit))

    def step(state: Any) -> Any:
        steps, out, is_accepted, key = state
        key, key_u, key_v = subkeys(key, 3)
        u = lax.sub(unit(key_u, lam.shape, _FLOAT32, sharding), 0.5)
        v = unit(key_v, lam.shape, _FLOAT32, sharding)
        shifted_values = lax.sub(literal(0.5, _FLOAT32), lax.abs(u))
        slope = lax.add(lax.div(lax.mul(a, 2.0), shifted_values), b)
        k = lax.floor(lax.add(lax.add(lax.mul(slope, u), lam), 0.43))
        s = lax.log(lax.div(lax.mul(v, inverse_alpha), lax.add(lax.div(a, lax.mul(shifted_values, shifted_values)), b)))
        t = lax.sub(lax.sub(lax.mul(k, log_lam), lam), lax.lgamma(lax.add(k, 1.0)))
        at_once = lax.bitwise_and(lax.ge(shifted_values, 0.07), lax.le(v, v_r))
        outside = lax.bitwise_or(
            lax.lt(k, 0.0), lax.bitwise_and(lax.lt(shifted_values, 0.013), lax.gt(v, shifted_values))
        )
        accept = lax.bitwise_or(at_once, lax.bitwise_and(lax.bitwise_not(outside), lax.le(s, t)))
        return lax.add(steps, 1), choose(accept, k, out), lax.bitwise_or(is_accepted, accept), key

    start = (0, lax.full_like(lam, -1), lax.full_like(lam, False, _BOOL), key)
    return lax.convert_element_type(while_loop(has_rejected, step, start)[1], dtype)


@sampler
def _poisson(key: Array, lam: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    lam = broadcast_to(parameter(lam, len(shape), _FLOAT32), shape, sharding)
    small = lax.bitwise_or(lax.ne(lam, lam), lax.lt(lam, 10.0))
    counts_by_waiting = _by_waiting(key, choose(small, lam, literal(0.0, _FLOAT32)), dtype, sharding)
    counts_by_rejection = _by_rejection(share_value(key), choose(small, literal(1e5, _FLOAT32), lam), dtype, sharding)
    return choose(lax.eq(lam, 0.0), literal(0, dtype), choose(small, counts_by_waiting, counts_by_rejection))


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Poisson numbers of mean `lam`: int[*shape].

    Args:
        lam: a number or an array, at least 0, that broadcasts to `shape`.
        shape: the result's; that of `lam` by default.
        dtype: an integer dtype; int32 by default.
        out_sharding: how the result is split over Explicit axes.

    Raises:
        NotImplementedError: `key` is of another generator than threefry2x32.

    >>> jax.random.poisson(jax.random.key(0), 4.0, (4,)).shape
    (4,)
    """
    own_key, result_dtype = checked_key("poisson", key), int_dtype("poisson", dtype, TypeError)
    generator = key_impl(own_key)
    if generator != "threefry2x32":
        raise NotImplementedError(
            f"`poisson` is only implemented for the threefry2x32 RNG, not {generator}. Use a key of threefry2x32."
        )
    full_shape = sample_shape("poisson", shape, lam)
    return draw_in_mesh(
        "poisson",
        out_sharding,
        len(full_shape),
        lambda sharding: _poisson(own_key, lam, shape=full_shape, dtype=result_dtype, sharding=sharding),
    )


# -- binomial -----------------------------------------------------------------------------------------------------------

_STIRLING_TAIL = (0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
             0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287)  # fmt: skip


def _stirling_tail(k: Array) -> Array:
    """log(k!) less Stirling's formula: from a table up to 9, by a series beyond."""
    table = as_array(np.array(_STIRLING_TAIL, k.dtype))
    is_tabulated = lax.le(k, 9.0)
    k = lax.clamp(0.0, k, 9.0)
    square = lax.square(lax.add(k, 1.0))
    inner = lax.sub(literal(1 / 360, k.dtype), lax.div(literal(1 / 1260, k.dtype), square))
    series = lax.div(lax.sub(literal(1 / 12, k.dtype), lax.div(inner, square)), lax.add(k, 1.0))
    return choose(is_tabulated, rows_at(table, lax.convert_element_type(lax.floor(k), np.int32), 0), series)


def _by_inversion(key: Array, count: Array, prob: Array) -> Array:
    """How many geometric numbers fit into `count`, for a small mean."""
    dtype = prob.dtype
    log_fail = lax.log1p(lax.neg(prob))

    def fits(state: Any) -> Array:
        return _any(lax.le(state[1], count))

    def step(state: Any) -> Any:
        number, total, key = state
        subkey, key = subkeys(key, 2)
        number = choose(lax.le(total, count), lax.add(number, 1.0), number)
        trials = lax.ceil(lax.div(lax.log(unit(subkey, prob.shape, dtype)), log_fail))
        return number, lax.add(total, trials), key

    return lax.sub(while_loop(fits, step, (lax.full_like(prob, 0), lax.full_like(prob, 0), key))[0], 1.0)


def _by_btrs(key: Array, count: Array, prob: Array) -> Array:
    """W. Hoermann's transformed rejection with squeeze (1993), for a large mean."""
    dtype = prob.dtype

    def const(x: float) -> Any:
        return literal(x, dtype)

    fail = lax.sub(const(1), prob)
    deviation = lax.sqrt(lax.mul(lax.mul(count, prob), fail))
    b = lax.add(const(1.15), lax.mul(const(2.53), deviation))
    a = lax.add(lax.add(const(-0.0873), lax.mul(const(0.0248), b)), lax.mul(const(0.01), prob))
    c = lax.add(lax.mul(count, prob), const(0.5))
    v_r = lax.sub(const(0.92), lax.div(const(4.2), b))
    ratio = lax.div(prob, fail)
    alpha = lax.mul(lax.add(const(2.83), lax.div(const(5.1), b)), deviation)
    m = lax.floor(lax.mul(lax.add(count, const(1)), prob))
    rest = lax.add(lax.sub(count, m), const(1))
    at_mode = lax.mul(lax.add(m, const(0.5)), lax.log(lax.div(lax.add(m, const(1)), lax.mul(ratio, rest))))
    tails = lax.add(_stirling_tail(m), _stirling_tail(lax.sub(count, m)))

    def has_rejected(state: Any) -> Array:
        return _any(lax.bitwise_not(state[1]))

    def step(state: Any) -> Any:
        out, is_accepted, key = state
        key, key_u, key_v = subkeys(key, 3)
        u = lax.sub(unit(key_u, prob.shape, dtype), const(0.5))
        v = unit(key_v, prob.shape, dtype)
        shifted_values = lax.sub(const(0.5), lax.abs(u))
        at_once = lax.bitwise_and(lax.ge(shifted_values, const(0.07)), lax.le(v, v_r))
        slope = lax.add(lax.div(lax.mul(const(2), a), shifted_values), b)
        k = lax.floor(lax.add(lax.mul(slope, u), c))
        outside = lax.bitwise_or(lax.lt(k, const(0)), lax.gt(k, count))
        left = lax.add(lax.sub(count, k), const(1))
        v = lax.log(lax.div(lax.mul(v, alpha), lax.add(lax.div(a, lax.mul(shifted_values, shifted_values)), b)))
        bound = lax.add(at_mode, lax.mul(lax.add(count, const(1)), lax.log(lax.div(rest, left))))
        tilt = lax.log(lax.div(lax.mul(ratio, left), lax.add(k, const(1))))
        bound = lax.add(bound, lax.mul(lax.add(k, const(0.5)), tilt))
        bound = lax.sub(lax.sub(lax.add(bound, tails), _stirling_tail(k)), _stirling_tail(lax.sub(count, k)))
        accept = lax.bitwise_or(at_once, lax.bitwise_and(lax.bitwise_not(outside), lax.le(v, bound)))
        return choose(accept, k, out), lax.bitwise_or(is_accepted, accept), key

    return while_loop(has_rejected, step, (lax.full_like(prob, -1), lax.full_like(prob, False, _BOOL), key))[0]


def _binomial_of(key: Array, n: Any, p: Any, shape: Shape, dtype: Any) -> Array:
    prob = broadcast_to(p, shape)
    count = broadcast_to(convert(as_value(n), prob.dtype), shape)
    inner = prob.dtype

    def const(x: float) -> Any:
        return literal(x, inner)

    below_half = lax.lt(prob, const(0.5))
    q = choose(below_half, prob, lax.sub(const(1), prob))
    bad_count = lax.bitwise_or(lax.ne(count, count), lax.lt(count, const(0)))
    endless = lax.eq(lax.abs(count), const(np.inf))
    q_is_nan, q_negative = lax.ne(q, q), lax.lt(q, const(0))
    q = choose(lax.bitwise_or(q_is_nan, q_negative), const(0.01), q)
    few = lax.bitwise_or(bad_count, lax.le(lax.mul(count, q), const(10)))
    count = lax.floor(count)
    counts_by_inversion = _by_inversion(key, choose(few, count, const(0)), q)
    counts_by_btrs = _by_btrs(share_value(key), choose(few, const(1e4), count), choose(few, const(0.5), q))
    samples = convert(choose(few, counts_by_inversion, counts_by_btrs), dtype)
    invalid = lax.bitwise_or(lax.bitwise_or(q_negative, q_is_nan), bad_count)
    samples = choose(invalid, literal(np.nan, dtype), samples)
    samples = choose(lax.bitwise_and(endless, lax.bitwise_not(invalid)), literal(np.inf, dtype), samples)
    as_is = lax.bitwise_or(lax.bitwise_or(below_half, bad_count), lax.bitwise_or(q_is_nan, endless))
    return choose(as_is, samples, lax.sub(convert(count, dtype), samples))


@sampler
def _binomial(key: Array, n: Any, p: Any, *, shape: Shape, dtype: Any) -> Array:
    return _binomial_of(key, n, p, shape, dtype)


def _probabilities(p: Any) -> Any:
    value = as_value(p)
    return convert(value, to_inexact(value.dtype))


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """How many of `n` trials succeed, each with probability `p`: f[*shape] of whole numbers.

    Args:
        n, p: numbers or arrays that broadcast to `shape`. Results are NaN where they are invalid.
        shape: the result's; that to which `n` and `p` broadcast by default.
        dtype: a float dtype; float32 by default.

    >>> jax.random.binomial(jax.random.key(0), 10, 0.5, (4,)).shape
    (4,)
    """
    own_key, result_dtype = checked_key("binomial", key), float_dtype("binomial", dtype)
    full_shape = sample_shape("binomial", shape, n, p)
    return _binomial(own_key, n, _probabilities(p), shape=full_shape, dtype=result_dtype)


@sampler
def _multinomial(key: Array, n: Any, p: Array, *, dtype: Any) -> Array:
    last = p.ndim - 1
    fronts = transpose(p, (last, *range(last)))
    left = lax.cumsum(fronts, 0, reverse=True)
    shares = lax.div(fronts, choose(lax.eq(left, 0.0), literal(1.0, p.dtype), left))

    def step(remaining: Any, entry: Any) -> Any:
        share, key = entry
        count = _binomial_of(key, remaining, lax.clamp(0.0, share, 1.0), remaining.shape, remaining.dtype)
        return lax.sub(remaining, count), count

    _, counts = scan(step, n, (shares, random_split(key, (fronts.shape[0],))))
    return as_array(convert(transpose(counts, (*range(1, counts.ndim), 0)), dtype))


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1) -> Array:
    """The counts of each outcome in `n` trials: f[*batch, outcomes] of whole numbers.

    Args:
        n: the numbers of trials; broadcast to the leading dims of `shape`.
        p: the probability of each outcome along the last dim.
        shape: the shape of the result, to which `p` broadcasts; that of `p` by default.
        dtype: the dtype of the counts; float32 by default.
        unroll: as in `scan`: changes nothing.

    >>> jax.random.multinomial(jax.random.key(0), 10, jnp.array([0.5, 0.5])).shape
    (2,)
    """
    own_key, result_dtype = (
        checked_key("multinomial", key),
        check_requested(float if dtype is None else dtype, "multinomial"),
    )
    operator.index(unroll)
    p, n = as_array(p), as_value(n)
    common = to_inexact(result_type(n, p))
    wanted_shape = p.shape if shape is None else shape_tuple(shape, "multinomial")
    check_shape("multinomial", wanted_shape, p.shape)
    check_shape("multinomial", wanted_shape[:-1], tuple(n.shape))
    return _multinomial(
        own_key,
        broadcast_to(convert(n, common), wanted_shape[:-1]),
        broadcast_to(convert(p, common), wanted_shape),
        dtype=result_dtype,
    )


# -- geometric -----------------------------------------------------------------------------------------------------------


@sampler
def _geometric(key: Array, p: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    p = parameter(p, len(shape), p.dtype)
    floats = unit(key, shape, p.dtype, sharding)
    floats = choose(lax.eq(floats, literal(0, p.dtype)), literal(1, p.dtype), floats)
    trials = lax.floor(lax.div(lax.log(floats), lax.log1p(lax.neg(p))))
    return lax.convert_element_type(lax.add(trials, literal(1, p.dtype)), dtype)


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """The number of the first successful trial, each with probability `p`: int[*shape], at least 1.

    Args:
        dtype: an integer dtype, by default the default integer.
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    >>> jax.random.geometric(jax.random.key(0), 0.5, (4,)).shape
    (4,)
    """
    own_key, result_dtype = checked_key("geometric", key), int_dtype("geometric", dtype)
    full_shape = sample_shape("geometric", shape, p)
    value = _probabilities(p)
    return draw_in_mesh(
        "geometric",
        out_sharding,
        len(full_shape),
        lambda sharding: _geometric(own_key, value, shape=full_shape, dtype=result_dtype, sharding=sharding),
    )
