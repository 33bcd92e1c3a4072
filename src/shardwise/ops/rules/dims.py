"""User-given shapes and dims, ints or sequences, checked and normalised to tuples of ints."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from typing import Any

from shardwise.base.errors import about
from shardwise.ir import Tracer


def shape_tuple(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """`shape` (an int or a sequence of ints) as a tuple. TypeError for floats, traced values and negative sizes."""
    if shape.__class__ is tuple and all([n.__class__ is int for n in shape]):
        sizes = shape
    else:
        try:
            if isinstance(shape, (Mapping, Set, bytes, bytearray)):  # no order, or characters whose codes are ints
                raise TypeError("no sequence of sizes")
            items = (shape,) if not hasattr(shape, "__iter__") or getattr(shape, "ndim", 1) == 0 else tuple(shape)
            sizes = tuple(operator.index(n) for n in items)
        except TypeError as error:
            is_traced = any(isinstance(n, Tracer) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
            raise about(
                "traced-value" if is_traced else "shapes",
                TypeError(
                    f"{name}: Shapes must be 1D sequences of concrete values of integer type, got {shape!r}. A traced value "
                    "cannot set a shape: mark the argument static."
                ),
            ) from error
    if sizes and min(sizes) < 0:
        raise TypeError(f"{name} must have every element be nonnegative, got {sizes} as sizes of dims.")
    return sizes


def int_tuple(values: Any, name: str) -> tuple[int, ...]:
    """A sequence of ints as a tuple. TypeError for anything else."""
    if values.__class__ is tuple and all([v.__class__ is int for v in values]):
        return values
    try:
        return tuple(operator.index(v) for v in values)
    except TypeError as error:
        raise TypeError(f"{name} takes a sequence of ints, got {values!r}.") from error


def dim_index(dim: Any, ndim: int, name: str) -> int:
    """`dim`, which may count from the end, as a position below `ndim`. ValueError if it is out of range."""
    d = operator.index(dim)
    if not -ndim <= d < ndim:
        raise ValueError(f"{name}: axis {d} is out of bounds for array of dimension {ndim}")
    return d % ndim


def dim_indices(dims: Sequence[Any], ndim: int, name: str) -> tuple[int, ...]:
    """`dim_index` of each, in the order given. ValueError for duplicates."""
    indices = tuple(dim_index(d, ndim, name) for d in int_tuple(dims, name))
    if len(set(indices)) != len(indices):
        raise ValueError(f"repeated axis in {name}: dimensions are not unique: {tuple(dims)}")
    return indices
