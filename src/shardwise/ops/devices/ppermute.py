"""`ppermute`: values sent along (source, destination) pairs. In block form, indexing along a leading dim."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import Collective, Equation, Program, ShapedArray, Shown, SmallForm, literal
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.batching import BatchedValues, require_single_axis
from shardwise.ops.devices.declare import define_collective, of_one_device
from shardwise.ops.devices.each import Operands, first_operands
from shardwise.ops.devices.fronts import merge_axes, unmerge_axes
from shardwise.ops.devices.lines import (
    Kernel,
    annotate_sends,
    as_slice,
    back_from,
    block_bytes,
    front_of,
    line_of,
    settle_extents,
    tag_of,
)
from shardwise.ops.devices.rules import same_dims
from shardwise.ops.rules.derivative import do, full_in_front, later
from shardwise.runtime.copies import Run, rows_in_runs, runs_of
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes import the_world


def _type(x: ShapedArray, *, axes: tuple[str, ...], perm: tuple[tuple[int, int], ...]) -> ShapedArray:
    return x.update(vma=x.vma | set(axes))


def _kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], perm: tuple[tuple[int, int], ...]) -> Ndarray:
    return _permute_front(env, axes, _runs(env, axes, perm), x)


def _runs(env: Env, axes: tuple[str, ...], perm: tuple[tuple[int, int], ...]) -> tuple[Run, ...]:
    """The devices whose values each device gets, in runs of neighbours."""
    source_of = {dst: src for src, dst in perm}
    return runs_of([source_of.get(i) for i in range(math.prod(map(env.size, axes)))])


def _permute_front(env: Env, axes: tuple[str, ...], runs: tuple[Run, ...], x: Ndarray) -> Ndarray:
    front, _, dims = merge_axes(env, x, axes)
    return unmerge_axes(env, rows_in_runs(front, runs), axes, dims)


def _compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    axes = params["axes"]
    return partial(_permute_front, env, axes, _runs(env, axes, params["perm"]))


def _transpose(ct: Any, x: Any, *, axes: tuple[str, ...], perm: tuple[tuple[int, int], ...]) -> list[Any]:
    return [do.ppermute(ct, axes=axes, perm=tuple((dst, src) for src, dst in perm))]


def _batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """Along the vmap's own axis: permute the rows of the mapped dim; rows that receive nothing are zero."""
    (x,), (dim,) = values, dims
    if axis not in params["axes"]:
        return [do.ppermute(x, **params)], [dim]
    require_single_axis("ppermute", axis, params)
    x = full_in_front(size, x, dim)
    source_of = {dst: src for src, dst in params["perm"]}
    pieces = []
    # Rows that stay adjacent move together, in runs.
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


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """Local moves, and one message to and from each process that exchanges values with this one."""
    axes, perm = params["axes"], params["perm"]
    line = line_of(env, axes)
    if not line.crosses:
        return lambda x: _kernel(env, x, **params)
    owner = {int(p): (k, i) for k, member in enumerate(line.members) for i, p in enumerate(member)}
    me = line.me
    messages: dict[int, dict[int, tuple[list[int], list[int]]]] = {k: {} for k in range(len(line.ranks))}
    own_from: list[int] = []
    own_to: list[int] = []
    for src, dst in sorted(perm):
        (k, i), (q, j) = owner[src], owner[dst]
        if k != q or k == me:
            sources, put = (own_from, own_to) if k == q else messages[k].setdefault(q, ([], []))
            sources.append(i)
            put.append(j)
    sends = [(q, as_slice(sources)) for q, (sources, _) in messages[me].items()]
    takes = [(k, list(of).index(me), as_slice(of[me][1]), len(of[me][1])) for k, of in messages.items() if me in of]
    fan = max(map(len, messages.values()))
    lengths = sorted({len(sources) for of in messages.values() for sources, _ in of.values()})
    is_filled = len(own_to) + sum(n for *_, n in takes) == len(line.mine)
    settle, tag = settle_extents(env, in_types[0], axes), tag_of("ppermute", env, in_types, params)

    def run(x: Ndarray) -> Ndarray:
        front, dims = front_of(env, settle(x), axes)
        rest = front.shape[1:]
        out = pool.empty(front.shape, front.dtype)
        if not is_filled:
            out[...] = np.zeros((), front.dtype)
        receives = [
            (k, place, out[to] if isinstance(to, slice) else pool.empty((n, *rest), out.dtype))
            for k, place, to, n in takes
        ]
        shapes = [(n, *rest) for n in lengths]
        the_world().link(line.ranks).swap(
            [(q, front[of]) for q, of in sends], receives, fan, shapes, front.itemsize, tag
        )
        if own_to:
            out[own_to] = front[own_from]
        for (_, _, to, _), (_, _, part) in zip(takes, receives, strict=True):
            if not isinstance(to, slice):
                out[to] = part
        return back_from(env, out, axes, dims)

    sent_bytes = block_bytes(env, in_types[0], axes) * sum(len(sources) for sources, _ in messages[me].values())
    return annotate_sends(run, sent_bytes, line.ranks)


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    xs = first_operands(operands)
    results = [np.zeros_like(x) for x in xs]
    for source, target in params["perm"]:
        results[target] = xs[source]
    return results


def _of_one_device(eqn: Equation, devices: int) -> Program | None:
    """To a device that is alone its own value comes; where none does, the kernel gives zeros."""
    return of_one_device(eqn, devices) if eqn.params["perm"] else None


ppermute_op = define_collective(
    "ppermute",
    type_rule=_type,
    kernel=_kernel,
    compile=_compile,
    rule=same_dims,
    jvp="linear",
    transpose=_transpose,
    batch=_batch,
    across=_across,
    rewrite=_of_one_device,
    collective=Collective("permute", sent=lambda nbytes, n: nbytes, moves=True, exchange=_exchange, told=("perm",)),
    shown=Shown(renamed={"axes": "axis_name"}),
    small=SmallForm(later("shardwise.runtime.small", "move_elements"), later("shardwise.runtime.small", "moves_fit")),
)
