"""Views of our memory for users: read-only for good.

``flags.writeable`` of an ndarray can be set wherever an array below it is writable, as blocks and the pool's buffers are. So what
users are given lies on a memoryview, which does not offer what it was made from for writing.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray


def read_only(x: Ndarray) -> Ndarray:
    """`x` as an array that nobody can make writable; it keeps the memory of `x` in use."""
    dtype = x.dtype
    if dtype.isbuiltin != 2 and dtype.kind in "biufc":  # 0 where a library made the dtype anew, 2 for ml_dtypes'
        return _read_only_view(x)
    if not dtype.itemsize:  # float0: there is nothing to write
        x = x.view()
        x.flags.writeable = False
        return x
    if dtype.type is np.void and not dtype.names:  # bytes, of which a buffer tells only how many
        return _read_only_view(x).view(dtype)
    return _read_only_view(x.view(f"u{dtype.itemsize}")).view(dtype)  # others are no buffers


def _read_only_view(buffer: Any) -> Ndarray:
    return np.asarray(memoryview(buffer).toreadonly())


def is_constant(x: Any) -> bool:
    """Whether nobody can write to the memory of an ndarray: not through any array on it, nor by making one writable."""
    while isinstance(x, np.ndarray):
        if x.flags.writeable:
            return False
        x = x.base
    if isinstance(x, memoryview):
        x = x.obj if x.readonly else None
    return isinstance(x, bytes) or (isinstance(x, mmap.mmap) and memoryview(x).readonly)
