"""Integers of fewer than 8 bits: NumPy has loops for few functions of them, and some of these give bytes.

Functions compute with bytes instead, and the results are cut to their bits: sums, products and bits come out the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.element_types import int2, int4, uint2, uint4

Block = np.ndarray[Any, Any]

WIDE: dict[Any, np.dtype[Any]] = {
    np.dtype(kind): np.dtype(wide) for kind, wide in ((int2, "i1"), (int4, "i1"), (uint2, "u1"), (uint4, "u1"))
}
"""For each such dtype the one of the bytes that hold its numbers."""
MASKS = {np.dtype(kind): np.uint8(mask) for kind, mask in ((int2, 3), (int4, 15), (uint2, 3), (uint4, 15))}


def by_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of blocks, given bytes instead of small integers; results that are such bytes are cut to the bits."""

    def call(*blocks: Block) -> Any:
        small = next((b.dtype for b in blocks if b.dtype in WIDE), None)
        if small is None:
            return function(*blocks)
        out = np.asarray(function(*[b.astype(WIDE[b.dtype]) if b.dtype in WIDE else b for b in blocks]))
        return out.astype(small) if out.dtype == WIDE[small] else out

    return call


def reduced_by_bytes(reduce: Callable[..., Block]) -> Callable[..., Block]:
    """``reduce(x, dims, dtype, keepdims=...)`` of a block of small integers, in its dtype."""

    def call(x: Block, dims: Any, dtype: Any = None, keepdims: bool = False) -> Block:
        return np.asarray(reduce(x.astype(WIDE[x.dtype]), dims, keepdims=keepdims)).astype(x.dtype)

    return call


def bits_of(x: Block) -> Block:
    """The bits of small integers as bytes, zeros above."""
    return x.astype(np.int8).view(np.uint8) & MASKS[x.dtype]
