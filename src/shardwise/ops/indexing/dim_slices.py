"""Slices, updates and rows along one dim, by `dynamic_slice` and `dynamic_update_slice`; and `index_take`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ir import Array, literal
from shardwise.ops.indexing.gather import GatherDimensionNumbers, gather_windows
from shardwise.ops.indexing.slicing import dynamic_slice, dynamic_update_slice
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.shapes.broadcast import expand_dims
from shardwise.ops.shapes.joining import concatenate
from shardwise.ops.shapes.pieces import slice_in_dim
from shardwise.ops.shapes.reshape import reshape
from shardwise.ops.shapes.transpose import squeeze

__all__ = [
    "dynamic_index_in_dim",
    "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim",
    "dynamic_update_slice_in_dim",
    "index_in_dim",
    "index_take",
]


def _axis(axis: int, ndim: int, name: str) -> int:
    index = operator.index(axis)
    if not -ndim <= index < ndim:
        raise IndexError(f"{name}: axis {axis} is out of bounds for an array of {ndim} dims.")
    return index % ndim


def _starts_at(start: Any, axis: int, ndim: int) -> list[Any]:
    if isinstance(start, (int, np.integer)) and not isinstance(start, bool):
        first = 0 if isinstance(start, int) else type(start)(0)  # of one type with `start`
        return [start if d == axis else first for d in range(ndim)]
    value = as_value(start)
    if value.shape:
        value = _as_scalar(value)
    zero = literal(0, dtype=value.dtype) if value.dtype.kind in "iu" else literal(0)
    return [value if d == axis else zero for d in range(ndim)]


def _as_scalar(value: Any) -> Any:
    if value.aval.size != 1:
        raise TypeError(f"a start index must be a scalar, got {value.aval.str_short()}.")
    return reshape(value, ())


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True
) -> Array:
    """The `slice_size` rows of `operand` from `start_index` on, along `axis`; see `dynamic_slice`.

    Args:
        allow_negative_indices: negative positions count from the end.

    >>> lax.dynamic_slice_in_dim(jnp.arange(6), 4, 3)
    Array([3, 4, 5], dtype=int32)
    """
    operand = as_array(operand)
    d = _axis(axis, operand.ndim, "dynamic_slice_in_dim")
    sizes = (*operand.shape[:d], operator.index(slice_size), *operand.shape[d + 1 :])
    return dynamic_slice(
        operand,
        _starts_at(start_index, d, operand.ndim),
        sizes,
        allow_negative_indices=_only(d, operand.ndim, allow_negative_indices),
    )


def _only(d: int, ndim: int, allowed: bool) -> tuple[bool, ...]:
    return tuple(i == d and allowed for i in range(ndim))


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True
) -> Array:
    """Row `index` of `operand` along `axis`, clamped into the dim; with `keepdims` that dim is kept with size 1.

    Args:
        allow_negative_indices: negative positions count from the end.

    >>> lax.dynamic_index_in_dim(jnp.array([10, 20, 30]), 1, keepdims=False)
    Array(20, dtype=int32)
    """
    operand = as_array(operand)
    d = _axis(axis, operand.ndim, "dynamic_index_in_dim")
    row = dynamic_slice_in_dim(operand, index, 1, d, allow_negative_indices=allow_negative_indices)
    return row if keepdims else squeeze(row, (d,))


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """`operand` with `update` written from `start_index` on along `axis`; see `dynamic_update_slice`.

    Args:
        allow_negative_indices: negative positions count from the end.

    >>> lax.dynamic_update_slice_in_dim(jnp.zeros(4), jnp.ones(2), 1, 0)
    Array([0., 1., 1., 0.], dtype=float32)
    """
    operand = as_array(operand)
    d = _axis(axis, operand.ndim, "dynamic_update_slice_in_dim")
    return dynamic_update_slice(
        operand,
        update,
        _starts_at(start_index, d, operand.ndim),
        allow_negative_indices=_only(d, operand.ndim, allow_negative_indices),
    )


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Array:
    """`operand` with row `index` along `axis` replaced by `update`, which may omit that dim.

    Args:
        allow_negative_indices: negative positions count from the end.

    Raises:
        TypeError: `update` has another rank, or a dtype that differs.

    >>> lax.dynamic_update_index_in_dim(jnp.zeros(3), 5.0, 1, 0)
    Array([0., 5., 0.], dtype=float32)
    """
    operand, update = as_array(operand), as_array(update)
    d = _axis(axis, operand.ndim, "dynamic_update_index_in_dim")
    if update.ndim != operand.ndim:
        if update.ndim + 1 != operand.ndim:
            raise TypeError(
                f"dynamic_update_index_in_dim: an update of shape {update.shape} is no row of {operand.shape}."
            )
        update = expand_dims(update, (d,))
    return dynamic_update_slice_in_dim(operand, update, index, d, allow_negative_indices=allow_negative_indices)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """Row `index` (a Python int) of `operand` along `axis`; without `keepdims` that dim is dropped. Raises IndexError
    if it is out of bounds.

    >>> lax.index_in_dim(jnp.array([10, 20, 30]), 1, keepdims=False)
    Array(20, dtype=int32)
    """
    operand = as_array(operand)
    row, d = operator.index(index), _axis(axis, operand.ndim, "index_in_dim")
    n = operand.shape[d]
    if not -n <= row < n:
        raise IndexError(f"index_in_dim: index {row} is out of bounds for dim {d} of size {n}.")
    row %= n
    out = slice_in_dim(operand, row, row + 1, axis=d)
    return out if keepdims else squeeze(out, (d,))


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Array:
    """Rows of `src` at the 1-d index arrays `idxs`, one per dim of `axes`: ``[n, rest of src]``; negative indices wrap.

    >>> lax.index_take(jnp.arange(6).reshape(3, 2), [jnp.array([2, 0])], axes=(0,))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    src = as_array(src)
    dims = tuple(_axis(a, src.ndim, "index_take") for a in axes)
    indices = concatenate([expand_dims(as_array(i), (1,)) for i in idxs], 1)
    sizes = tuple(1 if d in dims else n for d, n in enumerate(src.shape))
    offset = tuple(range(1, 1 + src.ndim - len(dims)))
    numbers = GatherDimensionNumbers(offset_dims=offset, collapsed_slice_dims=tuple(sorted(dims)), start_index_map=dims)
    return gather_windows(src, indices, numbers, sizes, wrap_negative=True)
