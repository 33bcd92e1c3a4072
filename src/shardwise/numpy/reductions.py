"""Reductions: sums, products, extrema, means and their NaN-skipping variants; all take `axis`, `keepdims` and `where`.

In: an array, the axes to remove. Out: an array without them. Sums of small integers and of half floats are computed in
wider types.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import (
    bfloat16,
    default_dtype,
    reduction_dtype,
    to_inexact,
)
from shardwise.ir import Array, bind, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Axis,
    Value,
    align_ranks,
    array,
    as_array,
    asked,
    astype,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    constant,
    is_bool,
    is_complex,
    is_inexact,
    no_out,
    promote_inexact,
    promote_shapes,
    requested,
    value,
    zero_like,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.named_axes import MAY_NAME, refuse_names, split_names
from shardwise.numpy.predicates import isnan, to_bool
from shardwise.ops.elementwise import binary as two
from shardwise.ops.elementwise import unary as one
from shardwise.transforms.jit.composed import composed

_WIDER: dict[Any, np.dtype[Any]] = {
    np.dtype(np.float16): np.dtype(np.float32),
    np.dtype(bfloat16.dtype): np.dtype(np.float32),
}  # to add up in
_PARTS: dict[Any, np.dtype[Any]] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}
_SUMMED_AS_THEY_ARE = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))

Reduce = Callable[[Any, tuple[int, ...]], Array]


def _masked(name: str, x: Array, where: Any, neutral: Any) -> Array:
    """`x` with `neutral` where the mask is false; both broadcast to one shape."""
    if where is None:
        return x
    mask = value(name, where)
    if not is_bool(mask.dtype):
        message = f"jnp.{name}: where must be None or a boolean array; got where.dtype={mask.dtype!r}."
        if not config.dialect.functions.bad_uses_warn:
            raise ValueError(message)
        warnings.warn(message, DeprecationWarning, stacklevel=4)
    mask, x_ = align_ranks(to_bool(mask), x)
    shape = broadcast_shapes(mask.shape, x.shape)
    return broadcast_to_shape(where_(mask, x_, neutral), shape) if shape != x.shape else where_(mask, x_, neutral)


def _reduced(x: Array, axes: tuple[int, ...], keepdims: bool, reduce: Reduce) -> Array:
    out = reduce(x, axes)
    return lax.expand_dims(out, axes) if keepdims else out


def _strong(x: Array) -> Array:
    return as_array(astype(x, x.dtype))


# -- sums and products -----------------------------------------------------------------------------------------


def _accumulating(
    name: str,
    a: Any,
    axis: Axis,
    dtype: Any,
    out: None,
    keepdims: bool,
    initial: Any,
    where: Any,
    promote_integers: bool,
    neutral: int,
    reduce: Reduce,
    combine: Any,
) -> Array:
    if isinstance(axis, MAY_NAME) and (names := split_names(axis)[1]):
        if combine is not lax.add:
            refuse_names(name, axis)
        here = _accumulating(
            name, a, split_names(axis)[0], dtype, out, keepdims, None, where, promote_integers, neutral, reduce, combine
        )
        total = lax.psum(here, names)
        return total if initial is None else lax.add(total, as_array(astype(_scalar(name, initial), total.dtype)))
    if isinstance(a, Array) and (dtype is out is initial is where is None) and a.aval.dtype in _SUMMED_AS_THEY_ARE:
        result = _reduced(a, canonical_axes(axis, a.aval.ndim), keepdims, reduce)  # the everyday case
        return _strong(result) if a.aval.weak_type else result
    no_out(name, out)
    wanted = requested(name, dtype)
    x = array(name, a)
    axes = canonical_axes(axis, x.ndim)
    if wanted is None:
        wanted = reduction_dtype(x.dtype) if promote_integers or is_bool(x.dtype) else x.dtype
    compute = _WIDER.get(wanted, wanted)
    x = as_array(asked(x, compute))
    x = _masked(name, x, where, literal(neutral, compute))
    if is_bool(compute):
        reduce, combine = (lax.reduce_and, lax.bitwise_and) if neutral else (lax.reduce_or, lax.bitwise_or)
    result = _reduced(x, canonical_axes(axis, x.ndim) if where is not None else axes, keepdims, reduce)
    if initial is not None:
        result = combine(*promote_shapes(name, result, astype(_scalar(name, initial), compute)))
    return as_array(astype(result, wanted))


def _scalar(name: str, x: Any) -> Value:
    v = value(name, x)
    if v.ndim:
        raise ValueError(f"initial value of {name} must be a scalar. Got array of shape {v.shape}")
    return v


@composed(1)
def sum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Array:
    """The sum over `axis`. Bools and small integers are added as int32 (or uint32) unless told not to."""
    return _accumulating(
        "sum", a, axis, dtype, out, keepdims, initial, where, promote_integers, 0, lax.reduce_sum, lax.add
    )


@composed(1)
def prod(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Array:
    """The product over `axis`. Bools and small integers are multiplied as int32 (or uint32) unless told not to."""
    return _accumulating(
        "prod", a, axis, dtype, out, keepdims, initial, where, promote_integers, 1, lax.reduce_prod, lax.mul
    )


# -- extrema ---------------------------------------------------------------------------------------------------


def _extremum(
    name: str, a: Any, axis: Axis, out: None, keepdims: bool, initial: Any, where: Any, reduce: Reduce, combine: Any
) -> Array:
    no_out(name, out)
    x = array(name, a)
    if isinstance(axis, MAY_NAME) and (names := split_names(axis)[1]):
        here = _extremum(name, x, split_names(axis)[0], out, keepdims, initial, where, reduce, combine)
        return (lax.pmax if combine is lax.max else lax.pmin)(here, names)
    if where is not None and initial is None:
        raise ValueError(
            f"reduction operation {name} does not have an identity, so to use a where mask one has to specify 'initial'"
        )
    axes = canonical_axes(axis, x.ndim)
    x = _strong(x)
    if initial is None:
        if 0 in [x.shape[d] for d in axes]:
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        return _reduced(x, axes, keepdims, reduce)
    start = astype(_scalar(name, initial), x.dtype)
    x = _masked(name, x, where, start)
    result = _reduced(x, canonical_axes(axis, x.ndim), keepdims, reduce)
    return combine(result, start)


@composed(1)
def max(
    a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The greatest element over `axis`, NaN if one is. ValueError for none without `initial`, and `where` without it."""
    return _extremum("max", a, axis, out, keepdims, initial, where, lax.reduce_max, lax.max)


@composed(1)
def min(
    a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The least element over `axis`, NaN if one is. ValueError for none without `initial`, and `where` without it."""
    return _extremum("min", a, axis, out, keepdims, initial, where, lax.reduce_min, lax.min)


amax, amin = max, min


def ptp(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
    """The distance from the least to the greatest element over `axis`."""
    no_out("ptp", out)
    x = array("ptp", a)
    return lax.sub(max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


@composed(1)
def all(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """Whether all elements over `axis` are true (not 0)."""
    return _truth("all", a, axis, out, keepdims, where, True, lax.reduce_and)


@composed(1)
def any(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """Whether some element over `axis` is true (not 0)."""
    return _truth("any", a, axis, out, keepdims, where, False, lax.reduce_or)


def _truth(
    name: str, a: Any, axis: Axis, out: None, keepdims: bool, where: Any, neutral: bool, reduce: Reduce
) -> Array:
    no_out(name, out)
    refuse_names(name, axis)
    x = _strong(as_array(to_bool(value(name, a))))
    x = _masked(name, x, where, literal(np.bool_(neutral)))
    return _reduced(x, canonical_axes(axis, x.ndim), keepdims, reduce)


def count_nonzero(a: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """The number of elements over `axis` that are not 0."""
    return sum(to_bool(value("count_nonzero", a)), axis, default_dtype("i"), keepdims=keepdims)


def reduce_bits(name: str, reduce: Reduce, neutral: int) -> Callable[..., Array]:
    """A reduction over bits, for the `reduce` methods of `bitwise_and`, `bitwise_or` and `bitwise_xor`."""

    def function(
        a: Any,
        axis: Axis = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        no_out(name, out)
        x = array(name, a)
        x = as_array(astype(x, requested(name, dtype) or x.dtype))
        x = _masked(name, x, where, astype(literal(np.int32(neutral)), x.dtype))
        axes = canonical_axes(axis, x.ndim)
        if initial is not None:
            raise NotImplementedError(f"{name}.reduce: initial= is not supported. Combine the result with it.")
        return _reduced(x, axes, keepdims, reduce)

    return function


# -- positions -------------------------------------------------------------------------------------------------


def _position(name: str, a: Any, axis: int | None, out: None, keepdims: bool | None, find: Any) -> Array:
    no_out(name, out)
    x = array(name, a)
    ndim = x.ndim
    if axis is None:
        x, d = lax.reshape(x, (x.size,)), 0
    else:
        d = canonical_axis(axis, ndim)
    if x.shape[d] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    result = find(x, d, default_dtype("i"))
    if keepdims:
        result = lax.expand_dims(result, range(ndim) if axis is None else (d,))
    return result


@composed(1)
def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the greatest element along `axis` (None: of the flattened array); the first of several, or of NaNs."""
    return _position("argmax", a, axis, out, keepdims, lax.argmax)


@composed(1)
def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the least element along `axis` (None: of the flattened array); the first of several, or of NaNs."""
    return _position("argmin", a, axis, out, keepdims, lax.argmin)


def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """`argmax` that skips NaN; -1 where all are NaN."""
    return _nan_position("nanargmax", a, axis, out, keepdims, -np.inf, argmax)


def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """`argmin` that skips NaN; -1 where all are NaN."""
    return _nan_position("nanargmin", a, axis, out, keepdims, np.inf, argmin)


def _nan_position(
    name: str, a: Any, axis: int | None, out: None, keepdims: bool | None, least: float, find: Any
) -> Array:
    no_out(name, out)
    x = array(name, a)
    if not is_inexact(x.dtype):
        return find(x, axis, keepdims=keepdims)
    missing = isnan(x)
    found = find(where_(missing, constant(x, least), x), axis, keepdims=keepdims)
    nothing = all(missing, axis, keepdims=bool(keepdims))
    return where_(nothing, literal(-1, found.dtype), found)


# -- means -----------------------------------------------------------------------------------------------------


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
    return sum(broadcast_to_shape(mask, broadcast_shapes(mask.shape, x.shape)), axis, dtype, keepdims=keepdims)


@composed(1)
def mean(
    a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """The mean over `axis`; NaN of nothing."""
    no_out("mean", out)
    x = array("mean", a)
    wanted = requested("mean", dtype)
    if wanted is None:
        wanted = to_inexact(x.dtype) if is_inexact(x.dtype) else default_dtype("f")
    compute = _WIDER.get(wanted, wanted)
    if is_inexact(compute):
        total = sum(as_array(asked(x, compute)), axis, keepdims=keepdims, where=where)
    else:
        total = sum(x, axis, compute, keepdims=keepdims, where=where)
    if where is None and is_inexact(compute):
        result = bind(two.div_p, total, constant(total, _size(x, axis)))
    else:
        result = lax.div(total, _count("mean", x, axis, where, total.dtype, keepdims))
    return as_array(astype(result, wanted))


def average(a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """The mean over `axis` weighted by `weights` (of the shape of `a`, or 1-d along one axis); with `returned` also their sum."""
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


@composed(1)
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
    """The variance over `axis`: mean squared distance from the mean, dividing by the count less `correction` (or `ddof`)."""
    no_out("var", out)
    return _variance("var", a, axis, dtype, ddof, keepdims, where, mean, correction)


def _variance(
    name: str, a: Any, axis: Axis, dtype: Any, ddof: Any, keepdims: bool, where: Any, center: Any, correction: Any
) -> Array:
    if correction is not None:
        if not isinstance(ddof, int) or ddof != 0:
            raise ValueError(f"{name}: ddof and correction can't be provided simultaneously.")
        ddof = correction
    x = array(name, a)
    wanted = requested(name, dtype)
    if wanted is not None and is_complex(x.dtype) and not is_complex(wanted):
        raise ValueError(f"{name} of complex values cannot have the real dtype {wanted}; give a complex one or none.")
    base = x.dtype if is_inexact(x.dtype) else default_dtype("f")
    if wanted is None:
        wanted, compute = _PARTS.get(base, base), base
    else:
        compute = wanted if is_inexact(wanted) else default_dtype("f")
    compute = _WIDER.get(compute, compute)
    x = as_array(astype(x, compute))
    center = mean_of(x, axis, where) if center is None else astype(array(name, center), compute)
    distance = bind(two.sub_p, *promote_shapes(name, x, center))
    if where is not None:  # so that NaN that are left out do not meet the derivative of the square
        mask, distance = promote_shapes(name, to_bool(value(name, where)), distance)
        distance = where_(mask, distance, zero_like(distance))
    if is_complex(compute):
        square = lax.add(lax.square(lax.real(distance)), lax.square(lax.imag(distance)))
    else:
        square = bind(one.square_p, distance)
    real = _PARTS.get(compute, compute)
    total = sum(square, axis, real, keepdims=keepdims, where=where)
    if where is None and isinstance(ddof, int | float):
        left = _size(x, axis) - ddof
        result = bind(two.div_p, total, constant(total, left)) if left > 0 else lax.full_like(total, np.nan)
    else:
        count = _count(name, x, axis, where, real, keepdims)
        count = lax.sub(*promote_shapes(name, count, astype(value(name, ddof), real)))
        positive = lax.gt(count, zero_like(count))
        safe = where_(positive, count, constant(count, 1))
        result = where_(positive, lax.div(total, safe), constant(total, np.nan))
    return as_array(astype(result, wanted))


def mean_of(x: Array, axis: Axis, where: Any) -> Array:
    """`mean` with keepdims, for use inside functions that have a parameter of that name."""
    return mean(x, axis, keepdims=True, where=where)


@composed(1)
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
    """The standard deviation over `axis`: the square root of `var`."""
    no_out("std", out)
    wanted = requested("std", dtype)
    if wanted is not None and not is_inexact(wanted):
        raise ValueError(f"dtype argument to std must be inexact; got {wanted}")
    return lax.sqrt(_variance("std", a, axis, wanted, ddof, keepdims, where, mean, correction))


# -- skipping NaN ----------------------------------------------------------------------------------------------


def _without_nan(x: Array, replacement: Any) -> Array:
    return where_(isnan(x), constant(x, replacement), x) if is_inexact(x.dtype) else x


def nansum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """`sum` with NaN as 0."""
    x = _without_nan(array("nansum", a), 0)
    return sum(x, axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """`prod` with NaN as 1."""
    x = _without_nan(array("nanprod", a), 1)
    return prod(x, axis, dtype, out, keepdims, initial, where)


def nanmax(
    a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """`max` that skips NaN; NaN where all are."""
    return _nan_extremum("nanmax", a, axis, out, keepdims, initial, where, -np.inf, max)


def nanmin(
    a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """`min` that skips NaN; NaN where all are."""
    return _nan_extremum("nanmin", a, axis, out, keepdims, initial, where, np.inf, min)


def _nan_extremum(
    name: str, a: Any, axis: Axis, out: None, keepdims: bool, initial: Any, where: Any, least: float, extremum: Any
) -> Array:
    x = array(name, a)
    result = extremum(_without_nan(x, least), axis, out, keepdims, initial, where)
    if not is_inexact(x.dtype) or initial is not None:
        return result
    return where_(all(isnan(x), axis, keepdims=keepdims), constant(result, np.nan), result)


def nanmean(
    a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Array:
    """`mean` that skips NaN."""
    no_out("nanmean", out)
    x = array("nanmean", a)
    if not is_inexact(x.dtype):
        return mean(x, axis, dtype, keepdims=keepdims, where=where)
    wanted = requested("nanmean", dtype) or x.dtype
    count = sum(lax.bitwise_not(isnan(x)), axis, default_dtype("i"), keepdims=keepdims, where=where)
    total = nansum(x, axis, wanted, keepdims=keepdims, where=where)
    return lax.div(total, astype(count, wanted))


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
    """`var` that skips NaN; NaN where fewer than `ddof` + 1 elements are left."""
    no_out("nanvar", out)
    x = array("nanvar", a)
    if not is_inexact(x.dtype):
        return var(x, axis, dtype, None, ddof, keepdims, where=where, mean=mean)
    present = lax.bitwise_not(isnan(x))
    if where is not None:
        mask, present = align_ranks(to_bool(value("nanvar", where)), present)
        present = lax.bitwise_and(mask, present)
    return _variance("nanvar", x, axis, dtype, ddof, keepdims, present, mean, None)


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
    """`std` that skips NaN."""
    return lax.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "average", "count_nonzero", "max", "mean", "min", "nanargmax",
    "nanargmin", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "prod", "ptp", "std", "sum", "var",
]  # fmt: skip
