"""`all_gather`: every device receives all blocks. In block form a leading dim becomes a dim of the shard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Collective, ShapedArray, Shown, SmallForm
from shardwise.ir.axis_scope import is_checked
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.batching import BatchedValues, merge_dims, move_dim, require_single_axis, shift_position
from shardwise.ops.devices.declare import define_collective, of_one_device, shown_groups
from shardwise.ops.devices.each import Operands, first_operands, in_groups
from shardwise.ops.devices.fronts import Groups, Turn, compile_turn, fold_groups, merge_axes, unmerge_axes
from shardwise.ops.devices.lines import (
    Kernel,
    annotate_sends,
    block_bytes,
    fill_front,
    front_of,
    gather_across,
    line_of,
    settle_extents,
    tag_of,
)
from shardwise.ops.devices.rules import moved_dim_rule
from shardwise.ops.rules.derivative import do, full_in_front, later
from shardwise.runtime.blocks import with_dim_at, with_ones
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool


def _type(
    x: ShapedArray,
    *,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dim: int,
    tiled: bool,
    groups: Groups | None = None,
    invariant: bool = False,
) -> ShapedArray:
    n = len(groups[0]) if groups else math.prod(sizes)
    shape = list(x.shape)
    if tiled:
        shape[dim] *= n
    else:
        shape.insert(dim, n)
    vma = x.vma - set(axes) if invariant else x.vma | set(axes)
    return ShapedArray(shape, x.dtype, x.weak_type, vma=vma, unreduced=x.unreduced, reduced=x.reduced)


def _kernel(
    env: Env,
    x: Ndarray,
    *,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dim: int,
    tiled: bool,
    groups: Groups | None = None,
    invariant: bool = False,
) -> Ndarray:
    front, _, dims = merge_axes(env, x, axes)
    lead = env.lead - len(dims)

    def fold(part: Ndarray) -> Ndarray:
        dim_first = with_dim_at(part, 0, lead + dim)
        if not tiled:
            return dim_first
        shape = dim_first.shape
        at = lead + dim
        return dim_first.reshape(*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])

    if groups is not None:
        return unmerge_axes(env, fold_groups(front, groups, fold), axes, dims)
    return with_ones(fold(front), dims)


def _turn(env: Env, params: Params, shape: Shape) -> Turn | None:
    dims, at = [env.dim(a) for a in params["axes"]], env.lead + params["dim"]
    n = math.prod(params["sizes"])
    if params.get("groups") is not None or math.prod(shape[d] for d in dims) != n:
        return None
    merged_shape = [1 if d in dims else size for d, size in enumerate(shape)]
    merged_shape[at:at] = [n]
    if params["tiled"]:
        merged_shape[at : at + 2] = [n * shape[at]]
    order = (*[d for d in range(at) if d not in dims], *dims, *range(at, len(shape)))
    return Turn(shape, order, tuple(merged_shape))


def _transpose(ct: Any, x: Any, *, invariant: bool = False, **params: Any) -> list[Any]:
    """Sum the devices' cotangents of each part. An invariant result has a single cotangent, so each device slices its part."""
    axes = params["axes"]
    if not invariant or params.get("groups") or not all(map(is_checked, axes)):
        return [do.reduce_scatter(ct, **params)]
    own = do.all_slice(ct, axes=axes, sizes=params["sizes"], dim=params["dim"])
    return [own if params["tiled"] else do.squeeze(own, dimensions=(params["dim"],))]


def _batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """Along the vmap's own axis: the mapped dim becomes a dim of the result, which is no longer mapped."""
    (x,), (dim,), is_tiled, at = values, dims, params["tiled"], params["dim"]
    if axis not in params["axes"]:
        assert dim is not None
        if not is_tiled:  # the gathered dim may come before or after the mapped one
            front = full_in_front(size, x, dim)
            return [do.all_gather(front, **{**params, "dim": at + 1})], [0]
        return [do.all_gather(x, **{**params, "dim": shift_position(at, dim)})], [dim]
    rest = [a for a in params["axes"] if a != axis]
    x = full_in_front(size, x, dim)
    if not rest and params.get("groups") is None:
        out = move_dim(x, 0, at)
        return [merge_dims(out, at) if is_tiled else out], [None]
    if params.get("groups") is not None:
        require_single_axis("all_gather", axis, params)
    # Gather one axis at a time, minor first: each new dim is major to the previous one.
    counts = dict(zip(params["axes"], params["sizes"], strict=True))
    major_ones = params["axes"][: params["axes"].index(axis)]
    minor_ones = params["axes"][params["axes"].index(axis) + 1 :]
    for some in (minor_ones,):
        if some:
            x = do.all_gather(
                x, **{**params, "axes": some, "sizes": tuple(counts[a] for a in some), "dim": at + 1, "tiled": False}
            )
    x = move_dim(x, 0, at)
    if minor_ones:
        x = merge_dims(x, at)
    if major_ones:
        sizes = tuple(counts[a] for a in major_ones)
        x = merge_dims(
            do.all_gather(x, **{**params, "axes": major_ones, "sizes": sizes, "dim": at, "tiled": False}), at
        )
    return [merge_dims(x, at) if is_tiled else x], [None]


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """Each process receives all parts, directly at their positions in the result."""
    axes, dim, is_tiled = params["axes"], params["dim"], params["tiled"]
    line = line_of(env, axes)
    if not line.crosses or params.get("groups") is not None:
        return gather_across(_kernel)(env, in_types, out_types, params)
    at = env.lead - len(axes) + dim
    settle, tag = settle_extents(env, in_types[0], axes), tag_of("all_gather", env, in_types, params)

    def run(x: Ndarray) -> Ndarray:
        front, dims = front_of(env, settle(x), axes)
        rest = front.shape[1:]
        out = pool.empty((*rest[:at], line.n, *rest[at:]), front.dtype)
        fill_front(line, front, with_dim_at(out, at, 0), tag)
        if is_tiled:
            out = out.reshape(*rest[:at], line.n * rest[at], *rest[at + 1 :])
        return with_ones(out, dims)

    sent_bytes = block_bytes(env, in_types[0], axes) * len(line.mine) * (len(line.ranks) - 1)
    return annotate_sends(run, sent_bytes, line.ranks)


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    join = np.concatenate if params["tiled"] else np.stack
    return in_groups(first_operands(operands), params, lambda xs: [join(xs, params["dim"])] * len(xs))


all_gather_op = define_collective(
    "all_gather",
    type_rule=_type,
    kernel=_kernel,
    compile=compile_turn(_kernel, _turn),
    rule=moved_dim_rule(lambda p: (p["dim"],)),
    jvp="linear",
    transpose=_transpose,
    batch=_batch,
    rewrite=of_one_device,
    across=_across,
    collective=Collective(
        "all_gather",
        sent=lambda nbytes, n: (n - 1) * nbytes,
        moves=True,
        exchange=_exchange,
        told=("dim", "groups"),
        pattern="gather",
    ),
    shown=Shown(
        renamed={"dim": "all_gather_dimension", "axes": "axis_name"},
        hidden=frozenset({"sizes", "invariant", "groups"}),
        change=shown_groups,
    ),
    small=SmallForm(later("shardwise.runtime.small", "move_elements"), later("shardwise.runtime.small", "moves_fit")),
)
