"""Collectives over mesh axes: array arithmetic on the leading dims of blocks.

Each op takes `axes`, a tuple of mesh axis names (first one major). In block form `psum` sums over a leading dim,
`all_gather` moves one into the shard, `ppermute` indexes along it, `axis_index` is an iota.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.ir import ShapedArray, define_op
from shardwise.ir.axis_scope import is_checked
from shardwise.ir.op import Params, Types
from shardwise.ops import across, across_windows
from shardwise.ops import collective_batching as batching
from shardwise.ops.derivative import do
from shardwise.ops.variance import same_dims
from shardwise.runtime.blocks import expanded
from shardwise.runtime.copies import chosen
from shardwise.runtime.env import Env
from shardwise.runtime.extrema import maximum_along, minimum_along
from shardwise.sharding.rule import Kind, Rule

Ndarray = np.ndarray[Any, Any]
Groups = tuple[tuple[int, ...], ...]

REDUCERS: dict[str, Callable[..., Ndarray]] = {
    "sum": np.add.reduce, "max": maximum_along, "min": minimum_along, "prod": np.multiply.reduce,
    "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
}  # fmt: skip


def joined(env: Env, block: Ndarray, axes: tuple[str, ...]) -> tuple[Ndarray, int, tuple[int, ...]]:
    """`block` with the leading dims of `axes` moved to the front and merged into one of extent n.

    Returns it with n and the leading dims that were merged.
    """
    dims = tuple(env.dim(a) for a in axes)
    for axis, d in zip(axes, dims, strict=True):
        block = expanded(block, d, env.size(axis))
    moved = np.moveaxis(block, dims, range(len(dims)))
    n = math.prod(moved.shape[: len(dims)])
    return moved.reshape(n, *moved.shape[len(dims) :]), n, dims


def unjoined(env: Env, front: Ndarray, axes: tuple[str, ...], dims: tuple[int, ...]) -> Ndarray:
    """Inverse of `joined`: the front dim becomes the leading dims of `axes` again."""
    sizes = tuple(env.size(a) for a in axes)
    return np.moveaxis(front.reshape(sizes + front.shape[1:]), range(len(dims)), dims)


def invariant(front: Ndarray, dims: tuple[int, ...]) -> Ndarray:
    """A value without the joined dim, as a block with extent 1 in each of `dims`."""
    return np.expand_dims(front, tuple(sorted(dims)))


def _grouped(front: Ndarray, groups: Groups, fold: Callable[[Ndarray], Ndarray]) -> Ndarray:
    """Apply `fold` to each group of entries of the front dim and give the result to all its members."""
    out: Ndarray | None = None
    for group in groups:
        part = fold(front[list(group)])
        if out is None:
            out = np.empty((front.shape[0], *part.shape), part.dtype)
        out[list(group)] = part
    assert out is not None
    return out


# -- all-reduce ----------------------------------------------------------------------------------------------------------


def _all_reduce_type(x: ShapedArray, *, axes: tuple[str, ...], kind: str, groups: Groups | None = None) -> ShapedArray:
    vma = x.vma | set(axes) if groups else x.vma - set(axes)  # groups have sums of their own
    weak = x.weak_type and config.dialect.psum_keeps_weak_type
    return x.update(weak_type=weak, vma=vma, unreduced=x.unreduced - set(axes))


def _all_reduce_kernel(
    env: Env, x: Ndarray, *, axes: tuple[str, ...], kind: str, groups: Groups | None = None
) -> Ndarray:
    reduce = REDUCERS[kind]
    if groups is not None:
        front, _, dims = joined(env, x, axes)
        return unjoined(env, _grouped(front, groups, lambda part: _cast(reduce(part, axis=0), x)), axes, dims)
    here = tuple(d for d in (env.dim(a) for a in axes) if x.shape[d] != 1)
    out = _cast(reduce(x, axis=here, keepdims=True), x) if here else x
    if kind in ("sum", "prod", "xor"):
        copies = math.prod(env.size(a) for a in axes if x.shape[env.dim(a)] == 1)
        if copies != 1:
            out = _repeated(out, kind, copies)
    return out


def _repeated(x: Ndarray, kind: str, copies: int) -> Ndarray:
    """The reduction of `copies` equal values."""
    if kind == "sum":
        return np.multiply(x, x.dtype.type(copies))
    if kind == "prod":
        return np.power(x, x.dtype.type(copies))
    return x if copies % 2 else np.zeros_like(x)


def _cast(out: Ndarray, like: Ndarray) -> Ndarray:
    return out if out.dtype == like.dtype else out.astype(like.dtype)


def _all_reduce_jvp(primals: Any, tangents: Any, *, kind: str, **params: Any) -> tuple[Any, Any]:
    if kind != "sum":
        raise NotImplementedError(f"p{kind} over mesh axes has no derivative rule. Use stop_gradient on its operand, or all_gather "
                                  "and reduce.")  # fmt: skip
    return do.all_reduce(*primals, kind=kind, **params), do.all_reduce(*tangents, kind=kind, **params)


def _all_reduce_transpose(
    ct: Any, x: Any, *, axes: tuple[str, ...], kind: str, groups: Groups | None = None
) -> list[Any]:
    """With checked types a sum is the same on all devices, and each gets its cotangent. Without, each holds a share of it."""
    if groups is not None:
        return [do.all_reduce(ct, axes=axes, kind=kind, groups=groups)]
    shared = tuple(a for a in axes if not is_checked(a))
    partial = tuple(a for a in axes if a in x.aval.unreduced)
    checked = tuple(a for a in axes if is_checked(a) and a not in partial)
    ct = do.all_reduce(ct, axes=shared, kind="sum", groups=None) if shared else ct
    ct = do.pcast(ct, axes=partial, to="reduced") if partial else ct
    return [do.pvary(ct, axes=checked) if checked else ct]


all_reduce = define_op("all_reduce", type_rule=_all_reduce_type, kernel=_all_reduce_kernel, rule=same_dims,
                       typed=True, collective=True, jvp=_all_reduce_jvp, transpose=_all_reduce_transpose,
                       batch=batching.all_reduce, across=across.all_reduce(_all_reduce_kernel, REDUCERS, _repeated))  # fmt: skip


# -- all-gather, reduce-scatter, all-to-all ----------------------------------------------------------------------------------


def _gather_type(x: ShapedArray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int, tiled: bool,
                 groups: Groups | None = None, invariant: bool = False) -> ShapedArray:  # fmt: skip
    n = len(groups[0]) if groups else math.prod(sizes)
    shape = list(x.shape)
    if tiled:
        shape[dim] *= n
    else:
        shape.insert(dim, n)
    vma = x.vma - set(axes) if invariant else x.vma | set(axes)
    return ShapedArray(shape, x.dtype, x.weak_type, vma=vma)


def _gather_kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int, tiled: bool,
                   groups: Groups | None = None, invariant: bool = False) -> Ndarray:  # fmt: skip
    front, _, dims = joined(env, x, axes)
    lead = env.lead - len(dims)

    def fold(part: Ndarray) -> Ndarray:
        moved = np.moveaxis(part, 0, lead + dim)
        if not tiled:
            return moved
        shape = moved.shape
        at = lead + dim
        return moved.reshape(*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])

    if groups is not None:
        return unjoined(env, _grouped(front, groups, fold), axes, dims)
    return np.expand_dims(fold(front), tuple(sorted(dims)))


def _moved_dim_rule(changed: Callable[[Params], tuple[int, ...]]) -> Callable[[Types, Types, Params], Rule]:
    """Dims named by `changed` (of the operand, if tiled) must be whole over automatic axes; others pass."""

    def rule(in_types: Types, out_types: Types, params: Params) -> Rule:
        (x,), (out,) = in_types, out_types
        if x.ndim == out.ndim:
            fixed = set(changed(params))
            dims = tuple((d,) if n != 1 and d not in fixed else () for d, n in enumerate(x.shape))
            return Rule((dims,), (dims,), tuple(x.shape), (Kind.PASS,) * x.ndim)
        none = lambda t: ((),) * t.ndim  # noqa: E731
        return Rule((none(x),), (none(out),), (), ())

    return rule


def _gather_transpose(ct: Any, x: Any, *, invariant: bool = False, **params: Any) -> list[Any]:
    """The sum of what all devices say of each part; a value that is the same on all of them has one cotangent, to be cut."""
    axes = params["axes"]
    if not invariant or params.get("groups") or not all(map(is_checked, axes)):
        return [do.reduce_scatter(ct, **params)]
    own = do.all_slice(ct, axes=axes, sizes=params["sizes"], dim=params["dim"])
    return [own if params["tiled"] else do.squeeze(own, dimensions=(params["dim"],))]


all_gather_op = define_op("all_gather", type_rule=_gather_type, kernel=_gather_kernel, typed=True, collective=True,
                          rule=_moved_dim_rule(lambda p: (p["dim"],)), jvp="linear", transpose=_gather_transpose,
                          batch=batching.all_gather, across=across.all_gather(_gather_kernel))  # fmt: skip


def _scatter_type(x: ShapedArray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int, tiled: bool,
                  groups: Groups | None = None, kind: str = "sum") -> ShapedArray:  # fmt: skip
    n = len(groups[0]) if groups else math.prod(sizes)
    shape = list(x.shape)
    if tiled:
        shape[dim] //= n
    else:
        del shape[dim]
    return ShapedArray(shape, x.dtype, x.weak_type, vma=x.vma | set(axes), unreduced=x.unreduced - set(axes))


def _scatter_kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int, tiled: bool,
                    groups: Groups | None = None, kind: str = "sum") -> Ndarray:  # fmt: skip
    reduce = REDUCERS[kind]
    front, n, dims = joined(env, x, axes)
    lead = env.lead - len(dims)
    at = lead + dim

    def part_major(total: Ndarray, parts: int) -> Ndarray:
        shape = total.shape
        if tiled:
            total = total.reshape(*shape[:at], parts, shape[at] // parts, *shape[at + 1 :])
        return np.moveaxis(total, at, 0)

    if groups is None:
        return unjoined(env, part_major(_cast(reduce(front, axis=0), x), n), axes, dims)
    out: Ndarray | None = None
    for group in groups:
        parts = part_major(_cast(reduce(front[list(group)], axis=0), x), len(group))
        if out is None:
            out = np.empty((n, *parts.shape[1:]), x.dtype)
        out[list(group)] = parts
    assert out is not None
    return unjoined(env, out, axes, dims)


def _scatter_transpose(ct: Any, x: Any, *, kind: str = "sum", **params: Any) -> list[Any]:
    """All parts of the cotangent; that of partial sums is one and the same everywhere."""
    same = x.aval.unreduced >= set(params["axes"])
    return [do.all_gather(ct, invariant=same, **params)]


psum_scatter_op = define_op("reduce_scatter", type_rule=_scatter_type, kernel=_scatter_kernel, typed=True, collective=True,
                            rule=_moved_dim_rule(lambda p: (p["dim"],)), jvp="linear",
                            transpose=_scatter_transpose,
                            batch=batching.reduce_scatter, across=across.reduce_scatter(_scatter_kernel, REDUCERS))  # fmt: skip


def _all_to_all_type(x: ShapedArray, *, axes: tuple[str, ...], sizes: tuple[int, ...], split: int, concat: int,
                     tiled: bool, groups: Groups | None = None) -> ShapedArray:  # fmt: skip
    n = len(groups[0]) if groups else math.prod(sizes)
    shape = list(x.shape)
    if tiled:
        shape[split] //= n
        shape[concat] *= n
    else:
        del shape[split]
        shape.insert(concat, n)
    return ShapedArray(shape, x.dtype, x.weak_type, vma=x.vma | set(axes))


def _exchange(front: Ndarray, lead: int, split: int, concat: int, tiled: bool) -> Ndarray:
    """All-to-all of an entry per device in the front dim: entry j of the split dim goes to device j."""
    n = front.shape[0]
    at = 1 + lead + split
    if tiled:
        shape = front.shape
        front = front.reshape(*shape[:at], n, shape[at] // n, *shape[at + 1 :])
    # now (source, lead..., destination at `at`, ...): the destination becomes the front, the source joins concat
    front = np.moveaxis(front, at, 0)  # (destination, source, lead..., rest)
    to = 1 + lead + concat
    front = np.moveaxis(front, 1, to)
    if tiled:
        shape = front.shape
        front = front.reshape(*shape[:to], shape[to] * shape[to + 1], *shape[to + 2 :])
    return front


def _all_to_all_kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], sizes: tuple[int, ...], split: int, concat: int,
                       tiled: bool, groups: Groups | None = None) -> Ndarray:  # fmt: skip
    front, n, dims = joined(env, x, axes)
    lead = env.lead - len(dims)
    if groups is None:
        return unjoined(env, _exchange(front, lead, split, concat, tiled), axes, dims)
    out: Ndarray | None = None
    for group in groups:
        part = _exchange(front[list(group)], lead, split, concat, tiled)
        if out is None:
            out = np.empty((n, *part.shape[1:]), x.dtype)
        out[list(group)] = part
    assert out is not None
    return unjoined(env, out, axes, dims)


def _all_to_all_transpose(ct: Any, x: Any, *, split: int, concat: int, **params: Any) -> list[Any]:
    return [do.all_to_all(ct, split=concat, concat=split, **params)]


all_to_all_op = define_op("all_to_all", type_rule=_all_to_all_type, kernel=_all_to_all_kernel, typed=True, collective=True,
                          rule=_moved_dim_rule(lambda p: (p["split"], p["concat"])), jvp="linear",
                          transpose=_all_to_all_transpose, batch=batching.all_to_all,
                          across=across.all_to_all(_all_to_all_kernel))  # fmt: skip


# -- permutations ------------------------------------------------------------------------------------------------------------


def _ppermute_type(x: ShapedArray, *, axes: tuple[str, ...], perm: tuple[tuple[int, int], ...]) -> ShapedArray:
    return x.update(vma=x.vma | set(axes))


def _ppermute_kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], perm: tuple[tuple[int, int], ...]) -> Ndarray:
    front, n, dims = joined(env, x, axes)
    source_of = dict((dst, src) for src, dst in perm)
    if len(source_of) == n:
        out = chosen(front, [source_of[i] for i in range(n)])
    else:
        out = np.zeros_like(front)
        if perm:
            out[[dst for _, dst in perm]] = front[[src for src, _ in perm]]
    return unjoined(env, out, axes, dims)


def _ppermute_transpose(ct: Any, x: Any, *, axes: tuple[str, ...], perm: tuple[tuple[int, int], ...]) -> list[Any]:
    return [do.ppermute(ct, axes=axes, perm=tuple((dst, src) for src, dst in perm))]


ppermute_op = define_op("ppermute", type_rule=_ppermute_type, kernel=_ppermute_kernel, rule=same_dims, typed=True,
                        collective=True, jvp="linear", transpose=_ppermute_transpose, batch=batching.ppermute,
                        across=across.ppermute(_ppermute_kernel))  # fmt: skip


# -- the device's own place ----------------------------------------------------------------------------------------------------


def _axis_index_type(*, axes: tuple[str, ...]) -> ShapedArray:
    return ShapedArray((), np.dtype(np.int32), vma=frozenset(axes))


axis_index_op = define_op("axis_index", type_rule=_axis_index_type, kernel=lambda env, axes: env.index(axes),
                          rule=lambda ins, outs, params: Rule((), ((),), (), ()), typed=True, collective=True,
                          batch=batching.axis_index)  # fmt: skip


# -- layout changes inserted by the partitioner ----------------------------------------------------------------------------------


def _all_slice_type(x: ShapedArray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int) -> ShapedArray:
    shape = list(x.shape)
    shape[dim] //= math.prod(sizes)
    return ShapedArray(shape, x.dtype, x.weak_type, vma=x.vma | set(axes))


def _all_slice_kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int) -> Ndarray:
    """Each device along `axes` keeps its own part of dim `dim`: no communication, and a view."""
    at = env.lead + dim
    shape = x.shape
    split = x.reshape(*shape[:at], *sizes, shape[at] // math.prod(sizes), *shape[at + 1 :])
    if env.processes is not None:
        for i, a in enumerate(axes):
            split = across.own_entries(env, split, a, at + i)
    order = [i for i in range(split.ndim) if not at <= i < at + len(axes)]
    for i, a in enumerate(axes):
        order[env.dim(a)] = at + i  # the new grid dim takes the place of the old one, which has extent 1
    old = [env.dim(a) for a in axes]
    return split.transpose(order + old).reshape([split.shape[i] for i in order])


def _all_slice_transpose(ct: Any, x: Any, **params: Any) -> list[Any]:
    return [do.all_gather(ct, tiled=True, groups=None, invariant=True, **params)]


all_slice = define_op("all_slice", type_rule=_all_slice_type, kernel=_all_slice_kernel, typed=True, collective=True,
                      view=True, rule=_moved_dim_rule(lambda p: (p["dim"],)), jvp="linear", transpose=_all_slice_transpose,
                      batch=batching.all_slice)  # fmt: skip


def _halo_type(
    x: ShapedArray,
    fill: ShapedArray,
    *,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dim: int,
    step: int,
    start: int,
    width: int,
) -> ShapedArray:
    shape = (*x.shape[:dim], width, *x.shape[dim + 1 :])
    return ShapedArray(shape, x.dtype, x.weak_type, vma=x.vma | fill.vma | set(axes))


def _halo_kernel(
    env: Env,
    x: Ndarray,
    fill: Ndarray,
    *,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dim: int,
    step: int,
    start: int,
    width: int,
) -> Ndarray:
    """Device i gets positions ``[step * i + start, step * i + start + width)`` of the dim that `axes` split.

    A strided view of the joined dim where all windows lie inside of it.
    """
    front, n, dims = joined(env, x, axes)
    at = env.lead - len(dims) + dim
    whole = np.moveaxis(front, 0, at)
    whole = whole.reshape(*whole.shape[:at], n * whole.shape[at + 1], *whole.shape[at + 2 :])
    size = whole.shape[at]
    low = max(0, -min(start, step * (n - 1) + start))
    high = max(0, max(start, step * (n - 1) + start) + width - size)
    if low or high:
        shape = (*whole.shape[:at], low + size + high, *whole.shape[at + 1 :])
        lead = [n for d, n in enumerate(fill.shape) if d not in dims]
        value = fill.reshape(lead + [1] * (whole.ndim - len(lead)))
        padded = np.empty(np.broadcast_shapes(shape, value.shape), whole.dtype)
        padded[...] = value
        padded[(slice(None),) * at + (slice(low, low + size),)] = whole
        whole = padded
    first = start + low
    view = np.lib.stride_tricks.as_strided(
        whole[(slice(None),) * at + (slice(first, None),)],
        (n, *whole.shape[:at], width, *whole.shape[at + 1 :]),
        (step * whole.strides[at], *whole.strides),
        writeable=False,
    )
    return unjoined(env, view, axes, dims)


halo_exchange = define_op(
    "halo_exchange",
    type_rule=_halo_type,
    kernel=_halo_kernel,
    typed=True,
    collective=True,
    rule=_moved_dim_rule(lambda p: (p["dim"],)),
    across=across_windows.halo_exchange(_halo_kernel),
)
