"""`vmap` of collectives: over other axes the mapped dim just comes along; over the vmap's own axis it is summed, moved or read.

Each rule is an op's `batch`: ``(size, axis_name, values, dims, params) -> (outs, dims)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.ir import ShapedArray, literal
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.op import Params
from shardwise.ops.casts import strong
from shardwise.ops.derivative import do, full_in_front, repeated_sharding
from shardwise.ops.out_sharding import in_context

Batched = tuple[list[Any], list[int | None]]
_REDUCE = {"sum": "reduce_sum", "max": "reduce_max", "min": "reduce_min", "prod": "reduce_prod", "and": "reduce_and",
           "or": "reduce_or", "xor": "reduce_xor"}  # fmt: skip


def _moved(x: Any, source: int, target: int) -> Any:
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    return x if order == list(range(x.ndim)) else do.transpose(x, permutation=tuple(order))


def _merged(x: Any, dim: int) -> Any:
    """Dims `dim` and `dim` + 1 as one."""
    return do.reshape(
        x, new_sizes=(*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :]), out_sharding=None
    )


def _unmerged(x: Any, dim: int, n: int) -> Any:
    """Dim `dim` as two, the first of size n."""
    return do.reshape(x, new_sizes=(*x.shape[:dim], n, x.shape[dim] // n, *x.shape[dim + 1 :]), out_sharding=None)


def _alone(name: str, axis: Any, params: Params) -> None:
    """Rules that mix devices with the elements of a vmap exist for one axis at a time."""
    if params["axes"] != (axis,):
        raise NotImplementedError(
            f"{name} over {params['axes']}, of which {axis!r} is a vmap axis: call it once per axis, the last one first."
        )
    if params.get("groups") is not None:
        raise NotImplementedError(
            f"{name} with axis_index_groups over the vmap axis {axis!r}; reshape the mapped dim instead."
        )


def pointwise(name: str) -> Callable[..., Batched]:
    """The rule of an op that changes no dims; along the vmap's own axis it does nothing."""

    def batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Batched:
        axes = tuple(a for a in params["axes"] if a != axis)
        out = getattr(do, name)(*values, **{**params, "axes": axes}) if axes else values[0]
        return [out], [dims[0]]

    return batch


def all_reduce(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Batched:
    """Over the mapped dim a reduction."""
    ((x,), (dim,)), kind, axes = (values, dims), params["kind"], params["axes"]
    if axis not in axes:
        return [do.all_reduce(x, **params)], [dim]
    if params.get("groups") is not None:
        return _grouped_reduce(size, axis, x, dim, params)
    rest = tuple(a for a in axes if a != axis)
    if dim is not None:
        x = strong(getattr(do, _REDUCE[kind])(x, axes=(dim,)))
    elif kind == "sum":
        x = do.mul(x, literal(size, x.dtype, weak_type=True))
    elif kind not in ("max", "min", "and", "or"):
        x = getattr(do, _REDUCE[kind])(full_in_front(size, x, None), axes=(0,))
    return [do.all_reduce(x, axes=rest, kind=kind, groups=None) if rest else x], [None]


def _grouped_reduce(size: int, axis: Any, x: Any, dim: int | None, params: Params) -> Batched:
    if params["axes"] != (axis,):
        _alone("all_reduce", axis, params)
    rows = do.split(full_in_front(size, x, dim), sizes=(1,) * size, axis=0)
    out: list[Any] = [None] * size
    for group in params["groups"]:
        joined = do.concatenate(*[rows[i] for i in group], dimension=0)
        total = getattr(do, _REDUCE[params["kind"]])(joined, axes=(0,))
        for i in group:
            out[i] = full_in_front(1, total, None)
    return [do.concatenate(*out, dimension=0)], [0]


def _shifted(position: int, dim: int) -> int:
    """Where a dim of the value is, now that the mapped one stands at `dim`."""
    return position + (position >= dim)


def all_gather(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Batched:
    """Over the mapped dim: that dim, as one of the result, which is the same for all."""
    (x,), (dim,), tiled, at = values, dims, params["tiled"], params["dim"]
    if axis not in params["axes"]:
        assert dim is not None
        if not tiled:  # the result has the gathered dim before or behind the mapped one
            front = full_in_front(size, x, dim)
            return [do.all_gather(front, **{**params, "dim": at + 1})], [0]
        return [do.all_gather(x, **{**params, "dim": _shifted(at, dim)})], [dim]
    rest = [a for a in params["axes"] if a != axis]
    x = full_in_front(size, x, dim)
    if not rest and params.get("groups") is None:
        out = _moved(x, 0, at)
        return [_merged(out, at) if tiled else out], [None]
    if params.get("groups") is not None:
        _alone("all_gather", axis, params)
    # One axis after the other, the minor one first; each dim that comes in is major to the one before.
    counts = dict(zip(params["axes"], params["sizes"], strict=True))
    major_ones = params["axes"][: params["axes"].index(axis)]
    minor_ones = params["axes"][params["axes"].index(axis) + 1 :]
    for some in (minor_ones,):
        if some:
            x = do.all_gather(
                x, **{**params, "axes": some, "sizes": tuple(counts[a] for a in some), "dim": at + 1, "tiled": False}
            )
    x = _moved(x, 0, at)
    if minor_ones:
        x = _merged(x, at)
    if major_ones:
        sizes = tuple(counts[a] for a in major_ones)
        x = _merged(do.all_gather(x, **{**params, "axes": major_ones, "sizes": sizes, "dim": at, "tiled": False}), at)
    return [_merged(x, at) if tiled else x], [None]


def reduce_scatter(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Batched:
    """Over the mapped dim: the sum over it, of which a dim becomes the mapped one."""
    (x,), (dim,), at = values, dims, params["dim"]
    if axis not in params["axes"]:
        front = full_in_front(size, x, dim)
        return [do.reduce_scatter(front, **{**params, "dim": at + 1})], [0]
    _alone("psum_scatter", axis, params)
    total = getattr(do, _REDUCE[params.get("kind", "sum")])(full_in_front(size, x, dim), axes=(0,))
    return [_unmerged(total, at, size) if params["tiled"] else total], [at]


def all_to_all(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Batched:
    """Over the mapped dim: it changes places with the dim that is split."""
    (x,), (dim,), split, concat, tiled = values, dims, params["split"], params["concat"], params["tiled"]
    x = full_in_front(size, x, dim)
    if axis not in params["axes"]:
        return [do.all_to_all(x, **{**params, "split": split + 1, "concat": concat + 1})], [0]
    _alone("all_to_all", axis, params)
    if tiled:
        x = _unmerged(x, split + 1, size)  # (source, ..., destination, part, ...)
    x = _moved(x, split + 1, 0)  # (destination, source, ..., rest)
    x = _moved(x, 1, concat + 1)
    return [_merged(x, concat + 1) if tiled else x], [0]


def ppermute(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Batched:
    """Over the mapped dim: its rows in another order, zeros where nothing arrives."""
    (x,), (dim,) = values, dims
    if axis not in params["axes"]:
        return [do.ppermute(x, **params)], [dim]
    _alone("ppermute", axis, params)
    x = full_in_front(size, x, dim)
    source_of = {dst: src for src, dst in params["perm"]}
    pieces = []
    # Runs of rows that stay neighbours move together.
    offset = lambda i: source_of[i] - i if i in source_of else None  # noqa: E731
    for step, run in itertools.groupby(range(size), key=offset):
        rows = list(run)
        if step is None:
            zero = literal(np.zeros((), x.dtype)[()], x.dtype)
            pieces.append(
                do.broadcast_in_dim(zero, shape=(len(rows), *x.shape[1:]), broadcast_dimensions=(), out_sharding=None)
            )
        else:
            starts, limits = (rows[0] + step, *[0] * (x.ndim - 1)), (rows[-1] + step + 1, *x.shape[1:])
            pieces.append(do.slice(x, start_indices=starts, limit_indices=limits, strides=None))
    return [pieces[0] if len(pieces) == 1 else do.concatenate(*pieces, dimension=0)], [0]


def axis_index(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Batched:
    """Over the mapped dim: counting along it."""
    axes = params["axes"]
    counted = np.dtype(np.int32)
    split = repeated_sharding(
        size, in_context(ShapedArray((), counted)), SPMD_AXES.get()
    )  # as what it is compared with
    own = do.iota(dtype=counted, shape=(size,), dimension=0, out_sharding=split)
    if axes == (axis,):
        return [own], [0]
    from shardwise.ir.axis_scope import AXIS_ENV

    counts = dict(AXIS_ENV.get())
    at = axes.index(axis)
    major, minor = axes[:at], axes[at + 1 :]
    if major:
        own = do.add(do.mul(do.axis_index(axes=major), size), own)
    if minor:
        own = do.add(do.mul(own, math.prod(counts[a] for a in minor)), do.axis_index(axes=minor))
    return [own], [0]


def all_slice(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Batched:
    """Over the mapped dim: each element keeps its own part."""
    (x,), (dim,), at = values, dims, params["dim"]
    x = full_in_front(size, x, dim)
    if axis not in params["axes"]:
        return [do.all_slice(x, **{**params, "dim": at + 1})], [0]
    _alone("all_slice", axis, params)
    if dim is None:
        return [_unmerged(values[0], at, size)], [at]
    split = _unmerged(x, at + 1, size)  # element i of the mapped dim keeps part i
    index = do.iota(dtype=np.dtype(np.int32), shape=(size, size), dimension=0, out_sharding=None)
    other = do.iota(dtype=np.dtype(np.int32), shape=(size, size), dimension=1, out_sharding=None)
    own = do.convert_element_type(do.eq(index, other), new_dtype=x.dtype, weak_type=False)
    own = do.broadcast_in_dim(own, shape=split.shape, broadcast_dimensions=(0, at + 1), out_sharding=None)
    return [do.reduce_sum(do.mul(split, own), axes=(at + 1,))], [0]
