"""Types that annotations of all rooms name: arrays of NumPy's, shapes, other integers, axes of meshes."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

Ndarray = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Ints = tuple[int, ...]  # positions, strides, counts
Axes = tuple[str, ...]  # names of axes, major first
DimAxes = tuple[Axes, ...]  # per dim, the axes that split it


def with_entry(values: tuple[T, ...], d: int, value: T) -> tuple[T, ...]:
    """`values` with entry `d` replaced."""
    return (*values[:d], value, *values[d + 1 :])
