"""Elements at places along one dim, all other dims in step: a gather, and what it takes to say so."""

from __future__ import annotations

from typing import Any

from shardwise.ir import ShapedArray
from shardwise.ops.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather_params
from shardwise.ops.rules.derivative import do, filled


def take_along(x: Any, places: Any, dim: int, *, unique: bool = False) -> Any:
    """The elements of `x` at these places along `dim`; all other dims run in step. `unique`: no place occurs twice in a row."""
    if 0 in (*x.shape, *places.shape):
        return filled(x.aval.update(shape=places.shape))
    return do.gather(x, do.broadcast_in_dim(places, **as_indices(places.aval)), **along_params(x.ndim, dim, unique))


def as_indices(places: ShapedArray) -> dict[str, Any]:
    """The params of the broadcast that makes the indices of a gather of places."""
    return {"shape": (*places.shape, 1), "broadcast_dimensions": tuple(range(places.ndim)), "out_sharding": None}


def along_params(ndim: int, dim: int, unique: bool = False) -> dict[str, Any]:
    """The params of the gather."""
    others = tuple(d for d in range(ndim) if d != dim)
    numbers = GatherDimensionNumbers((), (dim,), (dim,), others, others)
    return gather_params(numbers, (1,) * ndim, GatherScatterMode.PROMISE_IN_BOUNDS, unique_indices=unique)
