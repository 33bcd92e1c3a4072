"""Views with other shapes and strides, of every dtype.

NumPy's `as_strided` describes an array by NumPy's name of its dtype. ml_dtypes gives float8_e5m2 the name of a float of one byte,
which NumPy does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from shardwise.base.dtypes import float8_e5m2

Ndarray = np.ndarray[Any, Any]
_UNNAMED = float8_e5m2.dtype.type


def strided_view(x: Ndarray, shape: Sequence[int], strides: Sequence[int], writeable: bool = True) -> Ndarray:
    """The memory of `x`, seen with this shape and these strides in bytes."""
    if x.dtype.type is _UNNAMED:
        return as_strided(x.view(np.uint8), shape, strides, writeable=writeable).view(x.dtype)
    return as_strided(x, shape, strides, writeable=writeable)


def sliding_windows(x: Ndarray, sizes: Sequence[int], axes: Sequence[int]) -> Ndarray:
    """All windows of these `sizes` along `axes`, read-only: their positions in place of the axes, their elements in new dims at the end."""
    counts = list(x.shape)
    for size, axis in zip(sizes, axes, strict=True):
        counts[axis] -= size - 1
    return strided_view(x, (*counts, *sizes), (*x.strides, *[x.strides[a] for a in axes]), writeable=False)
