"""`all_reduce`: psum, pmax, pmin and the other reductions over mesh axes. In block form a reduction over leading dims.

Ops that reduce in their own kernel (`Op.absorbs`) use `sum_across` as their kernel over processes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import physical
from shardwise.base.shapes import Ndarray
from shardwise.ir import AbsorbedReduction, Collective, Equation, ShapedArray, Shown, SmallForm, literal
from shardwise.ir.axis_scope import checks_variance, is_checked
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.batching import BatchedValues, reduce_dim, require_single_axis
from shardwise.ops.devices.declare import define_collective, of_one_device
from shardwise.ops.devices.each import Operands, combine_members, first_operands, in_groups
from shardwise.ops.devices.fronts import Groups, fold_groups, merge_axes, unmerge_axes
from shardwise.ops.devices.lines import (
    Across,
    Kernel,
    annotate_sends,
    block_bytes,
    gather_across,
    line_of,
    settle_extents,
    tag_of,
    varying_axes,
)
from shardwise.ops.devices.rules import same_dims
from shardwise.ops.elementwise.casts import strong
from shardwise.ops.rules.derivative import do, full_in_front, later
from shardwise.runtime import costs
from shardwise.runtime.blocks import with_dim_at, with_ones
from shardwise.runtime.env import Env
from shardwise.runtime.machine import run_in_parts, thread_count
from shardwise.runtime.memory import pool
from shardwise.runtime.monoids import MONOIDS, Monoid
from shardwise.runtime.processes import the_world

_LARGE = 1 << 20  # bytes; blocks at least this large are reduced piece by piece during the exchange
_MOST = 32  # largest number of parts for which that is faster
# Devices from which, elements of each up to which, and groups from which a block is reduced in two steps: NumPy takes 13 ns for each
# device, however few elements it has. 8 float32 of 512 devices take 3.7 us so and 7.0 at once, of 4096 devices 7.6 and 52.
_TALL, _WIDE, _FEWEST = 512, 64, 8
_PART = 1 << 16  # elements of a part of a large result


def _type(x: ShapedArray, *, axes: tuple[str, ...], kind: str, groups: Groups | None = None) -> ShapedArray:
    vma = x.vma | set(axes) if groups else x.vma - set(axes)  # each group has its own sum
    weak = x.weak_type and checks_variance()
    return x.update(weak_type=weak, vma=vma, unreduced=x.unreduced - set(axes))


def _kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], kind: str, groups: Groups | None = None) -> Ndarray:
    monoid = MONOIDS[kind]
    if groups is not None:
        front, _, dims = merge_axes(env, x, axes)
        return unmerge_axes(env, fold_groups(front, groups, lambda part: monoid.over(part, 0)), axes, dims)
    dims = tuple([env.dim(a) for a in axes])
    return _reduce_dims(monoid, monoid.reducer(x.dtype), dims, [env.size(a) for a in axes], x)


def _reduce_dims(monoid: Monoid, reduce: Kernel, dims: tuple[int, ...], sizes: Sequence[int], x: Ndarray) -> Ndarray:
    """Reduce over leading dims with these sizes in the grid. Extent 1 means that all devices along the dim hold the same value."""
    shape = x.shape
    here = tuple([d for d in dims if shape[d] != 1])
    groups = _groups(shape[here[0]], x.size) if len(here) == 1 else 1
    if groups > 1:
        out = _reduced_twice(reduce, here[0], groups, x)
    elif len(here) == 1 and x.nbytes >= costs.COPY_SHARED and monoid.along is None and x.dtype.kind in "fiuc":
        out = _reduced_in_parts(monoid.merger(x.dtype), here[0], x)
    else:
        out = reduce(x, here, keepdims=True) if here else x
    if out.dtype != x.dtype:
        out = out.astype(x.dtype)
    if len(here) == len(dims) or monoid.repeated is None:
        return out
    return monoid.times(out, math.prod(n for d, n in zip(dims, sizes, strict=True) if shape[d] == 1))


def _groups(devices: int, size: int) -> int:
    """In how many groups a block of `size` elements is reduced over devices; 1 for all at once."""
    if devices < _TALL or not devices < size <= _WIDE * devices:
        return 1
    groups = max(k for k in range(1, math.isqrt(devices) + 1) if devices % k == 0)
    return groups if groups >= _FEWEST else 1


def _reduced_twice(reduce: Kernel, d: int, groups: int, x: Ndarray) -> Ndarray:
    """Groups of devices are merged, each as a whole, and then the devices of a group."""
    parts = reduce(x.reshape(*x.shape[:d], groups, x.shape[d] // groups, *x.shape[d + 1 :]), (d,))
    return reduce(parts, (d,), keepdims=True)


def _reduced_in_parts(merge: Kernel, d: int, x: Ndarray) -> Ndarray:
    """A large block reduced over devices in the order in which NumPy does it, part by part, by several threads; a part of the result stays
    in the cache while those of the devices pass by.
    """
    rows = with_dim_at(x, d, 0)
    out = pool.empty(rows.shape[1:], x.dtype)
    flat = rows[0].flags.c_contiguous
    sources, into = (rows.reshape(len(rows), -1), out.reshape(-1)) if flat else (rows, out)
    cut = max(range(into.ndim), key=into.shape.__getitem__)
    before = (slice(None),) * cut

    def reduce(run: slice) -> None:
        part = into[(*before, run)]
        np.copyto(part, sources[(0, *before, run)])
        for row in sources[1:]:
            merge(part, row[(*before, run)], out=part)

    count = into.shape[cut]
    run_in_parts(reduce, count, max(1, _PART * count // into.size), thread_count())
    return with_ones(out, (d,))


def _compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """The kernel, with everything that does not depend on the block computed in advance."""
    if params.get("groups") is not None:
        return functools.partial(_kernel, env, **params)
    axes, monoid = params["axes"], MONOIDS[params["kind"]]
    dims, sizes = tuple(env.dim(a) for a in axes), [env.size(a) for a in axes]
    return functools.partial(_reduce_dims, monoid, monoid.reducer(physical(in_types[0].dtype)), dims, sizes)


def _jvp(primals: Any, tangents: Any, *, kind: str, **params: Any) -> tuple[Any, Any]:
    if not MONOIDS[kind].linear:
        raise NotImplementedError(
            f"p{kind} over mesh axes has no derivative rule. Use stop_gradient on its operand, or all_gather "
            "and reduce."
        )
    return do.all_reduce(*primals, kind=kind, **params), do.all_reduce(*tangents, kind=kind, **params)


def _transpose(ct: Any, x: Any, *, axes: tuple[str, ...], kind: str, groups: Groups | None = None) -> list[Any]:
    """With checked types the sum has one cotangent, and each device receives it. Without, each device holds a share of it."""
    if groups is not None:
        return [do.all_reduce(ct, axes=axes, kind=kind, groups=groups)]
    unchecked_axes = tuple(a for a in axes if not is_checked(a))
    partial = tuple(a for a in axes if a in x.aval.unreduced)
    checked_axes = tuple(a for a in axes if is_checked(a) and a not in partial)
    ct = do.all_reduce(ct, axes=unchecked_axes, kind="sum", groups=None) if unchecked_axes else ct
    ct = do.pcast(ct, axes=partial, to="reduced") if partial else ct
    return [do.pvary(ct, axes=checked_axes) if checked_axes else ct]


def _batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """Along the vmap's own axis: a reduction over the mapped dim."""
    ((x,), (dim,)), kind, axes = (values, dims), params["kind"], params["axes"]
    if axis not in axes:
        return [do.all_reduce(x, **params)], [dim]
    if params.get("groups") is not None:
        return _grouped_reduce(size, axis, x, dim, params)
    rest = tuple(a for a in axes if a != axis)
    if dim is not None:
        x = strong(reduce_dim(kind, x, dim))
    elif MONOIDS[kind].linear:
        x = do.mul(x, literal(size, x.dtype, weak_type=True))
    elif MONOIDS[kind].repeated is not None:
        x = reduce_dim(kind, full_in_front(size, x, None), 0)
    return [do.all_reduce(x, axes=rest, kind=kind, groups=None) if rest else x], [None]


def _grouped_reduce(size: int, axis: Any, x: Any, dim: int | None, params: Params) -> BatchedValues:
    if params["axes"] != (axis,):
        require_single_axis("all_reduce", axis, params)
    rows = do.split(full_in_front(size, x, dim), sizes=(1,) * size, axis=0)
    out: list[Any] = [None] * size
    for group in params["groups"]:
        joined_rows = do.concatenate(*[rows[i] for i in group], dimension=0)
        total = reduce_dim(params["kind"], joined_rows, 0)
        for i in group:
            out[i] = full_in_front(1, total, None)
    return [do.concatenate(*out, dimension=0)], [0]


# -- over processes --------------------------------------------------------------------------------------------------------


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """Reduce locally, then over the processes."""
    axes, kind = params["axes"], params["kind"]
    line = line_of(env, axes)
    if params.get("groups") is not None:
        return gather_across(_kernel)(env, in_types, out_types, params)
    if not line.crosses:
        return lambda x: _kernel(env, x, **params)
    aval = in_types[0]
    differing_axes = tuple(a for a in axes if a in varying_axes(aval))
    copies = math.prod(env.size(a) for a in axes if a not in differing_axes)
    dims = tuple(env.dim(a) for a in differing_axes)
    monoid = MONOIDS[kind]
    counts_copies = monoid.repeated is not None
    settle = settle_extents(env, aval, differing_axes)
    reduction, sent_bytes, between = _make_reduction(
        env, differing_axes, kind, aval, tag_of("all_reduce", env, in_types, params)
    )
    if copies == 1 and all(env.extent(a) == 1 for a in differing_axes):
        return annotate_sends(lambda x: reduction(settle(x)), sent_bytes, between)

    def run(x: Ndarray) -> Ndarray:
        x = settle(x)
        here = tuple(d for d in dims if x.shape[d] != 1)
        alike = math.prod(env.extent(a) for a, d in zip(differing_axes, dims, strict=True) if x.shape[d] == 1)
        own = _entries(x, here) if between and (alike == 1 or not counts_copies) else None
        if own is not None:
            out = reduction(*own)
        else:
            out = monoid.over(x, here, keepdims=True) if here else x
            out = reduction(monoid.times(out, alike))
        return monoid.times(out, copies)

    return annotate_sends(run, sent_bytes, between)


def _entries(x: Ndarray, dims: tuple[int, ...]) -> list[Ndarray] | None:
    """The parts of a large block along leading dims, each with extent 1 in these dims; None unless every part is contiguous."""
    if not dims or x.nbytes < _LARGE:
        return None
    take: list[Any] = [slice(None)] * x.ndim
    dense_parts = []
    for at in itertools.product(*[range(x.shape[d]) for d in dims]):
        for d, i in zip(dims, at, strict=True):
            take[d] = slice(i, i + 1)
        part = x[tuple(take)]
        if not part.flags.c_contiguous or len(dense_parts) == _MOST:
            return None
        dense_parts.append(part)
    return dense_parts


def _make_reduction(
    env: Env, axes: tuple[str, ...], kind: str, aval: ShapedArray, tag: int
) -> tuple[Kernel, int, tuple[int, ...]]:
    """Make the reduction over processes of blocks already reduced over this process's devices along `axes`.

    Returns it with the number of bytes that it sends and the participating processes, () if nothing is exchanged.

    `aval` is the type before the reduction. The result is bitwise identical on all processes.
    """
    line = line_of(env, axes)
    ranks, count = line.ranks, len(line.ranks)
    if count == 1:
        return lambda x: x, 0, ()

    def reduce_over_processes(x: Ndarray, *more: Ndarray) -> Ndarray:
        if not x.flags.c_contiguous:
            copy = pool.empty(x.shape, x.dtype)
            np.copyto(copy, x)
            x = copy
        return the_world().link(ranks).all_reduce(x, kind, tag, *more)

    return reduce_over_processes, 2 * (count - 1) * block_bytes(env, aval, axes) // count, ranks


def sum_across(kernel: Kernel, compiled: Across, kind: str = "sum") -> Across:
    """`across` of an op with a param `sum_axes`: its kernel reduces over this process's devices, then the processes reduce.

    `compiled` gives the kernel for a process with a single device along each axis.
    """

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes = params["sum_axes"]
        aval = out_types[0]
        settle = settle_extents(env, aval, axes)
        reduction, sent_bytes, between = _make_reduction(
            env, axes, kind, aval, tag_of(kind, env, (*in_types, *out_types), {"axes": axes})
        )
        if all(env.extent(a) == 1 for a in axes):
            alone = compiled(env, in_types, out_types, {**params, "sum_axes": ()})
            return annotate_sends(lambda *blocks: reduction(settle(alone(*blocks))), sent_bytes, between)
        return annotate_sends(lambda *blocks: reduction(settle(kernel(env, *blocks, **params))), sent_bytes, between)

    return across


# -- as others see it ------------------------------------------------------------------------------------------------------


def _bytes_sent(nbytes: int, n: int) -> int:
    return 2 * (n - 1) * nbytes // n


def _absorbed_reduction(params: Params) -> AbsorbedReduction | None:
    return AbsorbedReduction(params["kind"]) if params.get("groups") is None else None


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    return in_groups(first_operands(operands), params, lambda xs: [combine_members(params["kind"], xs)] * len(xs))


def _public_name(params: Params) -> str:
    kind = params["kind"]
    return f"p{kind}" if kind in _PUBLIC else f"all_reduce({kind})"


_PUBLIC = ("sum", "max", "min")  # monoids with a public function


def _is_psum_of_varying(eqn: Equation) -> bool:
    return eqn.params["kind"] == "sum" and bool(eqn.inputs[0].aval.vma & frozenset(eqn.params["axes"]))


def _name(eqn: Equation) -> str:
    """A psum of a varying value has its own name: its result's type is invariant over the axes."""
    if _is_psum_of_varying(eqn):
        return config.dialect.jaxprs.psum_of_varying
    return f"p{eqn.params['kind']}"


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    if _is_psum_of_varying(eqn) and not config.dialect.jaxprs.psum_of_varying_shows_groups:
        return shown
    return {**shown, "axis_index_groups": eqn.params.get("groups")}


all_reduce = define_collective(
    "all_reduce",
    type_rule=_type,
    kernel=_kernel,
    rule=same_dims,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    rewrite=of_one_device,
    across=_across,
    compile=_compile,
    collective=Collective(
        "all_reduce",
        sent=_bytes_sent,
        computes=True,
        absorbed=_absorbed_reduction,
        exchange=_exchange,
        called=_public_name,
        pattern="reduce",
        told=("groups",),
    ),
    shown=Shown(
        name_of=_name,
        aliases=("psum", "pmax", "pmin", "psum2", "psum_invariant"),
        change=_shown_params,
        hidden=frozenset({"kind", "groups"}),
    ),
    makes_nan=True,
    small=SmallForm(
        later("shardwise.runtime.small", "write_all_reduce"),
        later("shardwise.runtime.small", "all_reduce_fits"),
        spared=1.0,
    ),
)
