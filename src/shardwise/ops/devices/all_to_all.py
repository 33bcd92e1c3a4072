"""`all_to_all`: each device sends a part to every other device. In block form, swap a leading dim with a dim of the shard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Collective, Equation, ShapedArray, Shown, SmallForm
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.batching import BatchedValues, merge_dims, move_dim, require_single_axis, split_dim
from shardwise.ops.devices.declare import define_collective, of_one_device
from shardwise.ops.devices.each import Operands, first_operands, in_groups, parts
from shardwise.ops.devices.fronts import Groups, Turn, compile_turn, merge_axes, unmerge_axes
from shardwise.ops.devices.lines import (
    Kernel,
    annotate_sends,
    back_from,
    block_bytes,
    front_of,
    gather_across,
    line_of,
    settle_extents,
    tag_of,
)
from shardwise.ops.devices.rules import moved_dim_rule
from shardwise.ops.rules.derivative import do, full_in_front, later
from shardwise.runtime.blocks import with_dim_at
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes import the_world


def _type(
    x: ShapedArray,
    *,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    split: int,
    concat: int,
    tiled: bool,
    groups: Groups | None = None,
) -> ShapedArray:
    n = len(groups[0]) if groups else math.prod(sizes)
    shape = list(x.shape)
    if tiled:
        shape[split] //= n
        shape[concat] *= n
    else:
        del shape[split]
        shape.insert(concat, n)
    return ShapedArray(shape, x.dtype, x.weak_type, vma=x.vma | set(axes), unreduced=x.unreduced, reduced=x.reduced)


def _swap_entries(front: Ndarray, lead: int, split: int, concat: int, tiled: bool) -> Ndarray:
    """All-to-all with one entry per device in the front dim: entry j of the split dim goes to device j."""
    n = front.shape[0]
    at = 1 + lead + split
    if tiled:
        shape = front.shape
        front = front.reshape(*shape[:at], n, shape[at] // n, *shape[at + 1 :])
    # now (source, lead..., destination at `at`, ...): the destination becomes the front, the source joins concat
    front = with_dim_at(front, at, 0)  # (destination, source, lead..., rest)
    to = 1 + lead + concat
    front = with_dim_at(front, 1, to)
    if tiled:
        shape = front.shape
        front = front.reshape(*shape[:to], shape[to] * shape[to + 1], *shape[to + 2 :])
    return front


def _kernel(
    env: Env,
    x: Ndarray,
    *,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    split: int,
    concat: int,
    tiled: bool,
    groups: Groups | None = None,
) -> Ndarray:
    front, n, dims = merge_axes(env, x, axes)
    lead = env.lead - len(dims)
    if groups is None:
        return unmerge_axes(env, _swap_entries(front, lead, split, concat, tiled), axes, dims)
    out: Ndarray | None = None
    for group in groups:
        part = _swap_entries(front[list(group)], lead, split, concat, tiled)
        if out is None:
            out = np.empty((n, *part.shape[1:]), x.dtype)
        out[list(group)] = part
    assert out is not None
    return unmerge_axes(env, out, axes, dims)


def _turn(env: Env, params: Params, shape: Shape) -> Turn | None:
    dims, sizes, is_tiled = [env.dim(a) for a in params["axes"]], params["sizes"], params["tiled"]
    n, lead = math.prod(sizes), env.lead
    if params.get("groups") is not None or math.prod(shape[d] for d in dims) != n:
        return None
    at, to = lead + params["split"], lead + params["concat"]
    left = (shape[at] // n,) if is_tiled else ()  # each device's part of the split dim
    parts = dict(zip(dims, range(at, at + len(sizes)), strict=True))
    after = range(at + len(sizes), len(shape) + len(sizes) - 1 + len(left))
    own = [*range(lead, at), *after]  # the dims of a shard, as they are cut
    merged_shape = [*shape[:at], *left, *shape[at + 1 :]]
    merged_shape[to:to] = [n]
    if is_tiled:
        merged_shape[to : to + 2] = [n * merged_shape[to + 1]]
    order = (*[parts.get(d, d) for d in range(lead)], *own[: to - lead], *dims, *own[to - lead :])
    return Turn((*shape[:at], *sizes, *left, *shape[at + 1 :]), order, tuple(merged_shape))


def _transpose(ct: Any, x: Any, *, split: int, concat: int, **params: Any) -> list[Any]:
    return [do.all_to_all(ct, split=concat, concat=split, **params)]


def _batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """Along the vmap's own axis: swap the mapped dim with the split dim."""
    (x,), (dim,), split, concat, is_tiled = values, dims, params["split"], params["concat"], params["tiled"]
    x = full_in_front(size, x, dim)
    if axis not in params["axes"]:
        return [do.all_to_all(x, **{**params, "split": split + 1, "concat": concat + 1})], [0]
    if params["axes"] != (axis,) and params.get("groups") is None:
        return [_one_by_one(size, axis, x, params)], [0]
    require_single_axis("all_to_all", axis, params)
    if is_tiled:
        x = split_dim(x, split + 1, size)  # (source, ..., destination, part, ...)
    x = move_dim(x, split + 1, 0)  # (destination, source, ..., rest)
    x = move_dim(x, 1, concat + 1)
    return [merge_dims(x, concat + 1) if is_tiled else x], [0]


def _one_by_one(size: int, axis: Any, x: Any, params: Params) -> Any:
    """Over several axes, one of which is the vmap's, whose dim is in front: the split dim is one dim per part of the axes.

    In each the parts change places: for the vmap's with the elements, for the others with the devices.
    """
    axes, sizes, is_tiled = params["axes"], params["sizes"], params["tiled"]
    at = axes.index(axis)
    before, after = sizes[:at], sizes[at + 1 :]
    split, concat = params["split"] + 1, params["concat"] + 1
    cut = (math.prod(before), size, math.prod(after))
    rest = (x.shape[split] // math.prod(cut),) if is_tiled else ()
    shape = (*x.shape[:split], *cut, *rest, *x.shape[split + 1 :])
    x = do.reshape(x, new_sizes=shape, out_sharding=None)
    for names, ns, dim in ((axes[:at], before, split), (axes[at + 1 :], after, split + 2)):
        if names:
            x = do.all_to_all(x, axes=names, sizes=ns, split=dim, concat=dim, tiled=False)
    x = do.transpose(x, permutation=_exchange_order(x.ndim, 0, split + 1))
    sources, others = [split, split + 1, split + 2], [d for d in range(x.ndim) if not split <= d <= split + 2]
    others[concat:concat] = sources
    x = do.transpose(x, permutation=tuple(others))
    kept_size = x.shape[concat + 3] if is_tiled else 1
    last = x.shape[concat + 4 :] if is_tiled else x.shape[concat + 3 :]
    return do.reshape(x, new_sizes=(*x.shape[:concat], math.prod(cut) * kept_size, *last), out_sharding=None)


def _exchange_order(rank: int, a: int, b: int) -> tuple[int, ...]:
    order = list(range(rank))
    order[a], order[b] = b, a
    return tuple(order)


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """Each pair of processes exchanges the parts for the other's devices."""
    axes, split, concat, is_tiled = params["axes"], params["split"], params["concat"], params["tiled"]
    line = line_of(env, axes)
    views = all(isinstance(s, slice) for s in line.slices)
    if not line.crosses or params.get("groups") is not None or not views:
        return gather_across(_kernel)(env, in_types, out_types, params)
    lead = env.lead - len(axes)
    count, m, me = len(line.ranks), len(line.mine), line.me
    others = [k for k in range(count) if k != me]
    lengths = sorted({(len(a), len(b)) for a in line.members for b in line.members})
    settle, tag = settle_extents(env, in_types[0], axes), tag_of("all_to_all", env, in_types, params)

    def run(x: Ndarray) -> Ndarray:
        front, dims = front_of(env, settle(x), axes)
        at, to = 1 + lead + split, lead + concat
        if is_tiled:
            shape = front.shape
            front = front.reshape(*shape[:at], line.n, shape[at] // line.n, *shape[at + 1 :])
        send_block = with_dim_at(front, at, 0)  # (destination, own source, loops..., rest)
        rest = send_block.shape[2:]
        out = pool.empty((m, *rest[:to], line.n, *rest[to:]), send_block.dtype)
        receive_block = with_dim_at(out, 1 + to, 1)  # (own destination, source, loops..., rest)
        sends = [(k, send_block[line.slices[k]]) for k in others]
        takes = [(k, me - (me > k), receive_block[:, line.slices[k]]) for k in others]
        receive_block[:, line.slices[me]] = send_block[line.slices[me]]
        the_world().link(line.ranks).swap(
            sends, takes, count - 1, [(*pair, *rest) for pair in lengths], send_block.itemsize, tag
        )
        if is_tiled:
            out = out.reshape(m, *rest[:to], line.n * rest[to], *rest[to + 1 :])
        return back_from(env, out, axes, dims)

    return annotate_sends(run, block_bytes(env, in_types[0], axes) * m * (line.n - m) // line.n, line.ranks)


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    is_tiled = params["tiled"]
    join = np.concatenate if is_tiled else np.stack

    def fold(xs: list[Ndarray]) -> list[Ndarray]:
        pieces_by_source = [parts(x, len(xs), params["split"], is_tiled) for x in xs]
        return [join([pieces[to] for pieces in pieces_by_source], params["concat"]) for to in range(len(xs))]

    return in_groups(first_operands(operands), params, fold)


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    axes = eqn.params["axes"]
    axis_param = {"axis_name": axes[0]} if len(axes) == 1 else {}
    return {**shown, **axis_param, "axis_index_groups": eqn.params.get("groups")}


all_to_all_op = define_collective(
    "all_to_all",
    type_rule=_type,
    kernel=_kernel,
    compile=compile_turn(_kernel, _turn),
    rule=moved_dim_rule(lambda p: (p["split"], p["concat"])),
    jvp="linear",
    transpose=_transpose,
    batch=_batch,
    rewrite=of_one_device,
    across=_across,
    collective=Collective(
        "all_to_all",
        sent=lambda nbytes, n: (n - 1) * nbytes // n,
        moves=True,
        exchange=_exchange,
        told=("split", "concat", "groups"),
        pattern="transpose",
    ),
    shown=Shown(
        renamed={"split": "split_axis", "concat": "concat_axis", "axes": "axis_name"},
        hidden=frozenset({"sizes", "groups"}),
        change=_shown_params,
    ),
    small=SmallForm(later("shardwise.runtime.small", "move_elements"), later("shardwise.runtime.small", "moves_fit")),
)
