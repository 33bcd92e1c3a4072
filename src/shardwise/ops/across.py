"""Collectives where the device grid lies over several processes: local block arithmetic and one MPI call.

Comes in: the `Env` of a grid over several processes. Goes out: the kernel of a collective for this process's blocks. Which axes
a value varies over is read from its type: a process that owns one coordinate of an axis has extent 1 on it either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from shardwise.ir import ShapedArray
from shardwise.ir.op import Params, Types
from shardwise.runtime.blocks import Ndarray, expanded
from shardwise.runtime.comm import as_bytes, the_world
from shardwise.runtime.env import Env

Kernel = Callable[..., Ndarray]
_SMALL = 1 << 15  # bytes up to which reductions that MPI lacks are done by everybody on everything


class Line:
    """The devices along `axes` that share this process's coordinates on all others, and the processes that own them.

    `members[k]` are the row-major positions along `axes` that process `ranks[k]` owns, `mine` those of this process.
    """

    __slots__ = ("axes", "members", "mine", "n", "order", "ranks")

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
        joined = np.concatenate(members)
        order = np.argsort(joined)
        self.order = None if (order == np.arange(len(order))).all() else order

    @property
    def even(self) -> bool:
        """Whether all processes own equally many positions."""
        return len({len(m) for m in self.members}) == 1

    @property
    def crosses(self) -> bool:
        """Whether there is more than one process."""
        return len(self.ranks) > 1

    def sorted(self, gathered: Ndarray) -> Ndarray:
        """Entries in the order of ranks (dim 0) in the order of positions."""
        return gathered if self.order is None else gathered[self.order]


@lru_cache(maxsize=4096)
def line_of(env: Env, axes: tuple[str, ...]) -> Line:
    """The (cached) Line of `axes`."""
    return Line(env, axes)


@lru_cache(maxsize=4096)
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


def settling(env: Env, aval: ShapedArray, axes: tuple[str, ...]) -> Callable[[Ndarray], Ndarray]:
    """A function that gives a block of type `aval` the extents that follow from the type on the axes besides `axes`.

    Blocks that go to other processes need that: there extents must be the same.
    """
    wanted = [(d, env.extent(a) if a in aval.vma else 1) for d, a in enumerate(env.axis_names)
              if a not in axes and env.extent(a) != 1]  # fmt: skip

    def settled(block: Ndarray) -> Ndarray:
        for d, n in wanted:
            if block.shape[d] != n:
                block = expanded(block, d, n) if n != 1 else block[(slice(None),) * d + (slice(0, 1),)]
        return block

    return settled


def gathered_front(line: Line, front: Ndarray) -> Ndarray:
    """The entries of all processes of the line, in the order of positions."""
    world = the_world()
    if line.even:
        out = world.allgather(line.ranks, front)
        return line.sorted(out.reshape(line.n, *front.shape[1:]))
    out = np.empty((line.n, *front.shape[1:]), front.dtype)
    if out.nbytes:
        counts = [len(m) * (out.nbytes // line.n) for m in line.members]
        world.group(line.ranks).Allgatherv(as_bytes(np.ascontiguousarray(front)), (as_bytes(out), counts))
    return line.sorted(out)


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


def gathering(kernel: Kernel) -> Callable[[Env, Types, Types, Params], Kernel]:
    """`across` for any collective: bring every position along its axes here, run its kernel, keep the own part."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes = params["axes"]
        line = line_of(env, axes)
        whole = whole_env(env, axes)
        if not line.crosses:
            return lambda *blocks: kernel(env, *blocks, **params)

        settled = settling(env, in_types[0], axes)

        def run(x: Ndarray, *more: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            full = back_from(whole, gathered_front(line, front), axes, dims)
            return own_part(env, kernel(whole, full, *more, **params), axes)

        return run

    return across


# -- all-reduce --------------------------------------------------------------------------------------------------------


def all_reduce(kernel: Kernel, reducers: dict[str, Kernel], repeated: Kernel) -> Callable[..., Kernel]:
    """`across` of all_reduce: the local reduction, then MPI's over the processes."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, kind = params["axes"], params["kind"]
        line = line_of(env, axes)
        if params.get("groups") is not None:
            return gathering(kernel)(env, in_types, out_types, params)
        if not line.crosses:
            return lambda x: kernel(env, x, **params)
        aval = in_types[0]
        varying = tuple(a for a in axes if a in aval.vma)
        copies = math.prod(env.size(a) for a in axes if a not in varying)
        part = line_of(env, varying)
        dims = tuple(env.dim(a) for a in varying)
        reduce, counted = reducers[kind], kind in ("sum", "prod", "xor")
        settled = settling(env, aval, varying)
        op = the_world().reduce_op(kind, aval.dtype)
        if part.crosses and op is not None and copies == 1 and all(env.extent(a) == 1 for a in varying):

            def exchange(x: Ndarray) -> Ndarray:
                x = settled(x)
                out = np.empty(x.shape, x.dtype)
                the_world().group(part.ranks).Allreduce(x if x.flags.c_contiguous else np.ascontiguousarray(x), out, op)
                return out

            return exchange

        def run(x: Ndarray) -> Ndarray:
            x = settled(x)
            here = tuple(d for d in dims if x.shape[d] != 1)
            out = reduce(x, axis=here, keepdims=True).astype(x.dtype, copy=False) if here else x
            if counted:
                alike = math.prod(env.extent(a) for a, d in zip(varying, dims, strict=True) if x.shape[d] == 1)
                if alike != 1:
                    out = repeated(out, kind, alike)
            if part.crosses:
                out = reduced(part, kind, reduce, out)
            return repeated(out, kind, copies) if counted and copies != 1 else out

        return run

    return across


def reduced(line: Line, kind: str, reduce: Kernel, x: Ndarray) -> Ndarray:
    """The reduction over the processes of the line, on each of them."""
    world = the_world()
    op = world.reduce_op(kind, x.dtype)
    if op is not None:
        comm = world.group(line.ranks)
        out = np.empty(x.shape, x.dtype)
        comm.Allreduce(np.ascontiguousarray(x), out, op)
        return out
    if x.nbytes <= _SMALL or x.size < len(line.ranks):
        return reduce(world.allgather(line.ranks, x), axis=0).astype(x.dtype, copy=False)
    # Each process reduces one part of everybody's values and tells the result.
    count = len(line.ranks)
    flat = np.ascontiguousarray(x).reshape(-1)
    size = -(-flat.size // count)
    send = np.empty((count, size), x.dtype)
    send.reshape(-1)[: flat.size] = flat
    send.reshape(-1)[flat.size :] = flat[:1]
    taken = np.empty_like(send)
    world.group(line.ranks).Alltoall(as_bytes(send), as_bytes(taken))
    part = reduce(taken, axis=0).astype(x.dtype, copy=False)
    return world.allgather(line.ranks, part).reshape(-1)[: flat.size].reshape(x.shape)


# -- all-gather, reduce-scatter, all-to-all, permutations --------------------------------------------------------------


def reduce_scatter(kernel: Kernel, reducers: dict[str, Kernel]) -> Callable[..., Kernel]:
    """`across` of reduce_scatter: the local reduction, then MPI's reduce-scatter."""
    general = gathering(kernel)

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, dim, tiled, kind = params["axes"], params["dim"], params["tiled"], params.get("kind", "sum")
        line = line_of(env, axes)
        op = the_world().reduce_op(kind, in_types[0].dtype)
        if not line.crosses or params.get("groups") is not None or op is None:
            return general(env, in_types, out_types, params)
        reduce = reducers[kind]
        at = env.lead - len(axes) + dim
        to_ranks = np.concatenate(line.members)
        plain = (to_ranks == np.arange(line.n)).all()

        settled = settling(env, in_types[0], axes)

        def run(x: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            total = reduce(front, axis=0).astype(x.dtype, copy=False)
            if tiled:
                shape = total.shape
                total = total.reshape(*shape[:at], line.n, shape[at] // line.n, *shape[at + 1 :])
            parts = np.moveaxis(total, at, 0)
            parts = np.ascontiguousarray(parts if plain else parts[to_ranks])
            out = np.empty((len(line.mine), *parts.shape[1:]), parts.dtype)
            one = parts.size // line.n
            the_world().group(line.ranks).Reduce_scatter(parts, out, [len(m) * one for m in line.members], op)
            return back_from(env, out, axes, dims)

        return run

    return across


def all_to_all(kernel: Kernel) -> Callable[..., Kernel]:
    """`across` of all_to_all: parts sorted by the process they go to, one MPI all-to-all, and joined."""
    general = gathering(kernel)

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, split, concat, tiled = params["axes"], params["split"], params["concat"], params["tiled"]
        line = line_of(env, axes)
        if not line.crosses or params.get("groups") is not None or not line.even:
            return general(env, in_types, out_types, params)
        lead = env.lead - len(axes)
        count, m = len(line.ranks), len(line.mine)
        to_ranks = np.concatenate(line.members)
        plain = (to_ranks == np.arange(line.n)).all()

        settled = settling(env, in_types[0], axes)

        def run(x: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            at = 1 + lead + split
            if tiled:
                shape = front.shape
                front = front.reshape(*shape[:at], line.n, shape[at] // line.n, *shape[at + 1 :])
            sent = np.moveaxis(front, at, 0)  # (destination, own source, loops..., rest)
            sent = np.ascontiguousarray(sent if plain else sent[to_ranks])
            got = np.empty((count, m, *sent.shape[1:]), sent.dtype)
            if got.nbytes:
                the_world().group(line.ranks).Alltoall(as_bytes(sent), as_bytes(got))
            # (process, own destination, its source, ...) -> (own destination, source, ...)
            parts = np.moveaxis(got, 0, 1).reshape(m, line.n, *sent.shape[2:])
            parts = parts if line.order is None else parts[:, line.order]
            to = 1 + lead + concat
            parts = np.moveaxis(parts, 1, to)
            if tiled:
                shape = parts.shape
                parts = parts.reshape(*shape[:to], shape[to] * shape[to + 1], *shape[to + 2 :])
            return back_from(env, parts, axes, dims)

        return run

    return across


def ppermute(kernel: Kernel) -> Callable[..., Kernel]:
    """`across` of ppermute: local moves, and one message to and from each process that has to do with this one's."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes, perm = params["axes"], params["perm"]
        line = line_of(env, axes)
        if not line.crosses:
            return lambda x: kernel(env, x, **params)
        owner = {int(p): (k, i) for k, member in enumerate(line.members) for i, p in enumerate(member)}
        mine = {int(p) for p in line.mine}
        sends: dict[int, list[int]] = {}
        takes: dict[int, list[int]] = {}
        own_from, own_to = [], []
        for src, dst in sorted(perm):
            (k, i), (q, j) = owner[src], owner[dst]
            if src in mine and dst in mine:
                own_from.append(i)
                own_to.append(j)
            elif src in mine:
                sends.setdefault(q, []).append(i)
            elif dst in mine:
                takes.setdefault(k, []).append(j)
        filled = len(own_to) + sum(map(len, takes.values())) == len(line.mine)

        settled = settling(env, in_types[0], axes)

        def run(x: Ndarray) -> Ndarray:
            front, dims = front_of(env, settled(x), axes)
            comm = the_world().group(line.ranks)
            out = (np.empty if filled else np.zeros)(front.shape, front.dtype)
            rest = front.shape[1:]
            taken = {k: np.empty((len(to), *rest), front.dtype) for k, to in takes.items()}
            kept = {q: np.ascontiguousarray(front[of]) for q, of in sends.items()}
            requests = [comm.Irecv(as_bytes(part), source=k, tag=7) for k, part in taken.items()]
            requests += [comm.Isend(as_bytes(part), dest=q, tag=7) for q, part in kept.items()]
            if own_to:
                out[own_to] = front[own_from]
            for request in requests:
                request.Wait()
            for k, part in taken.items():
                out[takes[k]] = part
            return back_from(env, out, axes, dims)

        return run

    return across
