"""Arrays without data: every element is the same eight zero bytes, so that any shape takes no memory.

A view, slice, transpose or reshape of one is one, too. `is_hollow` tells them from arrays of zeros that somebody wrote.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray

_ZEROS = np.frombuffer(bytes(64), np.uint8)  # on `bytes`: nobody can ever write to it
_ADDRESS = _ZEROS.__array_interface__["data"][0]
_made = False  # whether there is any; looking for the address of an array takes a microsecond


def hollow(shape: tuple[int, ...], dtype: Any) -> Ndarray:
    """An ndarray of zeros of any size, in no memory."""
    global _made
    _made = True
    return np.ndarray(shape, dtype, _ZEROS, strides=(0,) * len(shape))  # type: ignore[arg-type]


def is_hollow(x: Ndarray) -> bool:
    """Whether `x` has no data of its own."""
    return _made and x.__array_interface__["data"][0] == _ADDRESS
