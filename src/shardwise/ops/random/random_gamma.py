"""Gamma samples, one key per element: rejection runs on whatever elements are still without a result.

The method is that of Marsaglia and Tsang (2000). Element by element it draws the same bits and takes the same decisions
as JAX does, so samples are equal up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import finfo, key_dtype, name_of
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, ShapedArray, bind, define_op, literal
from shardwise.ir.key_uses import DRAWS
from shardwise.ops.elementwise import binary
from shardwise.ops.elementwise.special import random_gamma_grad
from shardwise.ops.elementwise.transcendental import exp
from shardwise.ops.random.counter_ciphers import is_ciphered
from shardwise.ops.random.random_floats import erf_inv_block, unit_floats_block
from shardwise.ops.random.threefry_halves import COUNTED_DRAWS, HALVED_DRAWS, Draws
from shardwise.ops.random.wide_draws import wide_draws
from shardwise.ops.rules.derivative import later
from shardwise.ops.rules.operands import align_blocks, broadcast_shape, check_kind
from shardwise.ops.rules.small_programs import as_program
from shardwise.runtime.env import Env

_WIDE = {"float32": np.dtype(np.float64)}


def _random_gamma_type(
    keys: ShapedArray, alpha: ShapedArray, *, log_space: bool, partitionable: bool, generator: str
) -> ShapedArray:
    check_kind("random_gamma", alpha, "f")
    return ShapedArray(broadcast_shape("random_gamma", [keys.shape, alpha.shape]), alpha.dtype)


def _uniform(draws: Draws, keys: Ndarray, dtype: Any) -> Ndarray:
    width = 8 if finfo(dtype).nmant < 8 else 8 * dtype.itemsize
    return unit_floats_block(draws.random_bits(keys, width, ()), dtype)


def _normal(draws: Draws, keys: Ndarray, dtype: Any) -> Ndarray:
    low = np.nextafter(dtype.type(-1), dtype.type(0), dtype=dtype)
    return dtype.type(np.sqrt(2)) * erf_inv_block(_uniform(draws, keys, dtype) * dtype.type(2) + low)


def _fma(x: Ndarray, y: Ndarray, z: Any) -> Ndarray:
    wide = _WIDE.get(name_of(x.dtype))
    if wide is None:
        return x * y + z
    return (x.astype(wide) * y + z).astype(x.dtype)


def _proposal(draws: Draws, keys: Ndarray, c: Ndarray) -> tuple[Ndarray, Ndarray]:
    """Normal numbers x with ``1 + c * x`` positive, and that; drawn again until it is."""
    dtype = c.dtype
    x, v = np.zeros_like(c), np.full_like(c, -1)
    open_ = np.arange(c.size)
    while open_.size:
        pairs = draws.split(keys)
        normals = _normal(draws, pairs[:, 1], dtype)
        x[open_] = normals
        v[open_] = _fma(normals, c[open_], dtype.type(1))
        still = v[open_] <= 0
        open_, keys = open_[still], pairs[still, 0]
    return x, v


def _accept_draws(draws: Draws, keys: Ndarray, d: Ndarray, c: Ndarray) -> Ndarray:
    """The factor v**3 of ``d * v**3``, a gamma number of parameter d + 1/3 >= 1."""
    dtype = d.dtype
    one = dtype.type(1)
    out = np.ones_like(d)
    open_ = np.arange(d.size)
    while open_.size:
        triples = draws.split(keys, 3)
        d_open = d[open_]
        x, v = _proposal(draws, triples[:, 1], c[open_])
        x_squared, v_cubed = x * x, v * v * v
        u = _uniform(draws, triples[:, 2], dtype)
        out[open_] = v_cubed
        again = u >= _fma(dtype.type(-0.0331), x_squared * x_squared, one)
        bound = _fma(d_open, one - v_cubed + np.log(v_cubed), x_squared * dtype.type(0.5))
        again &= np.log(u) >= bound
        open_, keys = open_[again], triples[again, 0]
    return out


def _random_gamma_kernel(
    env: Env, keys: Ndarray, alpha: Ndarray, *, log_space: bool, partitionable: bool, generator: str
) -> Ndarray:
    keys, alpha = align_blocks((keys, alpha))
    shape = np.broadcast_shapes(keys.shape, alpha.shape)
    keys, alpha = (np.broadcast_to(x, shape).reshape(-1) for x in (keys, alpha))
    draws = COUNTED_DRAWS if partitionable else HALVED_DRAWS
    if generator != key_dtype.tag:
        draws = wide_draws(generator, draws)
    return _sample(draws, keys, alpha, log_space).reshape(shape)


def _sample(draws: Draws, keys: Ndarray, alpha: Ndarray, log_space: bool) -> Ndarray:
    dtype = alpha.dtype
    one, third = dtype.type(1), dtype.type(1 / 3)
    with np.errstate(all="ignore"):
        large = alpha >= 1
        d = np.where(large, alpha, alpha + one) - third
        c = third / np.sqrt(d)
        pairs = draws.split(keys)
        v = _accept_draws(draws, pairs[:, 0], d, c)
        u = _uniform(draws, pairs[:, 1], dtype)
        # A parameter below 1 was raised by 1; a power of a uniform number brings the result back.
        if log_space:
            logs = np.log1p(-u)
            back = np.where(large | (logs == 0), dtype.type(0), logs * (one / alpha))
            return np.log(d) + np.log(v) + back
        return d * v * np.where(large, one, np.power(one - u, one / alpha))


def _random_gamma_jvp(
    primals: tuple[Any, ...], tangents: tuple[Any, ...], *, log_space: bool, partitionable: bool, generator: str
) -> tuple[Any, Any]:
    out = bind(random_gamma_p, *primals, log_space=log_space, partitionable=partitionable, generator=generator)
    tangent = tangents[1]
    if tangent is None:
        return out, None
    alpha = primals[1]
    sample = binary.max(exp(out), literal(finfo(out.dtype).tiny, out.dtype)) if log_space else out
    slope = random_gamma_grad(alpha, sample)
    return out, binary.mul(tangent, binary.div(slope, sample) if log_space else slope)


random_gamma_p = define_op(
    "random_gamma",
    type_rule=_random_gamma_type,
    kernel=_random_gamma_kernel,
    jvp=_random_gamma_jvp,
    keys=DRAWS,
    small=as_program(
        later("shardwise.ops.random.small_gamma", "small_gamma"),
        later("shardwise.ops.random.small_gamma", "counts_its_bits"),
    ),
)


def random_gamma(keys: Any, alpha: Any, *, log_space: bool) -> Array:
    """A gamma sample (or its logarithm) from each key and parameter: key[...], f[...] -> f[...]."""
    if is_ciphered(keys):
        raise NotImplementedError(
            f"gamma numbers, and those made of them, are not drawn with keys of type {keys.dtype.name}. Use a key of threefry2x32 or rbg."
        )
    generator = keys.dtype.tag
    partitionable = config.jax_threefry_partitionable
    return bind(random_gamma_p, keys, alpha, log_space=log_space, partitionable=partitionable, generator=generator)
