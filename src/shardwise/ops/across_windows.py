"""`halo_exchange` over several processes: each sends its neighbours what their windows need, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ir.op import Params, Types
from shardwise.ops.across import (
    Across,
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
from shardwise.runtime.blocks import Ndarray
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes.comm import the_world


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


def halo_exchange(kernel: Kernel) -> Across:
    """`across` of halo_exchange: the rims travel, and each device's window is put together here."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, dim = params["axes"], params["dim"]
        line = line_of(env, axes)
        if not line.crosses:
            return lambda *blocks: kernel(env, *blocks, **params)
        aval = in_types[0]
        local = aval.shape[dim]
        rims = _windows(env, axes, local, params["step"], params["start"], params["width"])
        at = 1 + env.lead - len(axes) + dim  # of the dim, where the parts stand in front
        settled, tag = settling(env, aval, axes), tag_of("halo_exchange", env, in_types, params)
        here = np.flatnonzero(np.isin(rims.needed, rims.own))
        keeps = as_slice(np.searchsorted(rims.own, rims.needed[here]))
        kept = as_slice(here)
        sends = [(k, as_slice(np.searchsorted(rims.own, where))) for k, where in rims.sends]
        takes = [
            (k, place, as_slice(np.searchsorted(rims.needed, where)), where.size) for k, place, where in rims.takes
        ]
        table = rims.table
        beyond = [(j, np.flatnonzero(row < 0)) for j, row in enumerate(table) if (row < 0).any()]

        def run(x: Ndarray, fill: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            moved = np.moveaxis(np.moveaxis(front, at, 0), 1, 0)  # (part, position in it, loops..., rest)
            rest = moved.shape[2:]
            dense = moved.reshape(len(rims.own), *rest)
            every = pool.empty((len(rims.needed), *rest), front.dtype)
            every[kept] = dense[keeps]
            got = [(k, place, every[to] if isinstance(to, slice) else pool.empty((count, *rest), front.dtype))
                   for k, place, to, count in takes]  # fmt: skip
            shapes = [(count, *rest) for count in rims.counts]
            sent: list[tuple[int, Ndarray]] = [(k, dense[of]) for k, of in sends]
            the_world().link(line.ranks).swap(sent, got, rims.fan, shapes, tag)
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

    return across
