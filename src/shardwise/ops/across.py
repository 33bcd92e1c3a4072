"""Collectives where the device grid lies over several processes: local block arithmetic and one exchange between them.

Comes in: the `Env` of a grid over several processes. Goes out: the kernel of a collective for this process's blocks, which
says in its attribute `sent` how many bytes a call sends to other processes. Which axes a value varies over is read from its
type: a process that owns one coordinate of an axis has extent 1 on it either way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ir import ShapedArray
from shardwise.ir.op import Params, Types
from shardwise.runtime.blocks import Ndarray, expanded
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes.comm import number_of, the_world

_LARGE = 1 << 20  # bytes of a block whose parts are reduced piece by piece, as they are exchanged
_MOST = 32  # parts for which that pays

Kernel = Callable[..., Ndarray]
Across = Callable[[Env, Types, Types, Params], Kernel]


class Line:
    """The devices along `axes` that share this process's coordinates on all others, and the processes that own them.

    `members[k]` are the row-major positions along `axes` that process `ranks[k]` owns, `mine` those of this process, and
    `slices[k]` an index for them.
    """

    __slots__ = ("axes", "members", "mine", "n", "ranks", "slices")

    def __init__(self, env: Env, axes: tuple[str, ...]) -> None:
        owners = env.processes
        assert owners is not None
        self.axes = axes
        self.n = math.prod(env.size(a) for a in axes)
        dims = [env.dim(a) for a in axes]
        rest = [d for d in range(len(env.axis_names)) if d not in dims]
        own = owners.coordinates
        ranks, members = [], []
        for rank, coords in owners.owned.items():
            meets = all(set(coords[d]) & set(own[d]) for d in rest)
            if meets and any(coords[d] != own[d] for d in rest):
                raise ValueError(
                    f"the processes {owners.me} and {rank} share some but not all of their devices' lines along the mesh axes "
                    f"{axes}, so that a collective over {axes} cannot be one call between processes. Order the mesh's devices so "
                    "that processes form a grid themselves."
                )
            if meets:
                position = np.zeros(1, np.int64)
                for a, d in zip(axes, dims, strict=True):
                    position = (position[:, None] * env.size(a) + np.array(coords[d])).ravel()
                ranks.append(rank)
                members.append(position)
        self.ranks = tuple(ranks)
        self.members = members
        self.mine = members[ranks.index(owners.me)]
        self.slices = [as_slice(m) for m in members]

    @property
    def crosses(self) -> bool:
        """Whether there is more than one process."""
        return len(self.ranks) > 1

    @property
    def me(self) -> int:
        """This process's place among `ranks`."""
        return next(k for k, m in enumerate(self.members) if m is self.mine)


def as_slice(positions: Any) -> slice | list[int]:
    """An index that selects ascending positions: a slice if they are evenly spaced, which makes views."""
    found = [int(p) for p in positions]
    step = found[1] - found[0] if len(found) > 1 else 1
    if found and step > 0 and found == list(range(found[0], found[0] + step * len(found), step)):
        return slice(found[0], found[-1] + 1, step)
    return found


@recent(4096)
def line_of(env: Env, axes: tuple[str, ...]) -> Line:
    """The (cached) Line of `axes`."""
    return Line(env, axes)


@recent(4096)
def whole_env(env: Env, axes: tuple[str, ...]) -> Env:
    """`env` for blocks that hold every position along `axes`."""
    owners = env.processes
    assert owners is not None
    dims = {env.dim(a) for a in axes}
    mine = tuple(tuple(range(n)) if d in dims else c
                 for d, (n, c) in enumerate(zip(owners.shape, owners.coordinates, strict=True)))  # fmt: skip
    return replace(env, processes=replace(owners, owned={**owners.owned, owners.me: mine}))


def front_of(env: Env, block: Ndarray, axes: tuple[str, ...]) -> tuple[Ndarray, tuple[int, ...]]:
    """This process's entries along `axes` in one front dim, and the leading dims that were merged."""
    dims = tuple(env.dim(a) for a in axes)
    for a, d in zip(axes, dims, strict=True):
        block = expanded(block, d, env.extent(a))
    moved = np.moveaxis(block, dims, range(len(dims)))
    n = math.prod(moved.shape[: len(dims)])
    return moved.reshape(n, *moved.shape[len(dims) :]), dims


def back_from(env: Env, front: Ndarray, axes: tuple[str, ...], dims: tuple[int, ...]) -> Ndarray:
    """Inverse of `front_of`."""
    sizes = tuple(env.extent(a) for a in axes)
    return np.moveaxis(front.reshape(sizes + front.shape[1:]), range(len(dims)), dims)


def varying_axes(aval: ShapedArray) -> frozenset[str]:
    """The axes along which blocks of a type differ between devices: partial sums do, too."""
    return aval.vma | aval.unreduced


def settling(env: Env, aval: ShapedArray, axes: tuple[str, ...]) -> Callable[[Ndarray], Ndarray]:
    """A function that gives a block of type `aval` the extents that follow from the type on the axes besides `axes`.

    Blocks that go to other processes need that: there extents must be the same.
    """
    wanted = [(d, env.extent(a) if a in varying_axes(aval) else 1) for d, a in enumerate(env.axis_names)
              if a not in axes and env.extent(a) != 1]  # fmt: skip

    def settled(block: Ndarray) -> Ndarray:
        for d, n in wanted:
            if block.shape[d] != n:
                block = expanded(block, d, n) if n != 1 else block[(slice(None),) * d + (slice(0, 1),)]
        return block

    return settled


def own_part(env: Env, block: Ndarray, axes: tuple[str, ...]) -> Ndarray:
    """Of a block with every position along `axes` this process's coordinates; extent 1 stays."""
    for a in axes:
        block = own_entries(env, block, a, env.dim(a))
    return block


def own_entries(env: Env, block: Ndarray, axis: str, dim: int) -> Ndarray:
    """Of a dim with one entry per position along a mesh axis (or 1) this process's entries: a view if they are neighbours."""
    assert env.processes is not None
    mine = env.processes.coordinates[env.dim(axis)]
    if block.shape[dim] == 1 or len(mine) == block.shape[dim]:
        return block
    near = mine[-1] - mine[0] == len(mine) - 1
    return block[(slice(None),) * dim + (slice(mine[0], mine[-1] + 1) if near else list(mine),)]


def block_bytes(env: Env, aval: ShapedArray, axes: tuple[str, ...]) -> int:
    """The bytes of a block of type `aval` per position along `axes`."""
    return aval.nbytes * math.prod(env.extent(a) for a in env.axis_names if a not in axes and a in varying_axes(aval))


def sending(run: Kernel, sent: int, ranks: tuple[int, ...]) -> Kernel:
    """`run`, a call of which makes one exchange between the processes `ranks`, and sends that many bytes to others."""
    run.sent = sent  # type: ignore[attr-defined]
    run.ranks = ranks  # type: ignore[attr-defined]
    return run


def tag_of(what: str, env: Env, types: Types, params: Params) -> int:
    """A number that stands for one exchange, the same on all processes."""
    shown = [f"{k}={v}" for k, v in sorted(params.items())]
    return number_of(" ".join([what, str(env.axis_sizes), *[t.str_short() for t in types], *shown]))


def gathering(kernel: Kernel) -> Across:
    """`across` for any collective: bring every position along its axes here, run its kernel, keep the own part."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes = params["axes"]
        line = line_of(env, axes)
        whole = whole_env(env, axes)
        if not line.crosses:
            return lambda *blocks: kernel(env, *blocks, **params)
        settled, tag = settling(env, in_types[0], axes), tag_of("gather", env, in_types, params)

        def run(x: Ndarray, *more: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            every = pool.empty((line.n, *front.shape[1:]), front.dtype)
            fill_front(line, front, every, tag)
            return own_part(env, kernel(whole, back_from(whole, every, axes, dims), *more, **params), axes)

        sent = block_bytes(env, in_types[0], axes) * len(line.mine) * (len(line.ranks) - 1)
        return sending(run, sent, line.ranks)

    return across


def fill_front(line: Line, front: Ndarray, every: Ndarray, tag: int) -> None:
    """The entries of all processes of the line into dim 0 of `every`, each at its position."""
    link = the_world().link(line.ranks)
    if all(isinstance(s, slice) for s in line.slices):
        link.all_gather(front, [every[s] for s in line.slices], tag)
        return
    takes = [pool.empty((len(m), *front.shape[1:]), front.dtype) for m in line.members]
    link.all_gather(front, takes, tag)
    for take, where in zip(takes, line.members, strict=True):
        every[where] = take


# -- reductions --------------------------------------------------------------------------------------------------------


def all_reduce(kernel: Kernel, reducers: dict[str, Kernel], repeated: Kernel) -> Across:
    """`across` of all_reduce: the local reduction, then the one over the processes."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, kind = params["axes"], params["kind"]
        line = line_of(env, axes)
        if params.get("groups") is not None:
            return gathering(kernel)(env, in_types, out_types, params)
        if not line.crosses:
            return lambda x: kernel(env, x, **params)
        aval = in_types[0]
        varying = tuple(a for a in axes if a in varying_axes(aval))
        copies = math.prod(env.size(a) for a in axes if a not in varying)
        dims = tuple(env.dim(a) for a in varying)
        reduce, counted = reducers[kind], kind in ("sum", "prod", "xor")
        settled = settling(env, aval, varying)
        reduced, sent, between = reducing(env, varying, kind, aval, tag_of("all_reduce", env, in_types, params))
        if copies == 1 and all(env.extent(a) == 1 for a in varying):
            return sending(lambda x: reduced(settled(x)), sent, between)

        def run(x: Ndarray) -> Ndarray:
            x = settled(x)
            here = tuple(d for d in dims if x.shape[d] != 1)
            alike = math.prod(env.extent(a) for a, d in zip(varying, dims, strict=True) if x.shape[d] == 1)
            own = entries(x, here) if between and (alike == 1 or not counted) else None
            if own is not None:
                out = reduced(*own)
            else:
                out = reduce(x, axis=here, keepdims=True).astype(x.dtype, copy=False) if here else x
                out = reduced(repeated(out, kind, alike) if counted and alike != 1 else out)
            return repeated(out, kind, copies) if counted and copies != 1 else out

        return sending(run, sent, between)

    return across


def entries(x: Ndarray, dims: tuple[int, ...]) -> list[Ndarray] | None:
    """The parts of a large block along some leading dims, with extent 1 in these; None unless each is contiguous."""
    if not dims or x.nbytes < _LARGE:
        return None
    take: list[Any] = [slice(None)] * x.ndim
    found = []
    for at in itertools.product(*[range(x.shape[d]) for d in dims]):
        for d, i in zip(dims, at, strict=True):
            take[d] = slice(i, i + 1)
        part = x[tuple(take)]
        if not part.flags.c_contiguous or len(found) == _MOST:
            return None
        found.append(part)
    return found


def reducing(
    env: Env, axes: tuple[str, ...], kind: str, aval: ShapedArray, tag: int
) -> tuple[Kernel, int, tuple[int, ...]]:
    """The reduction over processes of blocks that are reduced over this one's devices along `axes`.

    Also the bytes it sends, and the processes that take part; () if it is no exchange.

    `aval` is the type before the reduction. The result of the reduction is the same, bit for bit, on all processes.
    """
    line = line_of(env, axes)
    ranks, count = line.ranks, len(line.ranks)
    if count == 1:
        return lambda x: x, 0, ()

    def reduced(x: Ndarray, *more: Ndarray) -> Ndarray:
        if not x.flags.c_contiguous:
            copy = pool.empty(x.shape, x.dtype)
            np.copyto(copy, x)
            x = copy
        return the_world().link(ranks).all_reduce(x, kind, tag, *more)

    return reduced, 2 * (count - 1) * block_bytes(env, aval, axes) // count, ranks


def summing(kernel: Kernel, compiled: Across, kind: str = "sum") -> Across:
    """`across` of an op with a param `sum_axes`: its kernel combines what this process's devices have, then all processes do.

    `compiled` gives the kernel where there is one device of each axis here.
    """

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes = params["sum_axes"]
        aval = out_types[0]
        settled = settling(env, aval, axes)
        reduced, sent, between = reducing(
            env, axes, kind, aval, tag_of(kind, env, (*in_types, *out_types), {"axes": axes})
        )
        if all(env.extent(a) == 1 for a in axes):
            alone = compiled(env, in_types, out_types, {**params, "sum_axes": ()})
            return sending(lambda *blocks: reduced(settled(alone(*blocks))), sent, between)
        return sending(lambda *blocks: reduced(settled(kernel(env, *blocks, **params))), sent, between)

    return across


def reduce_scatter(kernel: Kernel, reducers: dict[str, Kernel]) -> Across:
    """`across` of reduce_scatter: the local reduction, then each process reduces its part of everybody's."""
    general = gathering(kernel)

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, dim, tiled, kind = params["axes"], params["dim"], params["tiled"], params.get("kind", "sum")
        line = line_of(env, axes)
        if not line.crosses or params.get("groups") is not None:
            return general(env, in_types, out_types, params)
        reduce = reducers[kind]
        at = env.lead - len(axes) + dim
        settled, tag = settling(env, in_types[0], axes), tag_of("reduce_scatter", env, in_types, params)

        def run(x: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            total = front[0] if len(front) == 1 else reduce(front, axis=0).astype(x.dtype, copy=False)
            if tiled:
                shape = total.shape
                total = total.reshape(*shape[:at], line.n, shape[at] // line.n, *shape[at + 1 :])
            parts = np.moveaxis(total, at, 0)
            out = pool.empty((len(line.mine), *parts.shape[1:]), parts.dtype)
            the_world().link(line.ranks).reduce_scatter([parts[s] for s in line.slices], out, kind, tag)
            return back_from(env, out, axes, dims)

        away = line.n - len(line.mine)
        return sending(run, block_bytes(env, in_types[0], axes) * away // line.n, line.ranks)

    return across


# -- moves -------------------------------------------------------------------------------------------------------------


def all_gather(kernel: Kernel) -> Across:
    """`across` of all_gather: everybody's parts arrive where they belong in the result."""
    general = gathering(kernel)

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, dim, tiled = params["axes"], params["dim"], params["tiled"]
        line = line_of(env, axes)
        if not line.crosses or params.get("groups") is not None:
            return general(env, in_types, out_types, params)
        at = env.lead - len(axes) + dim
        settled, tag = settling(env, in_types[0], axes), tag_of("all_gather", env, in_types, params)

        def run(x: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            rest = front.shape[1:]
            out = pool.empty((*rest[:at], line.n, *rest[at:]), front.dtype)
            fill_front(line, front, np.moveaxis(out, at, 0), tag)
            if tiled:
                out = out.reshape(*rest[:at], line.n * rest[at], *rest[at + 1 :])
            return np.expand_dims(out, tuple(sorted(dims)))

        sent = block_bytes(env, in_types[0], axes) * len(line.mine) * (len(line.ranks) - 1)
        return sending(run, sent, line.ranks)

    return across


def all_to_all(kernel: Kernel) -> Across:
    """`across` of all_to_all: each pair of processes swaps what belongs to the other's devices."""
    general = gathering(kernel)

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, split, concat, tiled = params["axes"], params["split"], params["concat"], params["tiled"]
        line = line_of(env, axes)
        views = all(isinstance(s, slice) for s in line.slices)
        if not line.crosses or params.get("groups") is not None or not views:
            return general(env, in_types, out_types, params)
        lead = env.lead - len(axes)
        count, m, me = len(line.ranks), len(line.mine), line.me
        others = [k for k in range(count) if k != me]
        lengths = sorted({(len(a), len(b)) for a in line.members for b in line.members})
        settled, tag = settling(env, in_types[0], axes), tag_of("all_to_all", env, in_types, params)

        def run(x: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            at, to = 1 + lead + split, lead + concat
            if tiled:
                shape = front.shape
                front = front.reshape(*shape[:at], line.n, shape[at] // line.n, *shape[at + 1 :])
            sent = np.moveaxis(front, at, 0)  # (destination, own source, loops..., rest)
            rest = sent.shape[2:]
            out = pool.empty((m, *rest[:to], line.n, *rest[to:]), sent.dtype)
            got = np.moveaxis(out, 1 + to, 1)  # (own destination, source, loops..., rest)
            sends = [(k, sent[line.slices[k]]) for k in others]
            takes = [(k, me - (me > k), got[:, line.slices[k]]) for k in others]
            got[:, line.slices[me]] = sent[line.slices[me]]
            the_world().link(line.ranks).swap(sends, takes, count - 1, [(*pair, *rest) for pair in lengths], tag)
            if tiled:
                out = out.reshape(m, *rest[:to], line.n * rest[to], *rest[to + 1 :])
            return back_from(env, out, axes, dims)

        return sending(run, block_bytes(env, in_types[0], axes) * m * (line.n - m) // line.n, line.ranks)

    return across


def ppermute(kernel: Kernel) -> Across:
    """`across` of ppermute: local moves, and one message to and from each process that has to do with this one's."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, perm = params["axes"], params["perm"]
        line = line_of(env, axes)
        if not line.crosses:
            return lambda x: kernel(env, x, **params)
        owner = {int(p): (k, i) for k, member in enumerate(line.members) for i, p in enumerate(member)}
        me = line.me
        messages: dict[int, dict[int, tuple[list[int], list[int]]]] = {k: {} for k in range(len(line.ranks))}
        own_from: list[int] = []
        own_to: list[int] = []
        for src, dst in sorted(perm):
            (k, i), (q, j) = owner[src], owner[dst]
            if k != q or k == me:
                taken, put = (own_from, own_to) if k == q else messages[k].setdefault(q, ([], []))
                taken.append(i)
                put.append(j)
        sends = [(q, as_slice(taken)) for q, (taken, _) in messages[me].items()]
        takes = [(k, list(of).index(me), as_slice(of[me][1]), len(of[me][1])) for k, of in messages.items() if me in of]
        fan = max(map(len, messages.values()))
        lengths = sorted({len(taken) for of in messages.values() for taken, _ in of.values()})
        filled = len(own_to) + sum(n for *_, n in takes) == len(line.mine)
        settled, tag = settling(env, in_types[0], axes), tag_of("ppermute", env, in_types, params)

        def run(x: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            rest = front.shape[1:]
            out = pool.empty(front.shape, front.dtype)
            if not filled:
                out[...] = np.zeros((), front.dtype)
            got = [(k, place, out[to] if isinstance(to, slice) else pool.empty((n, *rest), out.dtype))
                   for k, place, to, n in takes]  # fmt: skip
            shapes = [(n, *rest) for n in lengths]
            the_world().link(line.ranks).swap([(q, front[of]) for q, of in sends], got, fan, shapes, tag)
            if own_to:
                out[own_to] = front[own_from]
            for (_, _, to, _), (_, _, part) in zip(takes, got, strict=True):
                if not isinstance(to, slice):
                    out[to] = part
            return back_from(env, out, axes, dims)

        sent = block_bytes(env, in_types[0], axes) * sum(len(taken) for taken, _ in messages[me].values())
        return sending(run, sent, line.ranks)

    return across


def first_replica(kernel: Kernel) -> Across:
    """`across` of first_replica: who owns the first position along the axes hands its value to the others."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes = params["axes"]
        line = line_of(env, axes)
        if not line.crosses:
            return lambda x: kernel(env, x, **params)
        owner = next(k for k, member in enumerate(line.members) if 0 in member)
        at = list(line.members[owner]).index(0)
        settled, tag = settling(env, in_types[0], axes), tag_of("first_replica", env, in_types, params)

        def run(x: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            takes = [pool.empty((int(k == owner), *front.shape[1:]), front.dtype) for k in range(len(line.ranks))]
            own = front[at : at + 1] if line.me == owner else front[:0]
            the_world().link(line.ranks).all_gather(own, takes, tag)
            return np.expand_dims(takes[owner][0], tuple(sorted(dims)))

        sent = block_bytes(env, in_types[0], axes) * (len(line.ranks) - 1) if line.me == owner else 0
        return sending(run, sent, line.ranks)

    return across
