"""Integers of fewer than 8 bits, for which NumPy has hardly any loops: they are computed as bytes, and cut to their bits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import isdtype, itemsize_bits
from shardwise.base.shapes import Ndarray


@functools.cache
def is_below_byte(dtype: Any) -> bool:
    """Whether `dtype` is an integer of fewer bits than a byte."""
    return isdtype(dtype, "integral") and itemsize_bits(dtype) < 8


def in_bytes(x: Ndarray) -> Ndarray:
    """Integers below a byte as int8 or uint8."""
    if not is_below_byte(x.dtype):
        return x
    return x.astype(np.int8 if isdtype(x.dtype, "signed integer") else np.uint8)


def by_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of integers below a byte: computed in int8 or uint8, and cut to their bits."""

    def wide(*blocks: Ndarray) -> Ndarray:
        out = np.asarray(function(*map(in_bytes, blocks)))
        return out if out.dtype.kind == "b" else out.astype(next(b.dtype for b in blocks if is_below_byte(b.dtype)))

    return wide


def reduced_by_bytes(reduce: Callable[..., Ndarray]) -> Callable[..., Ndarray]:
    """``reduce(x, dims, dtype, keepdims=...)`` of a block of integers below a byte, in its dtype."""

    def wide(x: Ndarray, dims: Any, dtype: Any = None, keepdims: bool = False) -> Ndarray:
        return np.asarray(reduce(in_bytes(x), dims, keepdims=keepdims)).astype(x.dtype)

    return wide
