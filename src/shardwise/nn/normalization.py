"""Functions of all elements along a dim: softmax and its logarithm, log-sum-exp, standardisation, one-hot codes.

In: arrays; `axis` one or several dims, `where` a mask of the elements that count. Out: arrays. Exponentials are taken of
distances from the greatest element, so nothing overflows.
"""

from __future__ import annotations

import functools
import math
import operator
import warnings
from typing import Any

import numpy as np

import shardwise.numpy as jnp
from shardwise.base.dtypes import check_requested, default_dtype
from shardwise.ir import Array, literal
from shardwise.ir.showing import SHOWING
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Axis,
    array,
    as_array,
    astype,
    canonical_axes,
    canonical_axis,
    concrete_int,
    has_several,
    is_complex,
    is_integer,
    promote_inexact,
    value,
)
from shardwise.numpy.named_axes import split_names
from shardwise.ops.control.calls import define_call
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.shown_calls import shown_call


def _fuse(*static: str) -> Any:
    """One computation when called on arrays, the body's ops when called while tracing."""
    return functools.partial(jit, inline=True, static_argnames=static)


def _greatest(x: Array, axes: Any, where: Any) -> Array:
    """The greatest element over `axes`, which stay with size 1; the least value of the type if the mask excludes all."""
    if where is not None or SHOWING.get():
        return jnp.max(x, axes, keepdims=True, where=where, initial=-np.inf)
    if split_names(axes)[1]:
        return jnp.max(lax.stop_gradient(x), axes, keepdims=True)
    return lax.expand_dims(lax.reduce_max(astype(x, x.dtype), axes), axes)


def _axes(axis: Axis, x: Array) -> Any:
    """`axis` from the front, sorted, then names; a list is as good as a tuple."""
    positions, names = split_names(axis)
    return (*sorted(canonical_axes(positions, x.ndim)), *names)


def _hashable(axis: Any) -> Any:
    """Axes as ints and tuples, also where they are arrays or sets."""
    if has_several(axis):
        return tuple(_hashable(d) for d in axis)
    return operator.index(axis) if hasattr(axis, "__array__") else axis


# -- softmax ---------------------------------------------------------------------------------------------------


def _softmax_body(x: Array, *mask: Array, axes: tuple[int, ...]) -> Array:
    where = mask[0] if mask else None
    greatest = _greatest(x, _axes(axes, x), where)
    kept_x = x if where is None else jnp.where(where, x, -np.inf)
    powers = jnp.exp(kept_x - lax.stop_gradient(greatest))
    result = powers / jnp.sum(powers, _axes(axes, powers), keepdims=True, where=where)
    return result if where is None else jnp.where(where, result, 0)


def _softmax_jvp(primals: Any, tangents: Any, *, axes: tuple[int, ...]) -> tuple[Array, Array]:
    y = _softmax(*primals, axes=axes)
    weighted_tangent = y * tangents[0]
    where = primals[1] if len(primals) > 1 else None
    slope = weighted_tangent - y * jnp.sum(weighted_tangent, _axes(axes, weighted_tangent), keepdims=True, where=where)
    return y, slope if where is None else jnp.where(where, slope, 0)


_softmax = define_call("softmax", _softmax_body, _softmax_jvp, makes_nan=True)


def softmax(x: Any, axis: Axis = -1, where: Any = None) -> Array:
    """``exp(x) / sum(exp(x))`` over `axis`; 0 where the mask is false; these elements do not enter the sum.

    >>> jax.nn.softmax(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0.006, 0.047, 0.946], dtype=float32)
    """
    v = array("softmax", x)
    mask = () if where is None else (array("softmax", where, 2),)
    # A mask of more dims adds dims in front. The axes then count in `v` for its maximum and in the result for its sum, as in JAX.
    axes = _axes(axis, v) if not mask or mask[0].ndim <= v.ndim else _hashable(axis)
    return (_softmax_body if split_names(axes)[1] else _softmax)(v, *mask, axes=axes)


@_fuse("axis")
def _log_softmax(x: Any, axis: Any, where: Any) -> Array:
    x = array("log_softmax", x)
    greatest = lax.stop_gradient(_greatest(x, _axes(axis, x), where))
    shifted_values = (x if where is None else jnp.where(where, x, -np.inf)) - greatest
    axes = _axes(axis, shifted_values)
    result = shifted_values - jnp.log(jnp.sum(jnp.exp(shifted_values), axes, keepdims=True, where=where))
    return result if where is None else jnp.where(where, result, -np.inf)


@shown_call("axis")
def log_softmax(x: Any, axis: Axis = -1, where: Any = None) -> Array:
    """The logarithm of the `softmax` of `x` over `axis`, exact also where that underflows; -inf where the mask is
    false.

    >>> jax.nn.log_softmax(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-5.055, -3.055, -0.055], dtype=float32)
    """
    return _log_softmax(x, _hashable(axis), where)


# -- log-sum-exp -----------------------------------------------------------------------------------------------


@_fuse("axis", "keepdims", "return_sign")
def _logsumexp(a: Any, axis: Any, b: Any, keepdims: bool, return_sign: bool, where: Any) -> Any:
    v = value("logsumexp", a)
    if where is not None:
        v = jnp.where(where, v, 0)
    if b is None:
        (x,) = promote_inexact(v)
        factor = None
    else:
        x, factor = promote_inexact(v, value("logsumexp", b, 2))
        x = jnp.where(jnp.not_equal(factor, 0), x, -np.inf)
    x = as_array(x)
    axes = _axes(axis, x)
    greatest = _greatest(lax.real(x) if is_complex(x.dtype) else x, axes, where)
    greatest = lax.stop_gradient(jnp.where(lax.is_finite(greatest), greatest, literal(0, greatest.dtype)))
    powers = jnp.exp(lax.sub(x, astype(greatest, x.dtype)))
    if factor is not None:
        powers = powers * factor
    total = jnp.sum(powers, axes, keepdims=keepdims, where=where)
    sign = lax.sign(total)
    if return_sign or not is_complex(x.dtype):
        total = jnp.abs(total)
    if not keepdims:
        greatest = jnp.squeeze(greatest, split_names(axes)[0])
    result = jnp.log(total) + astype(greatest, total.dtype)
    if return_sign:
        return result, sign
    if factor is not None and not is_complex(result.dtype):
        result = jnp.where(sign < 0, literal(np.nan, result.dtype), result)
    return result


def logsumexp(
    a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """``log(sum(b * exp(a)))`` over `axis` without overflow; with `return_sign` also the sum's sign.

    Without it, a negative sum of reals gives NaN. `where` masks elements out; `keepdims` keeps the dims, with size 1.

    >>> jax.nn.logsumexp(jnp.array([1000.0, 1000.0])).round(2)
    Array(1000.69, dtype=float32)
    """
    return _logsumexp(a, _hashable(axis), b, keepdims, return_sign, where)


@_fuse("axis", "keepdims")
def _logmeanexp(x: Any, axis: Any, where: Any, keepdims: bool) -> Array:
    x = array("logmeanexp", x)
    total = _logsumexp(x, axis, None, keepdims, False, where)
    if where is None:
        return total - float(np.log(math.prod(x.shape[d] for d in _axes(axis, x))))
    ones = jnp.broadcast_to(where, np.broadcast_shapes(np.shape(where), x.shape))
    return total - jnp.log(jnp.sum(ones, axis, total.dtype, keepdims=keepdims))


@shown_call("axis keepdims")
def logmeanexp(x: Any, axis: Axis = None, where: Any = None, keepdims: bool = False) -> Array:
    """``log(mean(exp(x)))`` over `axis` without overflow. `where` masks elements out; `keepdims` keeps the dims, with
    size 1.

    >>> jax.nn.logmeanexp(jnp.zeros(3)).round(3)
    Array(0., dtype=float32)
    """
    return _logmeanexp(x, _hashable(axis), where, keepdims)


# -- standardisation -------------------------------------------------------------------------------------------


@_fuse("axis", "algorithm")
def _standardize(x: Any, axis: Any, mean: Any, variance: Any, epsilon: Any, where: Any, algorithm: str) -> Array:
    x = value("standardize", x)
    if mean is None:
        mean = jnp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "stable":
            variance = jnp.mean(jnp.square(jnp.subtract(x, mean)), axis, keepdims=True, where=where)
        else:
            variance = jnp.mean(jnp.square(x), axis, keepdims=True, where=where) - jnp.square(mean)
            variance = jnp.clip(variance, 0)
    return jnp.subtract(x, mean) * lax.rsqrt(jnp.add(variance, epsilon))


@shown_call("axis algorithm")
def standardize(
    x: Any,
    axis: Axis = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Array:
    """``(x - mean) / sqrt(variance + epsilon)``, with the mean and variance over `axis` unless given.

    algorithm: 'fast' finds both in one pass, 'stable' the variance from distances to the mean. ValueError for others.
    `where` masks elements out of both. `where` masks elements out of both.

    >>> jax.nn.normalize(jnp.array([1.0, 3.0])).round(3)
    Array([-1.,  1.], dtype=float32)
    """
    x = array("standardize", x)
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"standardize: algorithm must be 'fast' or 'stable', got {algorithm!r}.")
    return _standardize(x, _hashable(axis), mean, variance, epsilon, where, algorithm)


normalize = standardize


# -- codes -----------------------------------------------------------------------------------------------------


@shown_call("num_classes dtype axis", name="_one_hot")
def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: int | str = -1) -> Array:
    """For each integer of `x` a vector of size `num_classes` along a new dim `axis` with 1 at that position, else 0;
    all 0 if out of range.

    `axis` may name a mesh axis inside of `shard_map`: then each device has its own element of the vector.

    Raises:
        ValueError: `axis` names a mesh axis of another size than `num_classes`.

    >>> jax.nn.one_hot(jnp.array([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    classes = concrete_int(num_classes, "num_classes of one_hot")
    code = jnp.asarray(x)
    if not is_integer(code.dtype):
        warnings.warn(
            f"jax.nn.one_hot input should be integer-typed; got dtype={code.dtype}.", DeprecationWarning, stacklevel=2
        )
    result_dtype = default_dtype("f") if dtype is None else check_requested(dtype, "one_hot")
    if isinstance(axis, str):
        devices = lax.axis_size(axis)
        if classes != devices:
            raise ValueError(f"one_hot over mesh axis {axis!r} of size {devices} needs as many classes, got {classes}.")
        return as_array(astype(jnp.equal(code, lax.axis_index(axis)), result_dtype))
    d = canonical_axis(axis, code.ndim + 1)
    sizes = [1] * (code.ndim + 1)
    sizes[d] = classes
    wide = lax.expand_dims(astype(code, code.dtype), (d,))
    return as_array(astype(lax.eq(wide, lax.broadcasted_iota(code.dtype, sizes, d)), result_dtype))
