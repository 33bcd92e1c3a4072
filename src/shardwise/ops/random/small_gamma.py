"""Gamma samples in small programs: the steps of `random_gamma`'s kernel, with all elements together until the last one has a result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.base.dtypes import key_dtype
from shardwise.ir import Equation, literal
from shardwise.ops.control.while_loop import while_loop
from shardwise.ops.random.random_floats import erf_inv, mul_add, unit_floats
from shardwise.ops.rules.derivative import do, scalar
from shardwise.ops.shapes.broadcast import broadcast_in_dim


def counts_its_bits(eqn: Equation) -> bool:
    """Whether keys are threefry's, in the order of counters whose bits do not depend on each other, for floats of a word or two."""
    keys, alpha = eqn.inputs
    plain = eqn.params["partitionable"] and eqn.params["generator"] == key_dtype.tag
    return plain and alpha.aval.dtype.name in ("float32", "float64") and not keys.aval.vma and not alpha.aval.vma


def small_gamma(keys: Any, alpha: Any, *, log_space: bool, **others: Any) -> Any:
    """A sample from each key and parameter."""
    shape = np.broadcast_shapes(keys.shape, alpha.shape)
    keys, alpha = (broadcast_in_dim(x, shape, tuple(range(len(shape) - x.ndim, len(shape)))) for x in (keys, alpha))
    large = do.ge(alpha, 1)
    d = do.sub(do.select_n(large, do.add(alpha, 1), alpha), _one_third(alpha))
    c = do.div(_one_third(alpha), do.sqrt(d))
    first, second = _split(keys, 2)
    v = _accept_draws(first, d, c)
    u = _uniform(second, alpha.dtype)
    power = do.div(_full_like(alpha, 1), alpha)
    if log_space:
        logs = do.log1p(do.neg(u))
        back = do.select_n(do.or_(large, do.eq(logs, 0)), do.mul(logs, power), _full_like(alpha, 0))
        return do.add(do.add(do.log(d), do.log(v)), back)
    back = do.select_n(large, do.pow(do.sub(_full_like(alpha, 1), u), power), _full_like(alpha, 1))
    return do.mul(do.mul(d, v), back)


def _accept_draws(keys: Any, d: Any, c: Any) -> Any:
    """The factor v**3 of ``d * v**3``, a gamma number of parameter d + 1/3 >= 1."""

    def step(state: Any) -> Any:
        is_open, keys, out = state
        next_keys, inner, own = _split(keys, 3)
        x, v = _proposal(is_open, inner, c)
        x_squared, v_cubed = do.mul(x, x), do.mul(do.mul(v, v), v)
        u = _uniform(own, c.dtype)
        again = do.ge(u, mul_add(do.mul(x_squared, x_squared), scalar(-0.0331, c.dtype), _full_like(c, 1)))
        rest = do.add(do.sub(_full_like(c, 1), v_cubed), do.log(v_cubed))
        again = do.and_(again, do.ge(do.log(u), mul_add(d, rest, do.mul(x_squared, 0.5))))
        out = do.select_n(is_open, out, v_cubed)
        return do.and_(is_open, again), do.select_n(is_open, keys, next_keys), out

    return while_loop(lambda state: _some(state[0]), step, (_full_like(c, True, np.bool_), keys, _full_like(c, 1)))[2]


def _proposal(wanted: Any, keys: Any, c: Any) -> tuple[Any, Any]:
    """Normal numbers x with ``1 + c * x`` positive, and that; drawn again until it is, where they are `wanted`."""

    def step(state: Any) -> Any:
        is_open, keys, x, v = state
        next_keys, own = _split(keys, 2)
        normals = _normal(own, c.dtype)
        new_v = mul_add(normals, c, _full_like(c, 1))
        x, v = do.select_n(is_open, x, normals), do.select_n(is_open, v, new_v)
        return do.and_(is_open, do.le(v, 0)), do.select_n(is_open, keys, next_keys), x, v

    return while_loop(lambda state: _some(state[0]), step, (wanted, keys, _full_like(c, 0), _full_like(c, -1)))[2:]


def _split(keys: Any, n: int) -> list[Any]:
    """`n` new keys from each."""
    new_keys = do.random_split(keys, shape=(n,), out_sharding=None)
    start, end = (0,) * keys.ndim, keys.shape
    return [
        do.reshape(
            do.slice(new_keys, start_indices=(*start, i), limit_indices=(*end, i + 1), strides=None),
            new_sizes=keys.shape,
        )
        for i in range(n)
    ]


def _uniform(keys: Any, dtype: Any) -> Any:
    bits = do.random_block(keys, bit_width=8 * dtype.itemsize, shape=(), out_sharding=None)
    return unit_floats(bits, dtype)


def _normal(keys: Any, dtype: Any) -> Any:
    low = np.nextafter(dtype.type(-1), dtype.type(0), dtype=dtype)
    spread = do.add(do.mul(_uniform(keys, dtype), 2), literal(low, dtype))
    return do.mul(erf_inv(spread), literal(dtype.type(math.sqrt(2)), dtype))


def _full_like(like: Any, value: Any, dtype: Any = None) -> Any:
    return broadcast_in_dim(literal(value, like.dtype if dtype is None else np.dtype(dtype)), like.shape, ())


def _one_third(like: Any) -> Any:
    return literal(like.dtype.type(1 / 3), like.dtype)


def _some(mask: Any) -> Any:
    return do.reduce_or(mask, axes=tuple(range(mask.ndim)))
