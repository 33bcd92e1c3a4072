"""Maxima and minima of NumPy blocks, with one order of zeros: -0.0 lies below 0.0. NaN beats all.

Where both operands are zero, NumPy takes the one or the other by the processor, and by the place in the array. So results that
hold zeros are looked at again; nothing else costs more than NumPy's own functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy._core.multiarray import count_nonzero  # np.count_nonzero costs five times as much on few elements

from shardwise.base.shapes import Ndarray

_Function = Callable[[Ndarray, Ndarray], Ndarray]
_greatest: Callable[..., Ndarray] = np.maximum.reduce
_least: Callable[..., Ndarray] = np.minimum.reduce
_FEW = 1024  # floats that are counted as they are; bools are counted faster


def has_signs(dtype: np.dtype[Any]) -> bool:
    """Whether zeros have signs: floats, those of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def no_zeros(x: Ndarray) -> bool:
    """Whether no element is zero."""
    return count_nonzero(x if x.size <= _FEW else np.not_equal(x, 0)) == x.size


# -- of two operands -------------------------------------------------------------------------------------------------------


def _maximum(x: Ndarray, y: Ndarray) -> Ndarray:
    out = np.maximum(x, y)
    if not y.ndim:
        return _beside_scalar(out, x, y, False)
    if not x.ndim:
        return _beside_scalar(out, y, x, False)
    if count_nonzero(out if out.size <= _FEW else np.not_equal(out, 0)) == out.size:
        return out
    bits = _bits[out.itemsize]
    return _where_equal(out, x, y, np.bitwise_and(x.view(bits), y.view(bits)))


def _minimum(x: Ndarray, y: Ndarray) -> Ndarray:
    out = np.minimum(x, y)
    if not y.ndim:
        return _beside_scalar(out, x, y, True)
    if not x.ndim:
        return _beside_scalar(out, y, x, True)
    if count_nonzero(out if out.size <= _FEW else np.not_equal(out, 0)) == out.size:
        return out
    bits = _bits[out.itemsize]
    return _where_equal(out, x, y, np.bitwise_or(x.view(bits), y.view(bits)))


def _beside_scalar(out: Ndarray, x: Ndarray, y: Ndarray, wins: bool) -> Ndarray:
    """`out`, whose zeros may have the wrong sign, of `x` and a scalar `y`. `wins`: a zero with a sign does."""
    if y:  # nowhere are both zero
        return out
    negative = math.copysign(1, y) < 0
    if not out.ndim:
        return out if x else np.copysign(out, y if negative is wins else x)
    if negative is wins:
        return np.add(out, y, out) if not wins else _where_equal(out, x, y, y)
    return _where_equal(out, x, y, x)


def _where_equal(out: Ndarray, x: Ndarray, y: Ndarray, zeros: Ndarray) -> Ndarray:
    """`out` with `zeros`, or the bits of elements, where `x` and `y` are equal."""
    np.copyto(out.view(zeros.dtype), zeros, where=np.equal(x, y))
    return out


_bits = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def function(reduction: str, dtype: np.dtype[Any]) -> _Function:
    """The function that computes the ``"max"`` or ``"min"`` of two blocks of that dtype."""
    if not has_signs(dtype):
        return np.maximum if reduction == "max" else np.minimum
    return _maximum if reduction == "max" else _minimum


def maximum(x: Ndarray, y: Ndarray) -> Ndarray:
    """The greater one of each two elements."""
    return function("max", x.dtype)(x, y)


def minimum(x: Ndarray, y: Ndarray) -> Ndarray:
    """The lesser one of each two elements."""
    return function("min", x.dtype)(x, y)


# -- of all elements along dims --------------------------------------------------------------------------------------------


def _maximum_along(x: Ndarray, axis: Any, dtype: Any = None, keepdims: bool = False) -> Ndarray:
    out = _greatest(x, axis, dtype, None, keepdims)
    if (not out.ndim and out) or count_nonzero(out) == out.size:
        return out
    # No element is above a maximum of zero, and of integers with the bits of such floats 0.0 is the greatest.
    return _signed_zeros(out, _greatest(_as_integers(x), axis, None, None, keepdims) < 0)


def _minimum_along(x: Ndarray, axis: Any, dtype: Any = None, keepdims: bool = False) -> Ndarray:
    out = _least(x, axis, dtype, None, keepdims)
    if (not out.ndim and out) or count_nonzero(out) == out.size:
        return out
    return _signed_zeros(out, _least(_as_integers(x), axis, None, None, keepdims) < 0)  # no element is below 0


def _as_integers(x: Ndarray) -> Ndarray:
    """The bits of floats as integers, which are negative where the floats have a sign."""
    return x.view(_integers[x.itemsize])


def _signed_zeros(out: Ndarray, negative: Ndarray) -> Ndarray:
    """`out` with the zeros replaced by those of the given signs."""
    if out.size == 1:
        return np.full(out.shape, -0.0 if negative else 0.0, out.dtype)
    np.copyto(out, np.where(negative, out.dtype.type(-0.0), out.dtype.type(0.0)), where=np.equal(out, 0))
    return out


_integers = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}


def reducer(reduction: str, dtype: np.dtype[Any]) -> Callable[..., Ndarray]:
    """``np.maximum.reduce`` or ``np.minimum.reduce`` for blocks of that dtype."""
    if not has_signs(dtype):
        return np.maximum.reduce if reduction == "max" else np.minimum.reduce
    return _maximum_along if reduction == "max" else _minimum_along
