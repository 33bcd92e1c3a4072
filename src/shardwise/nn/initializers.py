"""Initial values of weights: functions ``init(key, shape, dtype=..., out_sharding=None) -> array``.

In: the distribution's parameters, then a random key, a shape and a dtype. Out: arrays of random or constant values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

import shardwise.numpy as jnp
from shardwise import random
from shardwise.base.dtypes import canonicalize, check_requested, default_dtype, issubdtype, to_complex
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.ops.rules.dims import shape_tuple

__all__ = [
    "Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
    "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones", "orthogonal",
    "truncated_normal", "uniform", "variance_scaling", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip

AxisOrAxes = int | Sequence[int]

# The standard deviations of a standard normal, real or complex, cut off at distance 2.
_CUT_NORMAL = 0.87962566103423978
_CUT_COMPLEX_NORMAL = 0.95311164380491208


@runtime_checkable
class Initializer(Protocol):
    """A function from a random key, a shape and a dtype to an array."""

    def __call__(self, key: Array, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
        """An array of `shape` and `dtype`, split as `out_sharding` says."""
        ...


def _dtype(dtype: Any) -> Any:
    return default_dtype("f") if dtype is None else canonicalize(check_requested(dtype, "initializer"))


# -- constants -------------------------------------------------------------------------------------------------


def zeros(key: Array, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
    """An initializer that returns zeros of `shape` and `dtype` for any `key`, split by `out_sharding` over Explicit
    axes.

    >>> jax.nn.initializers.zeros(jax.random.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return jnp.zeros(shape, _dtype(dtype), out_sharding=out_sharding)


def ones(key: Array, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
    """An initializer that returns ones of `shape` and `dtype` for any `key`, split by `out_sharding` over Explicit
    axes.

    >>> jax.nn.initializers.ones(jax.random.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return jnp.ones(shape, _dtype(dtype), out_sharding=out_sharding)


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initializer that gives `value`, a scalar or an array to broadcast.

    >>> jax.nn.initializers.constant(0.5)(jax.random.key(0), (2,))
    Array([0.5, 0.5], dtype=float32)
    """
    default = dtype

    def init(key: Array, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Array:
        return jnp.full(shape, value, _dtype(dtype), out_sharding=out_sharding)

    return init


# -- distributions ---------------------------------------------------------------------------------------------


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer that gives values uniform between 0 and `scale`. `dtype` is that of the values.

    >>> jax.nn.initializers.uniform()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    default = dtype

    def init(key: Array, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Array:

        result_dtype = _dtype(dtype)
        return random.uniform(key, shape, result_dtype, out_sharding=out_sharding) * jnp.array(scale, result_dtype)

    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer that gives normal values with mean 0 and standard deviation `stddev`, by default of `dtype`
    (default float).

    >>> jax.nn.initializers.normal()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    default = dtype

    def init(key: Array, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Array:

        result_dtype = _dtype(dtype)
        return random.normal(key, shape, result_dtype, out_sharding=out_sharding) * jnp.array(stddev, result_dtype)

    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """An initializer that gives `stddev` times standard normal values between `lower` and `upper`.

    `dtype` is that of the values.

    >>> jax.nn.initializers.truncated_normal()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    default = dtype

    def init(key: Array, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Array:

        result_dtype = _dtype(dtype)
        values = random.truncated_normal(key, lower, upper, shape, result_dtype, out_sharding=out_sharding)
        return values * jnp.array(stddev, result_dtype)

    return init


# -- variance scaled to the layer's size -----------------------------------------------------------------------


def _size(shape: Sequence[int], axes: AxisOrAxes) -> int:
    if isinstance(axes, Iterable):  # a tuple, or an array, which flax passes
        return math.prod(shape[operator.index(d)] for d in axes)
    return shape[operator.index(axes)]


def _fans(
    shape: Sequence[int], in_axis: AxisOrAxes, out_axis: AxisOrAxes, batch_axis: AxisOrAxes
) -> tuple[float, float]:
    """The number of inputs of an output of the layer, and the number of outputs of an input."""
    if not isinstance(in_axis, Iterable) and in_axis == -2 and len(shape) <= 1:
        raise ValueError(
            f"weights of shape {shape} have no dim -2 for their inputs. Give them two dims, or pass in_axis."
        )
    inputs, outputs = _size(shape, in_axis), _size(shape, out_axis)
    receptive = math.prod(shape) / inputs / outputs / _size(shape, batch_axis)
    return inputs * receptive, outputs * receptive


_MODES: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda inputs, outputs: inputs,
    "fan_out": lambda inputs, outputs: outputs,
    "fan_avg": lambda inputs, outputs: (inputs + outputs) / 2,
    "fan_geo_avg": lambda inputs, outputs: (inputs * outputs) ** 0.5,
}


def variance_scaling(
    scale: Any,
    mode: str,
    distribution: str,
    in_axis: AxisOrAxes = -2,
    out_axis: AxisOrAxes = -1,
    batch_axis: AxisOrAxes = (),
    dtype: Any = None,
) -> Initializer:
    """An initializer whose values have mean 0 and variance ``scale / n``, n being a size of the layer.

    Args:
        mode: the size to divide by: 'fan_in', 'fan_out', 'fan_avg' (their mean) or 'fan_geo_avg' (their geometric
            mean).
        distribution: 'truncated_normal' (cut off at two standard deviations), 'normal' or 'uniform'.
        in_axis, out_axis, batch_axis: the weights' dims of inputs, of outputs, and of independent layers.
        dtype: the dtype of the values, the default float by default.

    The initializer raises ValueError for another mode or distribution, and for weights without these dims.

    >>> jax.nn.initializers.variance_scaling(2.0, 'fan_in', 'normal')(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    default = dtype

    def init(key: Array, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Array:
        sizes = shape_tuple(shape, "initializer shape")
        result_dtype = _dtype(dtype)
        fans = _fans(sizes, in_axis, out_axis, batch_axis)
        if mode not in _MODES:
            raise ValueError(
                f"invalid mode for variance scaling initializer: {mode!r}; expected one of {', '.join(_MODES)}."
            )
        variance = jnp.array(scale / _MODES[mode](*fans), result_dtype)
        return _sample_scaled(distribution, key, sizes, result_dtype, variance, out_sharding)

    return init


def _sample_scaled(
    distribution: str, key: Array, shape: tuple[int, ...], dtype: Any, variance: Array, out_sharding: Any
) -> Array:

    is_real = issubdtype(dtype, np.floating)
    if distribution == "normal":
        return random.normal(key, shape, dtype, out_sharding=out_sharding) * jnp.sqrt(variance)
    if distribution == "truncated_normal":
        if is_real:
            values = random.truncated_normal(key, -2, 2, shape, dtype, out_sharding=out_sharding)
            return values * (jnp.sqrt(variance) / jnp.array(_CUT_NORMAL, dtype))
        return _cut_complex_normal(key, 2, shape, dtype) * (jnp.sqrt(variance) / jnp.array(_CUT_COMPLEX_NORMAL, dtype))
    if distribution == "uniform":
        if is_real:
            return random.uniform(key, shape, dtype, -1, out_sharding=out_sharding) * jnp.sqrt(3 * variance)
        return _complex_uniform(key, shape, dtype) * jnp.sqrt(variance)
    raise ValueError(
        f"invalid distribution for variance scaling initializer: {distribution!r}; expected 'truncated_normal', "
        "'normal' or 'uniform'."
    )


def _polar(radius: Array, key: Array, shape: tuple[int, ...], real: Any, dtype: Any) -> Array:
    """Complex values of these absolute values, with uniform angles."""

    angle = 2 * np.pi * random.uniform(key, shape, real).astype(dtype)
    return radius * jnp.exp(1j * angle)


def _complex_uniform(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:

    real = np.zeros((), dtype).real.dtype
    of_radius, of_angle = random.split(key)
    radius = jnp.sqrt(2 * random.uniform(of_radius, shape, real)).astype(to_complex(real))
    return _polar(radius, of_angle, shape, real, to_complex(real))


def _cut_complex_normal(key: Array, upper: Any, shape: tuple[int, ...], dtype: Any) -> Array:

    real = np.zeros((), dtype).real.dtype
    dtype = to_complex(real)
    of_radius, of_angle = random.split(key)
    inside = (1 - jnp.exp(jnp.array(-(upper**2), dtype))) * random.uniform(of_radius, shape, real).astype(dtype)
    return _polar(jnp.sqrt(-jnp.log(1 - inside)), of_angle, shape, real, dtype)


def glorot_uniform(
    in_axis: AxisOrAxes = -2, out_axis: AxisOrAxes = -1, batch_axis: AxisOrAxes = (), dtype: Any = None
) -> Initializer:
    """`variance_scaling` of 1 over the mean of both fans, uniform; Xavier's initializer.

    `in_axis`, `out_axis`, `batch_axis` and `dtype` as there.

    >>> jax.nn.initializers.glorot_uniform()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(
    in_axis: AxisOrAxes = -2, out_axis: AxisOrAxes = -1, batch_axis: AxisOrAxes = (), dtype: Any = None
) -> Initializer:
    """`variance_scaling` of 1 over the mean of both fans, truncated normal; Xavier's initializer.

    `in_axis`, `out_axis`, `batch_axis` and `dtype` as there.

    >>> jax.nn.initializers.glorot_normal()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(
    in_axis: AxisOrAxes = -2, out_axis: AxisOrAxes = -1, batch_axis: AxisOrAxes = (), dtype: Any = None
) -> Initializer:
    """`variance_scaling` of 1 over the number of inputs, uniform; LeCun's initializer.

    `in_axis`, `out_axis`, `batch_axis` and `dtype` as there.

    >>> jax.nn.initializers.lecun_uniform()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(
    in_axis: AxisOrAxes = -2, out_axis: AxisOrAxes = -1, batch_axis: AxisOrAxes = (), dtype: Any = None
) -> Initializer:
    """`variance_scaling` of 1 over the number of inputs, truncated normal; LeCun's initializer.

    `in_axis`, `out_axis`, `batch_axis` and `dtype` as there.

    >>> jax.nn.initializers.lecun_normal()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(
    in_axis: AxisOrAxes = -2, out_axis: AxisOrAxes = -1, batch_axis: AxisOrAxes = (), dtype: Any = None
) -> Initializer:
    """`variance_scaling` of 2 over the number of inputs, uniform; Kaiming He's initializer.

    `in_axis`, `out_axis`, `batch_axis` and `dtype` as there.

    >>> jax.nn.initializers.he_uniform()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(
    in_axis: AxisOrAxes = -2, out_axis: AxisOrAxes = -1, batch_axis: AxisOrAxes = (), dtype: Any = None
) -> Initializer:
    """`variance_scaling` of 2 over the number of inputs, truncated normal; Kaiming He's initializer.

    `in_axis`, `out_axis`, `batch_axis` and `dtype` as there.

    >>> jax.nn.initializers.he_normal()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


# -- orthogonal matrices ---------------------------------------------------------------------------------------


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer that gives `scale` times orthogonal matrices: dim `column_axis` by all others.

    Where there are more rows than columns the columns are orthonormal, else the rows. ValueError below two dims.
    `dtype` is that of the values.

    >>> jax.nn.initializers.orthogonal()(jax.random.key(0), (3, 4)).shape
    (3, 4)
    """
    default = dtype

    def init(key: Array, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Array:

        _no_out_sharding("orthogonal", out_sharding)
        sizes, result_dtype = shape_tuple(shape, "orthogonal shape"), _dtype(dtype)
        if len(sizes) < 2:
            raise ValueError(f"orthogonal initializer requires at least a 2D shape, got {sizes}.")
        if 0 in sizes:
            return jnp.zeros(sizes, result_dtype)
        columns = sizes[column_axis]
        rows = math.prod(sizes) // columns
        q = random.orthogonal(key, rows, (), result_dtype, columns)
        d = column_axis % len(sizes)
        q = jnp.moveaxis(jnp.reshape(q, (*sizes[:d], *sizes[d + 1 :], columns)), -1, d)
        return jnp.array(scale, result_dtype) * q

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer for convolutions of 1 to 3 spatial dims: `scale` times an orthogonal matrix in the middle of the
    window, else 0.

    ValueError unless the shape has 3 to 5 dims, the last two being inputs and at least as many outputs. `column_axis`
    and `dtype` as for `orthogonal`.

    >>> jax.nn.initializers.delta_orthogonal()(jax.random.key(0), (3, 4, 4)).shape
    (3, 4, 4)
    """
    default = dtype

    def init(key: Array, shape: Any, dtype: Any = default, out_sharding: Any = None) -> Array:
        _no_out_sharding("delta_orthogonal", out_sharding)
        sizes, result_dtype = shape_tuple(shape, "delta_orthogonal shape"), _dtype(dtype)
        if len(sizes) not in (3, 4, 5):
            raise ValueError(f"Delta orthogonal initializer requires a 3D, 4D or 5D shape, got {sizes}.")
        if sizes[-1] < sizes[-2]:
            raise ValueError(
                f"delta_orthogonal: `fan_in` must be less or equal than `fan_out`, got {sizes[-2]} and {sizes[-1]}."
            )
        matrix = orthogonal(scale, column_axis, result_dtype)(key, sizes[-2:])
        middle = tuple((n - 1) // 2 for n in sizes[:-2])
        around = [(at, n - 1 - at) for at, n in zip(middle, sizes[:-2], strict=True)]
        return jnp.pad(jnp.expand_dims(matrix, tuple(range(len(middle)))), [*around, (0, 0), (0, 0)])

    return init


def _no_out_sharding(name: str, out_sharding: Any) -> None:
    if out_sharding is not None:
        raise NotImplementedError(
            f"{name}: the matrix is found as a whole, so out_sharding= is not supported. Reshard the result."
        )


__dir__ = _listing(__name__)
