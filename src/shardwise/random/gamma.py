"""The gamma distribution and those made from gamma samples."""

from __future__ import annotations

import operator
from typing import Any

from shardwise.base.shapes import Shape
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.ops.random.random_bits import random_split
from shardwise.ops.random.random_gamma import random_gamma
from shardwise.ops.rules.dims import shape_tuple
from shardwise.random.arguments import (
    broadcast_to,
    check_shape,
    draw_floats,
    draw_in_mesh,
    extend_sharding,
    float_dtype,
    parameter,
    sampler,
    shape_of,
)
from shardwise.random.continuous import exponential_of
from shardwise.random.keys import checked_key
from shardwise.random.normal import normal_real
from shardwise.random.uniform import rademacher, subkeys, unit
from shardwise.sharding import NamedSharding

__all__ = ["ball", "beta", "chisquare", "dirichlet", "f", "gamma", "generalized_normal", "loggamma", "t"]


def gamma_of(
    key: Array, a: Any, shape: Shape, dtype: Any, sharding: NamedSharding | None = None, *, log_space: bool = False
) -> Array:
    """Gamma numbers (or their logarithms) from a typed key: every element has a key of its own."""
    alpha = broadcast_to(parameter(a, len(shape), dtype), shape, sharding)
    return random_gamma(random_split(key, shape, sharding), alpha, log_space=log_space)


@sampler
def _gamma(key: Array, a: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return gamma_of(key, a, shape, dtype, sharding)


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Gamma numbers of shape parameter `a` and rate 1: f[*shape].

    Args:
        a: a number or an array that broadcasts to `shape`; gradients flow to it.
        shape: the result's; that of `a` by default.
        dtype: a float dtype; float32 by default.
        out_sharding: how the result is split over Explicit axes.

    >>> jax.random.gamma(jax.random.key(0), 2.0, (4,)).shape
    (4,)
    """
    return draw_floats(_gamma, "gamma", key, (a,), shape, dtype, out_sharding, safe=False)


@sampler
def _loggamma(key: Array, a: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return gamma_of(key, a, shape, dtype, sharding, log_space=True)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Logarithms of gamma numbers of shape parameter `a`, precise where the numbers are close to zero: f[*shape];
    see `gamma`. `dtype` and `out_sharding` as for `exponential`.

    >>> jax.random.loggamma(jax.random.key(0), 2.0, (4,)).shape
    (4,)
    """
    return draw_floats(_loggamma, "loggamma", key, (a,), shape, dtype, out_sharding, safe=False)


@sampler
def _beta(key: Array, a: Any, b: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    logs = [
        gamma_of(k, x, shape, dtype, sharding, log_space=True) for k, x in zip(subkeys(key, 2), (a, b), strict=True)
    ]
    largest = lax.max(*logs)
    first, second = (lax.exp(lax.sub(x, largest)) for x in logs)
    return lax.div(first, lax.add(first, second))


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Beta numbers with parameters `a` and `b`: f[*shape], between 0 and 1. `dtype` and `out_sharding` as for
    `exponential`.

    >>> jax.random.beta(jax.random.key(0), 2.0, 3.0, (4,)).shape
    (4,)
    """
    return draw_floats(_beta, "beta", key, (a, b), shape, dtype, out_sharding)


@sampler
def _dirichlet(key: Array, alpha: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    logs = gamma_of(key, alpha, shape, dtype, sharding, log_space=True)
    last = (len(shape) - 1,)
    parts = lax.exp(lax.sub(logs, lax.expand_dims(lax.reduce_max(logs, last), last)))
    return lax.div(parts, lax.expand_dims(lax.reduce_sum(parts, last), last))


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Dirichlet vectors: f[*shape, n] for `alpha` of shape (..., n), each of sum 1. `dtype` and `out_sharding` as
    for `exponential`.

    Raises:
        ValueError: `alpha` is a scalar, or its leading dims do not broadcast to `shape`.

    >>> jax.random.dirichlet(jax.random.key(0), jnp.ones(3), (4,)).shape
    (4, 3)
    """
    own_key, result_dtype = checked_key("dirichlet", key), float_dtype("dirichlet", dtype)
    own = shape_of(alpha)
    if not own:
        raise ValueError("dirichlet requires alpha.ndim >= 1, got alpha.ndim == 0.")
    wanted_shape = own[:-1] if shape is None else shape_tuple(shape, "dirichlet")
    check_shape("dirichlet", wanted_shape, own[:-1])
    return draw_in_mesh(
        "dirichlet",
        out_sharding,
        len(wanted_shape) + 1,
        lambda sharding: _dirichlet(
            own_key, alpha, shape=wanted_shape + own[-1:], dtype=result_dtype, sharding=sharding
        ),
    )


def _chisquare_of(key: Array, df: Any, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    half = lax.div(df, literal(2, dtype))
    return lax.mul(lax.exp(gamma_of(key, half, shape, dtype, sharding, log_space=True)), literal(2, dtype))


@sampler
def _chisquare(key: Array, df: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return _chisquare_of(key, parameter(df, len(shape), dtype), shape, dtype, sharding)


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Chi-square numbers with `df` degrees of freedom: f[*shape]. `dtype` and `out_sharding` as for `exponential`.

    >>> jax.random.chisquare(jax.random.key(0), 3.0, (4,)).shape
    (4,)
    """
    return draw_floats(_chisquare, "chisquare", key, (df,), shape, dtype, out_sharding)


@sampler
def _f(key: Array, dfnum: Any, dfden: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    dfnum, dfden = (parameter(x, len(shape), dtype) for x in (dfnum, dfden))
    key_den, key_num = subkeys(key, 2)
    numerator = lax.div(_chisquare_of(key_num, dfnum, shape, dtype, sharding), dfnum)
    denominator = lax.div(_chisquare_of(key_den, dfden, shape, dtype, sharding), dfden)
    return lax.div(numerator, denominator)


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """F numbers with `dfnum` and `dfden` degrees of freedom above and below: f[*shape]. `dtype` and `out_sharding`
    as for `exponential`.

    >>> jax.random.f(jax.random.key(0), 2.0, 3.0, (4,)).shape
    (4,)
    """
    return draw_floats(_f, "f", key, (dfnum, dfden), shape, dtype, out_sharding)


@sampler
def _t(key: Array, df: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    key_normal, key_gamma = subkeys(key, 2)
    half = lax.div(parameter(df, len(shape), dtype), literal(2, dtype))
    numbers = normal_real(key_normal, shape, dtype, sharding)
    return lax.mul(numbers, lax.sqrt(lax.div(half, gamma_of(key_gamma, half, shape, dtype, sharding))))


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Student's t numbers with `df` degrees of freedom: f[*shape]. `dtype` and `out_sharding` as for `exponential`.

    >>> jax.random.t(jax.random.key(0), 3.0, (4,)).shape
    (4,)
    """
    return draw_floats(_t, "t", key, (df,), shape, dtype, out_sharding)


def _generalized_normal_of(key: Array, p: Any, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    key_gamma, key_sign = subkeys(key, 2)
    inverse = lax.div(literal(1.0, dtype), p)
    sizes = lax.pow(gamma_of(key_gamma, inverse, shape, dtype, sharding), inverse)
    return lax.mul(rademacher(key_sign, shape, dtype, out_sharding=sharding), sizes)


@sampler
def _generalized_normal(key: Array, p: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return _generalized_normal_of(key, parameter(p, len(shape), dtype), shape, dtype, sharding)


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Numbers with a density proportional to ``exp(-abs(x) ** p)``: f[*shape]. `dtype` and `out_sharding` as for
    `exponential`.

    >>> jax.random.generalized_normal(jax.random.key(0), 2.0, (4,)).shape
    (4,)
    """
    own_key, result_dtype = checked_key("generalized_normal", key), float_dtype("generalized_normal", dtype)
    full_shape = shape_tuple(shape, "generalized_normal")
    return draw_in_mesh(
        "generalized_normal",
        out_sharding,
        len(full_shape),
        lambda sharding: _generalized_normal(own_key, p, shape=full_shape, dtype=result_dtype, sharding=sharding),
    )


@sampler
def _ball(key: Array, p: Any, *, d: int, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    batch = None
    if sharding is not None:
        batch = NamedSharding(sharding.mesh, sharding.spec.update(partitions=sharding.spec.partitions[: len(shape)]))
    p = parameter(p, len(shape), dtype)
    key_vector, key_radius = subkeys(key, 2)
    vectors = _generalized_normal_of(key_vector, p, (*shape, d), dtype, extend_sharding(batch, trailing=1))
    radii = exponential_of(unit(key_radius, shape, dtype, batch))
    powers = lax.reduce_sum(lax.pow(lax.abs(vectors), p), (len(shape),))
    norms = lax.pow(lax.add(powers, radii), lax.div(literal(1.0, dtype), p))
    return lax.div(vectors, lax.expand_dims(norms, (len(shape),)))


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Uniform points of the unit ball of dimension `d` under the p-norm: f[*shape, d]. `out_sharding` as for
    `exponential`.

    >>> jnp.linalg.norm(jax.random.ball(jax.random.key(0), 3)) <= 1
    Array(True, dtype=bool)
    """
    own_key, result_dtype = checked_key("ball", key), float_dtype("ball", dtype)
    full_shape, size = shape_tuple(shape, "ball"), operator.index(d)
    return draw_in_mesh(
        "ball",
        out_sharding,
        len(full_shape) + 1,
        lambda sharding: _ball(own_key, p, d=size, shape=full_shape, dtype=result_dtype, sharding=sharding),
    )
