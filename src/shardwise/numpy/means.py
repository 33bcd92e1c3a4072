"""`jax.numpy`'s means and variances: with masks, and skipping NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype, to_inexact
from shardwise.ir import Array, bind, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Axis,
    Value,
    align_ranks,
    array,
    as_array,
    astype,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast_as_asked,
    constant,
    is_complex,
    is_inexact,
    no_out,
    promote_inexact,
    promote_shapes,
    requested_dtype,
    value,
    zero_like,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.named_axes import split_names
from shardwise.numpy.nan_reductions import nansum
from shardwise.numpy.predicates import isnan, to_bool
from shardwise.numpy.reductions import WIDER, refuse_mask, sum
from shardwise.ops.elementwise import binary as two
from shardwise.ops.elementwise import unary as one
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call

_PARTS: dict[Any, np.dtype[Any]] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}


def _size(x: Array, axis: Axis) -> int:
    """How many elements lie over the axes."""
    shape = x.shape
    if axis is None:
        return math.prod(shape)
    positions, names = split_names(axis)
    here = math.prod([shape[d] for d in canonical_axes(positions, len(shape))])
    return here * lax.axis_size(names) if names else here


def _count(name: str, x: Array, axis: Axis, where: Any, dtype: Any, keepdims: bool) -> Value:
    """How many elements are reduced: a constant, or with a mask an array."""
    if where is None:
        return literal(_size(x, axis), dtype)
    mask = as_array(to_bool(value(name, where)))
    return sum(broadcast_to_shape(mask, x.shape), axis, dtype, keepdims=keepdims)  # ValueError if it is larger


@composed_function(1)
def mean(
    a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """The mean of `a` over `axis`; NaN of nothing.

    Args:
        dtype: the dtype of the computation and of the result; by default that of `a`, or the default float.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.mean(jnp.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    Array([2., 3.], dtype=float32)
    """
    no_out("mean", out)
    refuse_mask("mean", where)
    x = array("mean", a)
    result_dtype = requested_dtype("mean", dtype)
    if result_dtype is None:
        result_dtype = to_inexact(x.dtype)
    compute = WIDER.get(result_dtype, result_dtype)
    if is_inexact(compute):
        total = sum(as_array(cast_as_asked(x, compute)), axis, keepdims=keepdims, where=where)
    else:
        total = sum(x, axis, compute, keepdims=keepdims, where=where)
    if where is None and is_inexact(compute):
        result = bind(two.div_p, total, constant(total, _size(x, axis)))
    else:
        result = lax.div(total, _count("mean", x, axis, where, total.dtype, keepdims))
    return as_array(astype(result, result_dtype))


def average(a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """The mean over `axis` weighted by `weights` (of the shape of `a`, or 1-d along one axis); with `returned` also their sum.

    Args:
        keepdims: keep the reduced dims, with size 1.

    Raises:
        ValueError: `weights` fit neither the shape of `a` nor one axis.

    >>> jnp.average(jnp.array([1.0, 2.0, 4.0]), weights=jnp.array([1.0, 1.0, 2.0]))
    Array(2.75, dtype=float32)
    """
    x = array("average", a)
    if weights is None:
        result = mean(x, axis, keepdims=keepdims)
        size = _count("average", x, axis, None, result.dtype, keepdims)
        total = broadcast_to_shape(size, result.shape)
    else:
        w = array("average", weights, 1)
        x, w = map(as_array, promote_inexact(x, w))
        if w.shape != x.shape:
            if axis is None:
                raise ValueError("Axis must be specified when shapes of a and weights differ.")
            if isinstance(axis, tuple | list):
                axes = canonical_axes(axis, x.ndim)
                if w.shape != tuple(x.shape[d] for d in axes):
                    raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
                order = sorted(range(len(axes)), key=axes.__getitem__)
                w = lax.broadcast_in_dim(lax.transpose(w, order), x.shape, sorted(axes))
            else:
                d = canonical_axis(axis, x.ndim)
                if w.ndim != 1:
                    raise ValueError(f"1D weights expected when shapes of a and weights differ, got shape {w.shape}.")
                if w.shape[0] != x.shape[d]:
                    raise ValueError("Length of weights not compatible with specified axis.")
                w = lax.broadcast_in_dim(w, x.shape, (d,))
        total = sum(w, axis, keepdims=keepdims)
        result = lax.div(sum(lax.mul(x, w), axis, keepdims=keepdims), total)
    return (result, total) if returned else result


@composed_function(1)
@shown_call("axis dtype out keepdims", name="_var")
def var(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Array:
    """The variance of `a` over `axis`: mean squared distance from the mean, dividing by the count less `correction`
    (or `ddof`). `mean`: the mean, where it is known.

    Args:
        dtype: the dtype of the computation and of the result.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.var(jnp.array([1.0, 3.0]), correction=1)
    Array(2., dtype=float32)
    """
    no_out("var", out)
    return _variance("var", a, axis, dtype, ddof, keepdims, where, mean, correction)


def _variance(
    name: str, a: Any, axis: Axis, dtype: Any, ddof: Any, keepdims: bool, where: Any, center: Any, correction: Any
) -> Array:
    if correction is not None:
        if not isinstance(ddof, int) or ddof != 0:
            raise ValueError(f"{name}: ddof and correction can't be provided simultaneously.")
        ddof = correction
    refuse_mask(name, where)
    x = array(name, a)
    result_dtype = requested_dtype(name, dtype)
    if result_dtype is not None and is_complex(x.dtype) and not is_complex(result_dtype):
        raise ValueError(
            f"{name} of complex values cannot have the real dtype {result_dtype}; give a complex one or none."
        )
    base = to_inexact(x.dtype)
    if result_dtype is None:
        result_dtype, compute = _PARTS.get(base, base), base
    else:
        compute = result_dtype if is_inexact(result_dtype) else default_dtype("f")
    compute = WIDER.get(compute, compute)
    x = as_array(astype(x, compute))
    center = mean_of(x, axis, where) if center is None else astype(array(name, center), compute)
    distance = bind(two.sub_p, *promote_shapes(name, x, center))
    if where is not None:  # so that NaN that are left out do not meet the derivative of the square
        mask, distance = align_ranks(to_bool(value(name, where)), distance)  # masks broadcast by definition
        distance = where_(mask, distance, zero_like(distance))
    if is_complex(compute):
        square = lax.add(lax.square(lax.real(distance)), lax.square(lax.imag(distance)))
    else:
        square = bind(one.square_p, distance)
    real = _PARTS.get(compute, compute)
    total = sum(square, axis, real, keepdims=keepdims, where=where)
    if where is None and isinstance(ddof, int | float):
        left = _size(x, axis) - ddof
        result = bind(two.div_p, total, constant(total, left))
        if left <= 0:  # no constant: a division by nothing has no slope, either
            result = where_(lax.full_like(total, False, np.bool_), result, constant(total, np.nan))
    else:
        count = _count(name, x, axis, where, real, keepdims)
        count = lax.sub(*promote_shapes(name, count, astype(value(name, ddof), real)))
        positive = lax.gt(count, zero_like(count))
        safe = where_(positive, count, constant(count, 1))
        result = where_(positive, lax.div(total, safe), constant(total, np.nan))
    return as_array(astype(result, result_dtype))


def mean_of(x: Array, axis: Axis, where: Any) -> Array:
    """`mean` with keepdims, for use inside functions that have a parameter of that name."""
    return mean(x, axis, keepdims=True, where=where)


@composed_function(1)
@shown_call("axis dtype out keepdims", name="_std")
def std(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Array:
    """The standard deviation of `a` over `axis`: the square root of `var`.

    Args:
        dtype: the dtype of the computation and of the result.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        ddof: the number subtracted from the count.
        keepdims: keep the reduced dims, with size 1.
        where: bools that broadcast with `a`; elements where they are false are left out.
        mean: the mean, where it is known.
        correction: another name of `ddof`.

    Raises:
        ValueError: `dtype` is not of floats, or both `ddof` and `correction` are given.

    >>> jnp.std(jnp.array([1.0, 3.0]))
    Array(1., dtype=float32)
    """
    no_out("std", out)
    result_dtype = requested_dtype("std", dtype)
    if result_dtype is not None and not is_inexact(result_dtype):
        raise ValueError(f"dtype argument to std must be inexact; got {result_dtype}")
    return lax.sqrt(_variance("std", a, axis, result_dtype, ddof, keepdims, where, mean, correction))


@shown_call("axis dtype out keepdims")
def nanmean(
    a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Array:
    """The mean of `a` over `axis`, without NaNs.

    Args:
        dtype: the dtype of the computation and of the result.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.nanmean(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2., dtype=float32)
    """
    no_out("nanmean", out)
    refuse_mask("nanmean", where)
    x = array("nanmean", a)
    if not is_inexact(x.dtype):
        return mean(x, axis, dtype, keepdims=keepdims, where=where)
    result_dtype = requested_dtype("nanmean", dtype) or x.dtype
    count = sum(lax.bitwise_not(isnan(x)), axis, default_dtype("i"), keepdims=keepdims, where=where)
    total = nansum(x, axis, result_dtype, keepdims=keepdims, where=where)
    return lax.div(total, astype(count, result_dtype))


@shown_call("axis dtype out keepdims")
def nanvar(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Array:
    """The variance of `a` over `axis`, without NaNs; NaN where fewer than `ddof` + 1 elements are left.

    Args:
        dtype: the dtype of the computation and of the result.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        where: bools that broadcast with `a`; elements where they are false are left out.
        mean: the mean, where it is known.

    >>> jnp.nanvar(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    no_out("nanvar", out)
    refuse_mask("nanvar", where)
    x = array("nanvar", a)
    if not is_inexact(x.dtype):
        return var(x, axis, dtype, None, ddof, keepdims, where=where, mean=mean)
    present = lax.bitwise_not(isnan(x))
    if where is not None:
        mask, present = align_ranks(to_bool(value("nanvar", where)), present)
        present = lax.bitwise_and(mask, present)
        x = broadcast_to_shape(x, present.shape) if x.ndim == present.ndim else x
    return _variance("nanvar", x, axis, dtype, ddof, keepdims, present, mean, None)


@shown_call("axis dtype out keepdims")
def nanstd(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Array:
    """The standard deviation of `a` over `axis`, without NaNs.

    Args:
        dtype: the dtype of the computation and of the result.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        ddof: the number subtracted from the count.
        keepdims: keep the reduced dims, with size 1.
        where: bools that broadcast with `a`; elements where they are false are left out.
        mean: the mean, where it is known.

    >>> jnp.nanstd(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    refuse_mask("nanstd", where)
    return lax.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


__all__ = ["average", "mean", "nanmean", "nanstd", "nanvar", "std", "var"]
