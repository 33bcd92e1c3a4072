"""Helpers for the `batch` rules of collectives: ``(size, axis_name, values, dims, params) -> (outs, dims)``.

A collective over other axes keeps the mapped dim; one over the vmap's own axis sums, moves or reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.ir.op import Params
from shardwise.ops.rules.derivative import do

BatchedValues = tuple[list[Any], list[int | None]]


def move_dim(x: Any, source: int, target: int) -> Any:
    """`x` with dim `source` moved to position `target`."""
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    return x if order == list(range(x.ndim)) else do.transpose(x, permutation=tuple(order))


def merge_dims(x: Any, dim: int) -> Any:
    """Merge dims `dim` and `dim` + 1."""
    return do.reshape(
        x, new_sizes=(*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :]), out_sharding=None
    )


def split_dim(x: Any, dim: int, n: int) -> Any:
    """Split dim `dim` into two, the first of size n."""
    return do.reshape(x, new_sizes=(*x.shape[:dim], n, x.shape[dim] // n, *x.shape[dim + 1 :]), out_sharding=None)


def require_single_axis(name: str, axis: Any, params: Params) -> None:
    """Refuse several axes and groups: rules that mix devices with elements of a vmap support a single axis."""
    if params["axes"] != (axis,):
        raise NotImplementedError(
            f"{name} over {params['axes']}, of which {axis!r} is a vmap axis: call it once per axis, the last one first."
        )
    if params.get("groups") is not None:
        raise NotImplementedError(
            f"{name} with axis_index_groups over the vmap axis {axis!r}; reshape the mapped dim instead."
        )


def pointwise(name: str) -> Callable[..., BatchedValues]:
    """The batch rule of an op that leaves the dims unchanged; along the vmap's own axis the op is the identity."""

    def batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
        axes = tuple(a for a in params["axes"] if a != axis)
        out = getattr(do, name)(*values, **{**params, "axes": axes}) if axes else values[0]
        return [out], [dims[0]]

    return batch


def reduce_dim(kind: str, x: Any, dim: int) -> Any:
    """The reduction of `x` over a dim by the monoid `kind`."""
    return getattr(do, f"reduce_{kind}")(x, axes=(dim,))


def shift_position(position: int, dim: int) -> int:
    """The position of a dim of the value once the mapped dim is at `dim`."""
    return position + (position >= dim)
