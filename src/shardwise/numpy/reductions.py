"""Reductions: sums, products, extrema, means and their NaN-skipping variants; all take `axis`, `keepdims` and `where`.

In: an array, the axes to remove. Out: an array without them. Sums of small integers and of half floats are computed in
wider types.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import bfloat16, default_dtype, reduction_dtype
from shardwise.base.renamed import rename_function
from shardwise.ir import Array, literal
from shardwise.ir.showing import SHOWING
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Axis,
    Value,
    align_ranks,
    array,
    as_array,
    astype,
    broadcast_shapes,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast_as_asked,
    is_bool,
    no_out,
    promote_shapes,
    requested_dtype,
    value,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.named_axes import MAY_NAME, refuse_names, split_names
from shardwise.numpy.predicates import to_bool
from shardwise.ops.elementwise.casts import convert
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call

WIDER: dict[Any, np.dtype[Any]] = {
    np.dtype(np.float16): np.dtype(np.float32),
    np.dtype(bfloat16.dtype): np.dtype(np.float32),
}  # types to add up in
_SUMMED_AS_THEY_ARE = frozenset(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))

Reduce = Callable[[Any, tuple[int, ...]], Array]


def _no_mask(name: str, mask: Value) -> str:
    return f"jnp.{name}: where must be None or a boolean array; got where.dtype={mask.dtype!r}."


def refuse_mask(name: str, where: Any) -> None:
    """ValueError if `where` is no mask, unless the dialect takes it; functions made of others call it with their own name."""
    if where is None or config.dialect.functions.bad_uses_warn:
        return
    mask = value(name, where)
    if not is_bool(mask.dtype):
        raise ValueError(f"{_no_mask(name, mask)} {config.dialect.switch}")


def _apply_mask(name: str, x: Array, where: Any, neutral: Any) -> Array:
    """`x` with `neutral` where the mask is false; both broadcast to one shape.

    A mask of more dims adds dims in front. The axes to reduce stay those of `x` by number, as in JAX.
    """
    if where is None:
        return x
    refuse_mask(name, where)
    mask = value(name, where)
    if not is_bool(mask.dtype):
        warnings.warn(_no_mask(name, mask), DeprecationWarning, stacklevel=4)
    mask, x_ = align_ranks(to_bool(mask), x)
    shape = broadcast_shapes(mask.shape, x.shape)
    return broadcast_to_shape(where_(mask, x_, neutral), shape) if shape != x.shape else where_(mask, x_, neutral)


def _reduce_axes(x: Array, axes: tuple[int, ...], keepdims: bool, reduce: Reduce) -> Array:
    out = reduce(x, axes)
    return lax.expand_dims(out, axes) if keepdims else out


def _strong(x: Array) -> Array:
    return as_array(astype(x, x.dtype))


# -- sums and products -----------------------------------------------------------------------------------------


def _reduce_accumulating(
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
        here = _reduce_accumulating(
            name, a, split_names(axis)[0], dtype, out, keepdims, None, where, promote_integers, neutral, reduce, combine
        )
        total = lax.psum(here, names)
        return total if initial is None else lax.add(total, as_array(astype(_scalar(name, initial), total.dtype)))
    if isinstance(a, Array) and (dtype is out is initial is where is None) and a.aval.dtype in _SUMMED_AS_THEY_ARE:
        result = _reduce_axes(a, canonical_axes(axis, a.aval.ndim), keepdims, reduce)  # the everyday case
        return _strong(result) if a.aval.weak_type else result
    no_out(name, out)
    result_dtype = requested_dtype(name, dtype)
    x = array(name, a)
    axes = canonical_axes(axis, x.ndim)
    if result_dtype is None:
        result_dtype = reduction_dtype(x.dtype) if promote_integers or is_bool(x.dtype) else x.dtype
    compute = WIDER.get(result_dtype, result_dtype)
    x = as_array(cast_as_asked(x, compute))
    x = _apply_mask(name, x, where, literal(neutral, compute))
    if is_bool(compute):
        reduce, combine = (lax.reduce_and, lax.bitwise_and) if neutral else (lax.reduce_or, lax.bitwise_or)
    result = _reduce_axes(x, axes, keepdims, reduce)
    if initial is not None:
        result = combine(*promote_shapes(name, result, astype(_scalar(name, initial), compute)))
    return as_array(astype(result, result_dtype))


def _scalar(name: str, x: Any) -> Value:
    v = value(name, x)
    if v.ndim:
        raise ValueError(f"{name}: initial value must be a scalar. Got array of shape {v.shape}")
    return v


@composed_function(1)
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
    """The sum of `a` over `axis`. Bools and small integers are added as int32 (or uint32).

    Args:
        dtype: the dtype of the computation and of the result.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        initial: a number that is combined with the result, and the result for no elements.
        where: bools that broadcast with `a`; elements where they are false are left out.
        promote_integers: False keeps the dtype of bools and small integers.

    >>> jnp.sum(jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], dtype=int32)
    >>> jnp.sum(jnp.array([[1, 2], [3, 4]]), where=jnp.array([True, False]))
    Array(4, dtype=int32)
    """
    return _reduce_accumulating(
        "sum", a, axis, dtype, out, keepdims, initial, where, promote_integers, 0, lax.reduce_sum, lax.add
    )


@composed_function(1)
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
    """The product of `a` over `axis`. Bools and small integers are multiplied as int32 (or uint32). `dtype`, `out`,
    `keepdims`, `initial`, `where` and `promote_integers` as for `sum`.

    >>> jnp.prod(jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([3, 8], dtype=int32)
    """
    return _reduce_accumulating(
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
    refuse_mask(name, where)
    if where is not None and initial is None:
        raise ValueError(
            f"reduction operation {name} does not have an identity, so to use a where mask one has to specify 'initial'"
        )
    axes = canonical_axes(axis, x.ndim)
    x = _strong(x)
    if initial is None:
        if 0 in [x.shape[d] for d in axes]:
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        return _reduce_axes(x, axes, keepdims, reduce)
    start = astype(_scalar(name, initial), x.dtype)
    x = _apply_mask(name, x, where, start)
    result = combine(start, reduce(x, axes))
    return lax.expand_dims(result, axes) if keepdims else result


@composed_function(1)
def max(
    a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The greatest element of `a` over `axis`, NaN if one is. ValueError for none without `initial`, and `where`
    without it.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        initial: a lower bound of the result, and the result for no elements.
        where: bools that broadcast with `a`; elements where they are false are left out. Needs `initial`.

    >>> jnp.max(jnp.array([[1, 5], [7, 0]]), axis=1)
    Array([5, 7], dtype=int32)
    """
    return _extremum("max", a, axis, out, keepdims, initial, where, lax.reduce_max, lax.max)


@composed_function(1)
def min(
    a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The least element of `a` over `axis`, NaN if one is. ValueError for none without `initial`, and `where` without
    it.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        initial: an upper bound of the result, and the result for no elements.
        where: bools that broadcast with `a`; elements where they are false are left out. Needs `initial`.

    >>> jnp.min(jnp.array([[1, 5], [7, 0]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    return _extremum("min", a, axis, out, keepdims, initial, where, lax.reduce_min, lax.min)


amax, amin = rename_function(max, "amax"), rename_function(min, "amin")


@shown_call("axis out keepdims", name="_ptp")
def ptp(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
    """The distance from the least to the greatest element of `a` over `axis`. `out` and `keepdims` as for `sum`.

    >>> jnp.ptp(jnp.array([3, 9, 5]))
    Array(6, dtype=int32)
    """
    no_out("ptp", out)
    x = array("ptp", a)
    return lax.sub(max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


@composed_function(1)
def all(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """Whether all elements of `a` over `axis` are true (not 0). A bool array without the reduced dims.

    Args:
        axis: a dim or several; None means all.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.all(jnp.array([[True, False], [True, True]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    return _truth("all", a, axis, out, keepdims, where, True, lax.reduce_and)


@composed_function(1)
def any(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """Whether some element of `a` over `axis` is true (not 0). A bool array without the reduced dims.

    Args:
        axis: a dim or several; None means all.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.any(jnp.array([[True, False], [False, False]]), axis=1)
    Array([ True, False], dtype=bool)
    """
    return _truth("any", a, axis, out, keepdims, where, False, lax.reduce_or)


def _truth(
    name: str, a: Any, axis: Axis, out: None, keepdims: bool, where: Any, neutral: bool, reduce: Reduce
) -> Array:
    no_out(name, out)
    refuse_names(name, axis)
    v = value(name, a)
    # JAX's programs convert here, where others compare with zero.
    x = _strong(
        as_array(convert(v, np.dtype(np.bool_), False) if SHOWING.get() and not is_bool(v.dtype) else to_bool(v))
    )
    axes = canonical_axes(axis, x.ndim)
    return _reduce_axes(_apply_mask(name, x, where, literal(np.bool_(neutral))), axes, keepdims, reduce)


@shown_call("axis keepdims")
def count_nonzero(a: Any, axis: Axis = None, keepdims: bool = False) -> Array:
    """The number of elements of `a` over `axis` that are not 0. `keepdims` as for `sum`.

    >>> jnp.count_nonzero(jnp.array([[0, 7], [8, 9]]), axis=0)
    Array([1, 2], dtype=int32)
    """
    return sum(to_bool(value("count_nonzero", a)), axis, default_dtype("i"), keepdims=keepdims)


def reduce_bits(name: str, reduce: Reduce, combine: Callable[[Any, Any], Value], neutral: int) -> Callable[..., Array]:
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
        x = as_array(astype(x, requested_dtype(name, dtype) or x.dtype))
        axes = canonical_axes(axis, x.ndim)
        x = _apply_mask(name, x, where, astype(literal(np.int32(neutral)), x.dtype))
        result = _reduce_axes(x, axes, keepdims, reduce)
        if initial is None:
            return result
        return as_array(combine(*promote_shapes(name, result, astype(_scalar(name, initial), x.dtype))))

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


@composed_function(1)
def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the greatest element of `a` along `axis` (None: of the flattened array); the first of several, or
    of NaNs.

    Integers of the default dtype.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the dim, with size 1.

    >>> jnp.argmax(jnp.array([[1, 5, 5], [7, 0, 2]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    return _position("argmax", a, axis, out, keepdims, lax.argmax)


@composed_function(1)
def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the least element of `a` along `axis` (None: of the flattened array); the first of several, or of
    NaNs.

    Integers of the default dtype.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the dim, with size 1.

    >>> jnp.argmin(jnp.array([[1, 5, 5], [7, 0, 2]]), axis=1)
    Array([0, 1], dtype=int32)
    """
    return _position("argmin", a, axis, out, keepdims, lax.argmin)


__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "max", "min", "prod", "ptp", "sum", 
]  # fmt: skip
