"""Reductions that skip NaN: sums, products, extrema and their positions.

In: an array, the axes to remove. Out: an array without them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.ir import Array, literal
from shardwise.numpy._promote import Axis, array, constant, is_inexact, no_out
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.predicates import isnan
from shardwise.numpy.reductions import all, argmax, argmin, max, min, prod, refuse_mask, sum
from shardwise.numpy.selection import where as chosen
from shardwise.transforms.jit.shown_calls import shown_call


@shown_call("axis out keepdims", name="_nanargmax")
def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the greatest element of `a` along `axis` (None: of the flattened array), without NaNs; -1 where
    all are NaN.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the dim, with size 1.

    >>> jnp.nanargmax(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2, dtype=int32)
    """
    return _nan_position("nanargmax", a, axis, out, keepdims, -np.inf, argmax)


@shown_call("axis out keepdims", name="_nanargmin")
def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """The index of the least element of `a` along `axis` (None: of the flattened array), without NaNs; -1 where all
    are NaN. `out` and `keepdims` as for `nanargmax`.

    >>> jnp.nanargmin(jnp.array([1.0, jnp.nan, 3.0]))
    Array(0, dtype=int32)
    """
    return _nan_position("nanargmin", a, axis, out, keepdims, np.inf, argmin)


def _nan_position(
    name: str, a: Any, axis: int | None, out: None, keepdims: bool | None, least: float, find: Any
) -> Array:
    no_out(name, out)
    x = array(name, a)
    if not is_inexact(x.dtype):
        return find(x, axis, keepdims=keepdims)
    nan_mask = isnan(x)
    position = find(where_(nan_mask, constant(x, least), x), axis, keepdims=keepdims)
    nothing = all(nan_mask, axis, keepdims=bool(keepdims))
    return where_(nothing, literal(-1, position.dtype), position)


def _without_nan(x: Array, replacement: Any) -> Array:
    return chosen(isnan(x), np.asarray(replacement, x.dtype)[()], x) if is_inexact(x.dtype) else x


@shown_call("axis dtype out keepdims")
def nansum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The sum of `a` over `axis`, with NaN as 0.

    Args:
        dtype: the dtype of the computation and of the result.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        initial: a number that is combined with the result, and the result for no elements.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.nansum(jnp.array([1.0, jnp.nan, 3.0]))
    Array(4., dtype=float32)
    """
    refuse_mask("nansum", where)
    x = _without_nan(array("nansum", a), 0)
    return sum(x, axis, dtype, out, keepdims, initial, where)


@shown_call("axis dtype out keepdims")
def nanprod(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """The product of `a` over `axis`, with NaN as 1.

    Args:
        dtype: the dtype of the computation and of the result.
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        initial: a number that is combined with the result, and the result for no elements.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.nanprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array(6., dtype=float32)
    """
    refuse_mask("nanprod", where)
    x = _without_nan(array("nanprod", a), 1)
    return prod(x, axis, dtype, out, keepdims, initial, where)


@shown_call("axis out keepdims")
def nanmax(
    a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The greatest element of `a` over `axis`, without NaNs; NaN where all are.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        initial: a lower bound of the result, and the result for no elements.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.nanmax(jnp.array([1.0, jnp.nan, 3.0]))
    Array(3., dtype=float32)
    """
    return _nan_extremum("nanmax", a, axis, out, keepdims, initial, where, -np.inf, max)


@shown_call("axis out keepdims")
def nanmin(
    a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """The least element of `a` over `axis`, without NaNs; NaN where all are.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        keepdims: keep the reduced dims, with size 1.
        initial: an upper bound of the result, and the result for no elements.
        where: bools that broadcast with `a`; elements where they are false are left out.

    >>> jnp.nanmin(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    return _nan_extremum("nanmin", a, axis, out, keepdims, initial, where, np.inf, min)


def _nan_extremum(
    name: str, a: Any, axis: Axis, out: None, keepdims: bool, initial: Any, where: Any, least: float, extremum: Any
) -> Array:
    refuse_mask(name, where)
    x = array(name, a)
    result = extremum(_without_nan(x, least), axis, out, keepdims, initial, where)
    if not is_inexact(x.dtype) or initial is not None:
        return result
    return where_(all(isnan(x), axis, keepdims=keepdims), constant(result, np.nan), result)


__all__ = ["nanargmax", "nanargmin", "nanmax", "nanmin", "nanprod", "nansum"]
