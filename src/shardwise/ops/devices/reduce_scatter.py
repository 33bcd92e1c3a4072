"""`reduce_scatter`: psum_scatter and its forms for other monoids. Each device keeps its part of the reduction over an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import AbsorbedReduction, Collective, ShapedArray, Shown, SmallForm
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.all_slice import all_slice
from shardwise.ops.devices.batching import BatchedValues, reduce_dim, require_single_axis, split_dim
from shardwise.ops.devices.declare import define_collective, of_one_device, shown_groups
from shardwise.ops.devices.each import Operands, combine_members, first_operands, in_groups, parts
from shardwise.ops.devices.fronts import Groups, merge_axes, unmerge_axes
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
from shardwise.runtime.monoids import MONOIDS
from shardwise.runtime.processes import the_world


def _type(
    x: ShapedArray,
    *,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dim: int,
    tiled: bool,
    groups: Groups | None = None,
    kind: str = "sum",
) -> ShapedArray:
    n = len(groups[0]) if groups else math.prod(sizes)
    shape = list(x.shape)
    if tiled:
        shape[dim] //= n
    else:
        del shape[dim]
    return ShapedArray(
        shape, x.dtype, x.weak_type, vma=x.vma | set(axes), unreduced=x.unreduced - set(axes), reduced=x.reduced
    )


def _kernel(
    env: Env,
    x: Ndarray,
    *,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dim: int,
    tiled: bool,
    groups: Groups | None = None,
    kind: str = "sum",
) -> Ndarray:
    monoid = MONOIDS[kind]
    front, n, dims = merge_axes(env, x, axes)
    lead = env.lead - len(dims)
    at = lead + dim

    def part_major(total: Ndarray, parts: int) -> Ndarray:
        shape = total.shape
        if tiled:
            total = total.reshape(*shape[:at], parts, shape[at] // parts, *shape[at + 1 :])
        return with_dim_at(total, at, 0)

    if groups is None:
        return unmerge_axes(env, part_major(monoid.over(front, 0), n), axes, dims)
    out: Ndarray | None = None
    for group in groups:
        parts = part_major(monoid.over(front[list(group)], 0), len(group))
        if out is None:
            out = np.empty((n, *parts.shape[1:]), x.dtype)
        out[list(group)] = parts
    assert out is not None
    return unmerge_axes(env, out, axes, dims)


def _transpose(ct: Any, x: Any, *, kind: str = "sum", **params: Any) -> list[Any]:
    """Gather all parts of the cotangent; the cotangent of partial sums is invariant."""
    same = x.aval.unreduced >= set(params["axes"])
    return [do.all_gather(ct, invariant=same, **params)]


def _batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """Along the vmap's own axis: reduce over the mapped dim; the scattered dim of the result becomes the mapped one."""
    (x,), (dim,), at = values, dims, params["dim"]
    if axis not in params["axes"]:
        front = full_in_front(size, x, dim)
        return [do.reduce_scatter(front, **{**params, "dim": at + 1})], [0]
    require_single_axis("psum_scatter", axis, params)
    total = reduce_dim(params.get("kind", "sum"), full_in_front(size, x, dim), 0)
    return [split_dim(total, at, size) if params["tiled"] else total], [at]


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """Reduce locally; then each process reduces its part over all processes."""
    axes, dim, is_tiled, kind = params["axes"], params["dim"], params["tiled"], params.get("kind", "sum")
    line = line_of(env, axes)
    if not line.crosses or params.get("groups") is not None:
        return gather_across(_kernel)(env, in_types, out_types, params)
    monoid = MONOIDS[kind]
    at = env.lead - len(axes) + dim
    settle, tag = settle_extents(env, in_types[0], axes), tag_of("reduce_scatter", env, in_types, params)

    def run(x: Ndarray) -> Ndarray:
        front, dims = front_of(env, settle(x), axes)
        total = front[0] if len(front) == 1 else monoid.over(front, 0)
        if is_tiled:
            shape = total.shape
            total = total.reshape(*shape[:at], line.n, shape[at] // line.n, *shape[at + 1 :])
        parts = with_dim_at(total, at, 0)
        out = pool.empty((len(line.mine), *parts.shape[1:]), parts.dtype)
        the_world().link(line.ranks).reduce_scatter([parts[s] for s in line.slices], out, kind, tag)
        return back_from(env, out, axes, dims)

    away = line.n - len(line.mine)
    return annotate_sends(run, block_bytes(env, in_types[0], axes) * away // line.n, line.ranks)


def _absorbed_reduction(params: Params) -> AbsorbedReduction | None:
    """The absorbed reduction: an all-reduce of which each device keeps its own part."""
    if params.get("groups") is not None or not params["tiled"]:
        return None
    return AbsorbedReduction(params.get("kind", "sum"), (all_slice, {k: params[k] for k in ("axes", "sizes", "dim")}))


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    kind, dim, is_tiled = params.get("kind", "sum"), params["dim"], params["tiled"]
    fold = lambda xs: parts(combine_members(kind, xs), len(xs), dim, is_tiled)  # noqa: E731
    return in_groups(first_operands(operands), params, fold)


psum_scatter_op = define_collective(
    "reduce_scatter",
    type_rule=_type,
    kernel=_kernel,
    rule=moved_dim_rule(lambda p: (p["dim"],)),
    jvp="linear",
    transpose=_transpose,
    batch=_batch,
    rewrite=of_one_device,
    across=_across,
    collective=Collective(
        "reduce_scatter",
        sent=lambda nbytes, n: (n - 1) * nbytes // n,
        computes=True,
        absorbed=_absorbed_reduction,
        exchange=_exchange,
        called=lambda params: "psum_scatter",
        pattern="scatter",
        told=("dim", "groups"),
    ),
    shown=Shown(
        renamed={"dim": "scatter_dimension", "axes": "axis_name"},
        hidden=frozenset({"sizes", "kind", "groups"}),
        change=shown_groups,
    ),
    small=SmallForm(
        later("shardwise.ops.devices.small_scatter", "write_scatter"),
        later("shardwise.ops.devices.small_scatter", "fits"),
    ),
)
