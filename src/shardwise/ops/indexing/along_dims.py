"""Elements at positions along one dim, with all other dims aligned: a gather, and the params for it."""

from __future__ import annotations

from typing import Any

from shardwise.ir import ShapedArray
from shardwise.ops.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather_params
from shardwise.ops.rules.derivative import do, full_cotangent


def take_along(x: Any, places: Any, dim: int, *, unique: bool = False) -> Any:
    """The elements of `x` at these positions along `dim`; all other dims are aligned. `unique`: no position repeats in a row."""
    if 0 in (*x.shape, *places.shape):
        return full_cotangent(x.aval.update(shape=places.shape))
    return do.gather(x, do.broadcast_in_dim(places, **as_indices(places.aval)), **along_params(x.ndim, dim, unique))


def as_indices(places: ShapedArray) -> dict[str, Any]:
    """The params of the broadcast that turns `places` into the indices of a gather."""
    return {"shape": (*places.shape, 1), "broadcast_dimensions": tuple(range(places.ndim)), "out_sharding": None}


def along_params(ndim: int, dim: int, unique: bool = False) -> dict[str, Any]:
    """The params of the gather."""
    others = tuple(d for d in range(ndim) if d != dim)
    numbers = GatherDimensionNumbers((), (dim,), (dim,), others, others)
    return gather_params(numbers, (1,) * ndim, GatherScatterMode.PROMISE_IN_BOUNDS, unique_indices=unique)
