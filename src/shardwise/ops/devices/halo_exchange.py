"""`halo_exchange`: each device gets a window of a split dim that reaches into its neighbours' parts; the partitioner inserts it.

Over processes each sends its neighbours what their windows need, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ir import Collective, ShapedArray
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.declare import define_collective
from shardwise.ops.devices.each import Operands, first_operands
from shardwise.ops.devices.fronts import joined, unjoined
from shardwise.ops.devices.lines import (
    Kernel,
    Line,
    as_slice,
    back_from,
    block_bytes,
    front_of,
    line_of,
    sending,
    settling,
    tag_of,
)
from shardwise.ops.devices.rules import moved_dim_rule
from shardwise.runtime.blocks import Ndarray
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes.comm import the_world


def _type(
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


def _kernel(
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


# -- over processes --------------------------------------------------------------------------------------------------------


class Windows:
    """Who needs what of a dim of n parts of `local` positions, part i being in need of `width` of them from step * i + start.

    `own` are this process's positions and `needed` those that it wants, ascending. `sends` and `takes` hold positions per other
    process, takes with the place of the message among those that the other one sends; `counts` are the lengths of all messages
    and `fan` is how many a process sends at most. `table` says for each own part and place of its window where in `needed` it
    lies, or -1 beyond the ends.
    """

    __slots__ = ("counts", "fan", "needed", "own", "sends", "table", "takes")

    def __init__(self, line: Line, local: int, step: int, start: int, width: int) -> None:
        size = line.n * local
        owned = [_positions(member, local) for member in line.members]
        wanted = []
        for member in line.members:
            at = (step * member[:, None] + start + np.arange(width)).ravel()
            wanted.append(np.unique(at[(at >= 0) & (at < size)]))
        me = line.me
        self.own, self.needed = owned[me], wanted[me]
        messages: dict[int, list[tuple[int, np.ndarray]]] = {}
        for k, held in enumerate(owned):
            shared = [(to, np.intersect1d(held, needed)) for to, needed in enumerate(wanted) if to != k]
            messages[k] = [(to, at) for to, at in shared if at.size]
        self.sends = messages[me]
        self.takes = [(k, i, at) for k, sent in messages.items() for i, (to, at) in enumerate(sent) if to == me]
        self.fan = max(map(len, messages.values()))
        self.counts = sorted({at.size for sent in messages.values() for _, at in sent})
        at = step * line.mine[:, None] + start + np.arange(width)
        found = np.searchsorted(self.needed, at)
        self.table = np.where((at >= 0) & (at < size), found, -1)


def _positions(member: np.ndarray, local: int) -> np.ndarray:
    return (member[:, None] * local + np.arange(local)).ravel()


@recent(1024)
def _windows(env: Env, axes: tuple[str, ...], local: int, step: int, start: int, width: int) -> Windows:
    return Windows(line_of(env, axes), local, step, start, width)


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """The rims travel, and each device's window is put together here."""
    axes, dim = params["axes"], params["dim"]
    line = line_of(env, axes)
    if not line.crosses:
        return lambda *blocks: _kernel(env, *blocks, **params)
    aval = in_types[0]
    local = aval.shape[dim]
    rims = _windows(env, axes, local, params["step"], params["start"], params["width"])
    at = 1 + env.lead - len(axes) + dim  # of the dim, where the parts stand in front
    settled, tag = settling(env, aval, axes), tag_of("halo_exchange", env, in_types, params)
    here = np.flatnonzero(np.isin(rims.needed, rims.own))
    keeps = as_slice(np.searchsorted(rims.own, rims.needed[here]))
    kept = as_slice(here)
    sends = [(k, as_slice(np.searchsorted(rims.own, where))) for k, where in rims.sends]
    takes = [(k, place, as_slice(np.searchsorted(rims.needed, where)), where.size) for k, place, where in rims.takes]
    table = rims.table
    beyond = [(j, np.flatnonzero(row < 0)) for j, row in enumerate(table) if (row < 0).any()]

    def run(x: Ndarray, fill: Ndarray) -> Ndarray:
        front, dims = front_of(env, settled(x), axes)
        moved = np.moveaxis(np.moveaxis(front, at, 0), 1, 0)  # (part, position in it, loops..., rest)
        rest = moved.shape[2:]
        dense = moved.reshape(len(rims.own), *rest)
        every = pool.empty((len(rims.needed), *rest), front.dtype)
        every[kept] = dense[keeps]
        got = [
            (k, place, every[to] if isinstance(to, slice) else pool.empty((count, *rest), front.dtype))
            for k, place, to, count in takes
        ]
        shapes = [(count, *rest) for count in rims.counts]
        sent: list[tuple[int, Ndarray]] = [(k, dense[of]) for k, of in sends]
        the_world().link(line.ranks).swap(sent, got, rims.fan, shapes, front.itemsize, tag)
        for (_, _, to, _), (_, _, part) in zip(takes, got, strict=True):
            if not isinstance(to, slice):
                every[to] = part
        out = every[np.maximum(table, 0)] if len(every) else np.empty((*table.shape, *rest), front.dtype)
        if beyond:
            filling, _ = front_of(env, fill, axes)
            for j, places in beyond:
                value: Any = filling[j]
                out[j, places] = value.reshape(value.shape + (1,) * (len(rest) - value.ndim))
        return back_from(env, np.moveaxis(np.moveaxis(out, 0, 1), 0, at), axes, dims)

    unit = block_bytes(env, aval, axes) // max(local, 1)
    return sending(run, unit * sum(where.size for _, where in rims.sends), line.ranks)


# -- as others see it ------------------------------------------------------------------------------------------------------


def _sent(in_types: Types, params: Params, sizes: Mapping[str, int]) -> int:
    """What the device gets that holds least of its window itself."""
    aval = in_types[0]
    n, local = math.prod(sizes.get(a, 1) for a in params["axes"]), aval.shape[params["dim"]]
    most = 0
    for i in range(n):
        start = params["step"] * i + params["start"]
        low, high = max(start, 0), min(start + params["width"], n * local)
        own = max(0, min(high, (i + 1) * local) - max(low, i * local))
        most = max(most, max(0, high - low) - own)
    return most * aval.nbytes // max(local, 1)


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    dim, step, start, width = params["dim"], params["step"], params["start"], params["width"]
    whole = np.moveaxis(np.concatenate(first_operands(operands), dim), dim, 0)
    results = []
    for i, (_, fill) in enumerate(operands):
        window = np.empty((width, *whole.shape[1:]), whole.dtype)
        for k in range(width):
            at = step * i + start + k
            window[k] = whole[at] if 0 <= at < len(whole) else fill
        results.append(np.moveaxis(window, 0, dim))
    return results


halo_exchange = define_collective(
    "halo_exchange",
    type_rule=_type,
    kernel=_kernel,
    rule=moved_dim_rule(lambda p: (p["dim"],)),
    across=_across,
    collective=Collective("permute", sent_of=_sent, moves=True, exchange=_exchange, told=("dim",)),
)
