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

Block = np.ndarray[Any, Any]
_Function = Callable[[Block, Block], Block]
_greatest: Callable[..., Block] = np.maximum.reduce
_least: Callable[..., Block] = np.minimum.reduce
_FEW = 1024  # floats that are counted as they are; bools are counted faster


def has_signs(dtype: np.dtype[Any]) -> bool:
    """Whether zeros have signs: floats, those of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def no_zeros(x: Block) -> bool:
    """Whether no element is zero."""
    return count_nonzero(x if x.size <= _FEW else np.not_equal(x, 0)) == x.size


# -- of two operands -------------------------------------------------------------------------------------------------------


def _maximum(x: Block, y: Block) -> Block:
    out = np.maximum(x, y)
    if count_nonzero(out if out.size <= _FEW else np.not_equal(out, 0)) == out.size:
        return out
    return _zeros_of_maximum(out, x, y)


def _minimum(x: Block, y: Block) -> Block:
    out = np.minimum(x, y)
    if count_nonzero(out if out.size <= _FEW else np.not_equal(out, 0)) == out.size:
        return out
    return _zeros_of_minimum(out, x, y)


def _zeros_of_maximum(out: Block, x: Block, y: Block) -> Block:
    if not y.ndim:
        if y:  # nowhere are both zero
            return out
        if math.copysign(1, y) > 0:
            return np.add(out, y)
    return _signed_where_equal(out, x, y, np.add(x, y))


def _zeros_of_minimum(out: Block, x: Block, y: Block) -> Block:
    if not y.ndim and y:
        return out
    return _signed_where_equal(out, x, y, np.negative(np.subtract(np.negative(x), y)))


def _signed_where_equal(out: Block, x: Block, y: Block, signs: Block) -> Block:
    if not out.ndim:
        return np.copysign(out, signs) if x == y else out
    return np.copysign(out, signs, out, where=np.equal(x, y))


def function(reduction: str, dtype: np.dtype[Any]) -> _Function:
    """What computes the ``"max"`` or ``"min"`` of two blocks of that dtype."""
    if not has_signs(dtype):
        return np.maximum if reduction == "max" else np.minimum
    return _maximum if reduction == "max" else _minimum


def maximum(x: Block, y: Block) -> Block:
    """The greater one of each two elements."""
    return function("max", x.dtype)(x, y)


def minimum(x: Block, y: Block) -> Block:
    """The lesser one of each two elements."""
    return function("min", x.dtype)(x, y)


# -- of all elements along dims --------------------------------------------------------------------------------------------


def _maximum_along(x: Block, axis: Any, dtype: Any = None, keepdims: bool = False) -> Block:
    out = _greatest(x, axis, dtype, None, keepdims)
    if (not out.ndim and out) or count_nonzero(out) == out.size:
        return out
    return _signed_zeros(out, np.logical_and.reduce(np.signbit(x), axis, keepdims=keepdims))  # no element is above 0


def _minimum_along(x: Block, axis: Any, dtype: Any = None, keepdims: bool = False) -> Block:
    out = _least(x, axis, dtype, None, keepdims)
    if (not out.ndim and out) or count_nonzero(out) == out.size:
        return out
    return _signed_zeros(out, np.logical_or.reduce(np.signbit(x), axis, keepdims=keepdims))


def _signed_zeros(out: Block, negative: Block) -> Block:
    zeros = np.where(negative, out.dtype.type(-0.0), out.dtype.type(0.0))
    return np.where(np.equal(out, 0), zeros, out)


def reducer(reduction: str, dtype: np.dtype[Any]) -> Callable[..., Block]:
    """``np.maximum.reduce`` or ``np.minimum.reduce`` for blocks of that dtype."""
    if not has_signs(dtype):
        return np.maximum.reduce if reduction == "max" else np.minimum.reduce
    return _maximum_along if reduction == "max" else _minimum_along


def maximum_along(x: Block, axis: Any, *, keepdims: bool = False) -> Block:
    """The greatest elements along dims."""
    return reducer("max", x.dtype)(x, axis, keepdims=keepdims)


def minimum_along(x: Block, axis: Any, *, keepdims: bool = False) -> Block:
    """The least elements along dims."""
    return reducer("min", x.dtype)(x, axis, keepdims=keepdims)
