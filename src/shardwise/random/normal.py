"""The normal distribution and those made from it by one more step."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import result_type
from shardwise.base.shapes import Shape
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.ops.random.random_floats import erf_inv
from shardwise.ops.rules.convert import as_value
from shardwise.ops.rules.dims import shape_tuple
from shardwise.random.arguments import (
    choose,
    draw_floats,
    extend_sharding,
    float_dtype,
    parameter,
    sample_shape,
    sampler,
    shape_of,
)
from shardwise.random.keys import checked_key
from shardwise.random.uniform import rademacher, subkeys, uniform_between, unit
from shardwise.sharding import NamedSharding
from shardwise.transforms.jit.shown_calls import shown_call

_PARTS = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}


def normal_real(key: Array, shape: Shape, dtype: Any, sharding: NamedSharding | None = None) -> Array:
    """Standard normal floats from a typed key."""
    low = np.nextafter(np.array(-1.0, dtype), np.array(0.0, dtype), dtype=dtype)
    floats = uniform_between(key, shape, dtype, literal(low), literal(1.0, dtype), sharding)
    return lax.mul(literal(np.sqrt(2), dtype), erf_inv(floats))


@shown_call("shape dtype sharding", name="_normal_real")
def _shown_normal(key: Array, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return normal_real(key, shape, dtype, sharding)


@sampler
def _normal(key: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    real = _PARTS.get(dtype.name)
    if real is None:
        return _shown_normal(key, shape, dtype, sharding)
    parts = [lax.div(normal_real(k, shape, real, sharding), literal(np.sqrt(2), real)) for k in subkeys(key, 2)]
    return lax.complex(*parts)


def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Standard normal numbers: f[*shape].

    Args:
        dtype: a float or complex dtype; float32 by default. Complex numbers have variance 1, half of it in each part.
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    Raises:
        ValueError: `dtype` is neither float nor complex.

    >>> jax.random.normal(jax.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return draw_floats(_normal, "normal", key, (), shape, dtype, out_sharding, complex=True)


@sampler
def _truncated_normal(
    key: Array, lower: Any, upper: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None
) -> Array:
    lower, upper = (parameter(x, len(shape), dtype) for x in (lower, upper))
    root2 = literal(np.sqrt(2), dtype)
    low, high = (lax.erf(lax.div(x, root2)) for x in (lower, upper))
    floats = uniform_between(key, shape, dtype, low, high, sharding)
    out = lax.mul(root2, erf_inv(floats))
    # Rounding may have moved a number onto a bound or over it.
    least = lax.nextafter(lax.stop_gradient(lower), literal(np.inf, dtype))
    most = lax.nextafter(lax.stop_gradient(upper), literal(-np.inf, dtype))
    return lax.min(lax.max(out, least), most)


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Standard normal numbers, those between `lower` and `upper` only: f[*shape].

    Args:
        lower, upper: numbers or arrays that broadcast to `shape`.
        shape: the result's; that to which the bounds broadcast by default.
        dtype: a float dtype, by default the default float; ValueError for another one.
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    >>> jax.random.truncated_normal(jax.random.key(0), -1.0, 1.0, (4,)).shape
    (4,)
    """
    return draw_floats(
        _truncated_normal, "truncated_normal", key, (lower, upper), shape, dtype, out_sharding, safe=False
    )


@sampler
def _lognormal(key: Array, sigma: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    return lax.exp(
        lax.mul(_normal(key, shape=shape, dtype=dtype, sharding=sharding), parameter(sigma, len(shape), dtype))
    )


def lognormal(
    key: Any,
    sigma: Any = np.float32(1),  # noqa: B008
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Numbers whose logarithm is normal with standard deviation `sigma`: f[*shape]. `dtype` and `out_sharding` as
    for `exponential`.

    >>> jax.random.lognormal(jax.random.key(0), 1.0, (4,)).shape
    (4,)
    """
    if config.dialect.functions.lognormal_promotes:  # halves times the default float32 are float32
        result_dtype = float_dtype("lognormal", dtype, complex=True)
        dtype = result_type(result_dtype, as_value(sigma))
        if dtype != result_dtype:
            logs = normal(key, sample_shape("lognormal", shape, sigma), result_dtype, out_sharding=out_sharding)
            return lax.exp(lax.mul(lax.convert_element_type(logs, dtype), parameter(sigma, logs.ndim, dtype)))
    return draw_floats(_lognormal, "lognormal", key, (sigma,), shape, dtype, out_sharding, complex=True)


@sampler
def _maxwell(key: Array, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    vectors = normal_real(key, (*shape, 3), dtype, extend_sharding(sharding, trailing=1))
    return lax.sqrt(lax.reduce_sum(lax.mul(vectors, vectors), (len(shape),)))


def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """The length of a standard normal vector of three numbers: f[*shape]. `dtype` and `out_sharding` as for
    `exponential`.

    >>> jax.random.maxwell(jax.random.key(0), (2,)).shape
    (2,)
    """
    return draw_floats(_maxwell, "maxwell", key, (), shape, dtype, out_sharding)


@sampler
def _double_sided_maxwell(key: Array, loc: Any, scale: Any, *, shape: Shape, dtype: Any) -> Array:
    key1, key2 = subkeys(key, 2)
    lengths = _maxwell(key1, shape=shape, dtype=dtype, sharding=None)
    signs = rademacher(key2, shape, dtype)
    result_dtype = result_type(dtype, loc, scale)
    loc, scale = (parameter(x, len(shape), result_dtype) for x in (loc, scale))
    return lax.add(lax.mul(parameter(lax.mul(signs, lengths), len(shape), result_dtype), scale), loc)


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Array:
    """`loc` plus or minus `scale` times a Maxwell number: f[*shape, *parameters].

    `shape` precedes the shape to which `loc` and `scale` broadcast; if empty, that shape is taken twice, as JAX
    does. `dtype` as for `exponential`.

    >>> jax.random.double_sided_maxwell(jax.random.key(0), 0.0, 1.0, (4,)).shape
    (4,)
    """
    own_key = checked_key("double_sided_maxwell", key)
    result_dtype = float_dtype("double_sided_maxwell", dtype)
    parameters = sample_shape("double_sided_maxwell", None, loc, scale)
    full_shape = shape_tuple(shape, "double_sided_maxwell") or parameters
    return _double_sided_maxwell(own_key, loc, scale, shape=full_shape + parameters, dtype=result_dtype)


@sampler
def _wald(key: Array, mean: Any, *, shape: Shape, dtype: Any, sharding: NamedSharding | None) -> Array:
    mean = parameter(mean, len(shape), dtype)
    key1, key2 = subkeys(key, 2)
    y = lax.square(normal_real(key1, shape, dtype, sharding))
    z = unit(key2, shape, dtype, sharding)
    square = lax.square(mean)
    root = lax.sqrt(lax.add(lax.mul(lax.mul(mean, 4.0), y), lax.mul(square, lax.square(y))))
    x = lax.sub(lax.add(mean, lax.div(lax.mul(square, y), 2.0)), lax.mul(lax.div(mean, 2.0), root))
    return choose(lax.le(z, lax.div(mean, lax.add(mean, x))), x, lax.div(square, x))


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Inverse Gaussian numbers of scale 1 with this `mean`: f[*shape]. `dtype` and `out_sharding` as for
    `exponential`.

    >>> jax.random.wald(jax.random.key(0), 1.0, (4,)).shape
    (4,)
    """
    return draw_floats(_wald, "wald", key, (mean,), shape, dtype, out_sharding)


@sampler
def _weibull_min(key: Array, scale: Any, concentration: Any, *, shape: Shape, dtype: Any) -> Array:
    floats = lax.neg(lax.log1p(lax.neg(unit(key, shape, dtype))))
    rank = max(len(shape), len(shape_of(scale)), len(shape_of(concentration)))
    narrow, wide = result_type(dtype, concentration), result_type(dtype, concentration, scale)
    power = lax.pow(
        parameter(floats, rank, narrow), lax.div(literal(1.0, narrow), parameter(concentration, rank, narrow))
    )
    return lax.mul(parameter(power, rank, wide), parameter(scale, rank, wide))


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Weibull numbers of `scale` and shape parameter `concentration`: f[...], of the shape to which `shape` and the
    parameters broadcast. `dtype` as for `exponential`.

    >>> jax.random.weibull_min(jax.random.key(0), 1.0, 2.0, (4,)).shape
    (4,)
    """
    return _weibull_min(
        checked_key("weibull_min", key),
        scale,
        concentration,
        shape=shape_tuple(shape, "weibull_min"),
        dtype=float_dtype("weibull_min", dtype),
    )


__all__ = ["double_sided_maxwell", "lognormal", "maxwell", "normal", "truncated_normal", "wald", "weibull_min"]
