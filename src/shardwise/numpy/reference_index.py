"""Indices of references: which shapes their parts have, and how programs that are shown have them.

In: what stands in brackets behind a `Ref`. Out: shapes and types of parts, an `At` of it, checks.
"""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any

import numpy as np

from shardwise.base.dtypes import issubdtype
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.ir import Array, Literal, ProgramTracer, ShapedArray, Tracer
from shardwise.numpy.dynamic_index import Slice
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.indexing.reference_ops import At, Operand, Range
from shardwise.ops.rules.convert import as_value
from shardwise.transforms.jit.jaxpr import eval_shape


def is_static(index: Any) -> bool:
    """Whether an index consists of Python's ints and slices, and of `ds` with known starts."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        isinstance(i, (int, EllipsisType))
        or (isinstance(i, slice) and _is_plain(i))
        or (isinstance(i, Slice) and not i.is_dynamic_start)
        for i in parts
    )


def is_part(index: Any) -> bool:
    """Whether an index has no arrays with dims, nor steps from computed places, which is another form of them."""
    parts = index if isinstance(index, tuple) else (index,)
    return not any(
        isinstance(i, (list, tuple)) or getattr(i, "ndim", 0) or (isinstance(i, Slice) and i.stride > 1) for i in parts
    )


def _last(part: Slice) -> int:
    return int(part.start) + part.stride * (part.size - 1)


def _range(part: Any) -> Any:
    """A `ds` with a known start as a slice; other parts of an index as they are."""
    if not isinstance(part, Slice):
        return part
    first = int(part.start)
    if first < 0:
        raise IndexError(f"a part of {part.size} elements begins at {first}")
    return slice(first, first + part.stride * part.size, part.stride)


def _is_plain(part: slice) -> bool:
    return all(isinstance(x, (int, type(None))) for x in (part.start, part.stop, part.step))


def part_shape(shape: tuple[int, ...], index: Any) -> tuple[int, ...]:
    """The shape of the indexed part. ValueError for an index out of bounds."""
    parts = index if isinstance(index, tuple) else (index,)
    every = np.broadcast_to(False, shape)
    try:
        # NumPy checks positions, but cuts slices short.
        _ = every[tuple([_last(i) if isinstance(i, Slice) and i.size else _range(i) for i in parts])]
        return every[tuple([_range(i) for i in parts])].shape
    except IndexError as error:
        raise ValueError(f"Out of bound indexer: {error} (the Ref's shape is {shape}).") from None


def form_of(shape: tuple[int, ...], index: Any, operands: list[Any]) -> At:
    """An index with its computed parts among the operands."""
    given = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(p, EllipsisType) for p in given):
        given = (*given, ...)
    at = next(i for i, p in enumerate(given) if isinstance(p, EllipsisType))
    full_index = (*given[:at], *[slice(None)] * (len(shape) - len(given) + 1), *given[at + 1 :])

    def operand(x: Any) -> Operand:
        operands.append(as_value(x))
        return Operand(len(operands) - 1)

    def part(p: Any, size: int) -> Any:
        if isinstance(p, Slice):
            start = int(p.start) if not p.is_dynamic_start else operand(p.start)
            return Range(start, p.size, p.stride)
        if isinstance(p, slice):
            if not _is_plain(p):
                raise NotImplementedError(
                    f"a Ref is indexed by slices of known ends, got {p}; use jax.ds(start, size)."
                )
            positions = range(*p.indices(size))
            return Range(positions.start, len(positions), positions.step)
        return operator.index(p) if isinstance(p, (int, np.integer)) else operand(p)

    return At(tuple([part(p, n) for p, n in zip(full_index, shape, strict=True)]), shape)


def part_type(aval: ShapedArray, index: Any) -> ShapedArray:
    """The type of a part of an array of type `aval`."""
    if isinstance(index, EllipsisType):
        return aval.update(weak_type=False)
    if is_static(index):
        return ShapedArray(part_shape(aval.shape, index), aval.dtype, vma=aval.vma)
    part_struct = eval_shape(lambda x: x[index], ShapeDtypeStruct(aval.shape, aval.dtype))
    return ShapedArray(part_struct.shape, aval.dtype, vma=aval.vma)


def is_of_programs(index: Any) -> bool:
    """Whether a derivative or a map has no part in an index."""
    parts = index if isinstance(index, tuple) else (index,)
    starts = [p.start if isinstance(p, Slice) else p for p in parts]
    return not any(isinstance(p, Tracer) and not isinstance(p, ProgramTracer) for p in starts)


def cast_to(dtype: Any, value: Any) -> Any:
    """A value that is written to a place of this dtype: integers, and floats that are weakly typed, change their width."""
    kinds = [np.integer, np.floating] if value.aval.weak_type else [np.integer]
    if value.dtype != dtype and any(issubdtype(value.dtype, k) and issubdtype(dtype, k) for k in kinds):
        return as_value(convert(value, dtype, False))
    return value


def value_of_kind(value: Any, aval: ShapedArray, shape: tuple[int, ...]) -> Any:
    """A value that is written to a part of an array. ValueError where it has another dtype or shape."""
    if value.dtype != aval.dtype:
        raise ValueError(
            f"Invalid dtype for `swap`. Ref dtype: {aval.dtype}. Value dtype: {value.dtype}. Convert the value first."
        )
    if value.shape != shape:
        raise ValueError(
            f"Invalid shape for `swap`. Ref shape: {aval.shape}. Expected shape: {shape}. Value shape: {value.shape}."
        )
    return value if isinstance(value, Literal) else as_value(convert(value, aval.dtype, False))


def whole_index(index: Any) -> Any:
    """An index; ``...`` for the forms of it that JAX takes. Known scalars are Python's ints, bools too."""
    if index is None or (isinstance(index, tuple) and not index):
        return ...
    return tuple(map(_known_index, index)) if isinstance(index, tuple) else _known_index(index)


def _known_index(part: Any) -> Any:
    if isinstance(part, (bool, np.integer)):
        return int(part)
    if isinstance(part, (Array, np.ndarray)) and not part.ndim and part.dtype.kind in "iu":
        return part if isinstance(part, Tracer) else int(part)  # type: ignore[arg-type]
    return part
