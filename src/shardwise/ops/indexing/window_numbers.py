"""Dimension numbers of `gather` and `scatter`, and the checks that both share."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from shardwise.base.dtypes import isdtype
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import ShapedArray


class GatherScatterMode(enum.Enum):
    """The treatment of windows that are not inside the operand."""

    CLIP = 1  # starts are clamped so that the window fits
    FILL_OR_DROP = 2  # gather gives the fill value, scatter drops the window
    PROMISE_IN_BOUNDS = 3  # the caller promises that there are none; gather clips, scatter drops
    ONE_HOT = 4

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """The mode named by a user's `mode=` argument; ValueError for an unknown one."""
        if isinstance(s, GatherScatterMode):
            return s
        if s not in _MODES:
            raise ValueError(f"Unknown gather mode {s!r}; expected one of {', '.join(repr(m) for m in _MODES if m)}.")
        return _MODES[s]


_MODES: dict[str | None, GatherScatterMode] = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


def as_tuples(numbers: Any) -> None:
    """Convert the fields of dimension numbers to tuples, so that they are hashable."""
    for field in fields(numbers):
        object.__setattr__(numbers, field.name, tuple(getattr(numbers, field.name)))


@dataclass(frozen=True)
class GatherDimensionNumbers:
    """How the dims of a gather correspond.

    offset_dims                   result dims that hold the window, in the order of the window's dims
    collapsed_slice_dims          operand dims of window size 1 that the result leaves out
    start_index_map               the operand dim that each entry of an index vector addresses
    operand_batching_dims         operand dims that run in step with ...
    start_indices_batching_dims   ... these dims of the indices
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        as_tuples(self)


@dataclass(frozen=True)
class ScatterDimensionNumbers:
    """How the dims of a scatter correspond.

    update_window_dims              dims of the updates that hold the window, in the order of the window's dims
    inserted_window_dims            operand dims of window size 1 that the updates leave out
    scatter_dims_to_operand_dims    the operand dim that each entry of an index vector addresses
    operand_batching_dims           operand dims that run in step with ...
    scatter_indices_batching_dims   ... these dims of the indices
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()

    def __post_init__(self) -> None:
        as_tuples(self)


def check_dimension_numbers(op: str, numbers: Any, kind: type) -> None:
    """TypeError unless `numbers` are the dimension numbers that `op` takes."""
    if not isinstance(numbers, kind):
        raise TypeError(f"{op}: dimension_numbers must be a lax.{kind.__name__}, got {numbers!r}.")


def gather_window_dims(numbers: GatherDimensionNumbers, ndim: int) -> list[int]:
    """The operand dims of the result's window."""
    other_dims = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    return [d for d in range(ndim) if d not in other_dims]


def scatter_window_dims(numbers: ScatterDimensionNumbers, ndim: int) -> list[int]:
    """The operand dims of a window of the updates."""
    other_dims = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    return [d for d in range(ndim) if d not in other_dims]


def check_dims(op: str, name: str, dims: Sequence[int], rank: int, *, ordered: bool = True) -> None:
    """TypeError unless `dims` are distinct, in 0..rank-1 and, if `ordered`, increasing."""
    if ordered and list(dims) != sorted(dims):
        raise TypeError(f"{op}: {name} must be sorted, got {tuple(dims)}.")
    if len(set(dims)) != len(dims):
        raise TypeError(f"{op}: {name} must not repeat, got {tuple(dims)}.")
    for d in dims:
        if not 0 <= d < rank:
            raise TypeError(f"{op}: {name} {tuple(dims)} must lie in 0..{rank - 1}, got {d}.")


def check_batching(
    op: str,
    operand: ShapedArray,
    indices: ShapedArray,
    operand_dims: Sequence[int],
    indices_dims: Sequence[int],
    collapsed: Sequence[int],
    collapsed_name: str,
    mapped: Sequence[int],
    mapped_name: str,
) -> None:
    """The TypeErrors of gather and scatter about batching dims and the operand dims that indices address."""
    vector = indices.ndim - 1
    if len(mapped) != indices.shape[-1]:
        raise TypeError(
            f"{op}: {mapped_name} {tuple(mapped)} names {len(mapped)} operand dims, but the last dim of the indices "
            f"{indices.shape} holds {indices.shape[-1]} entries."
        )
    check_dims(op, mapped_name, mapped, operand.ndim, ordered=False)
    check_dims(op, collapsed_name, collapsed, operand.ndim)
    check_dims(op, "operand_batching_dims", operand_dims, operand.ndim)
    check_dims(op, "indices batching dims", indices_dims, indices.ndim, ordered=False)
    for name, dims in ((collapsed_name, collapsed), (mapped_name, mapped)):
        both = set(dims) & set(operand_dims)
        if both:
            raise TypeError(f"{op}: operand dims {sorted(both)} stand in {name} and in operand_batching_dims.")
    if vector in indices_dims:
        raise TypeError(f"{op}: dim {vector} of the indices holds index vectors and cannot be a batching dim.")
    if len(operand_dims) != len(indices_dims):
        raise TypeError(
            f"{op}: {len(operand_dims)} batching dims of the operand for {len(indices_dims)} of the indices."
        )
    for d, i in zip(operand_dims, indices_dims, strict=True):
        if operand.shape[d] != indices.shape[i]:
            raise TypeError(
                f"{op}: batching dims must agree in size, got {operand.shape[d]} (operand dim {d}) and "
                f"{indices.shape[i]} (indices dim {i})."
            )


def check_indices(op: str, indices: ShapedArray) -> None:
    """TypeError unless `indices` are integers with a dim for index vectors."""
    if not isdtype(indices.dtype, "integral"):
        raise ValueError(f"{op}: indices must be integers, got {indices.dtype.name}.")
    if not indices.ndim:
        raise TypeError(f"{op}: the indices need a last dim that holds index vectors, got a scalar.")
