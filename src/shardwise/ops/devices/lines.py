"""Collectives on a device grid that spans several processes: local block arithmetic and one exchange between processes.

Comes in: the `Env` of a grid over several processes. Goes out: the kernel of a collective for this process's blocks; its
attribute `sent` is the number of bytes that a call sends to other processes. The axes over which a value varies are read from
its type, not from the block: a process that owns one coordinate of an axis has extent 1 on it either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ndarray
from shardwise.ir import ShapedArray
from shardwise.ir.op import Params, Types
from shardwise.runtime.blocks import expand_dim, from_front, in_front
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes import number_of, the_world

Kernel = Callable[..., Ndarray]
AnyKernel = TypeVar("AnyKernel", bound=Callable[..., Any])
Across = Callable[[Env, Types, Types, Params], Kernel]


class Line:
    """The devices along `axes` that have this process's coordinates on all other axes, and the processes that own them.

    `members[k]` are the row-major positions along `axes` that process `ranks[k]` owns, `mine` are those of this process, and
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
            if all(coords[d] == own[d] for d in rest):  # processes form a grid: else they have nothing in common there
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
        """Whether the line has more than one process."""
        return len(self.ranks) > 1

    @property
    def me(self) -> int:
        """This process's index in `ranks`."""
        return next(k for k, m in enumerate(self.members) if m is self.mine)


def as_slice(positions: Any) -> slice | list[int]:
    """An index that selects ascending positions: a slice if they are evenly spaced, so that indexing gives a view."""
    numbers = [int(p) for p in positions]
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if numbers and step > 0 and numbers == list(range(numbers[0], numbers[0] + step * len(numbers), step)):
        return slice(numbers[0], numbers[-1] + 1, step)
    return numbers


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
    mine = tuple(
        tuple(range(n)) if d in dims else c
        for d, (n, c) in enumerate(zip(owners.shape, owners.coordinates, strict=True))
    )
    return replace(env, processes=replace(owners, owned={**owners.owned, owners.me: mine}))


def front_of(env: Env, block: Ndarray, axes: tuple[str, ...]) -> tuple[Ndarray, tuple[int, ...]]:
    """This process's entries along `axes` in one front dim, and the merged leading dims."""
    dims = tuple([env.dim(a) for a in axes])
    for a, d in zip(axes, dims, strict=True):
        block = expand_dim(block, d, env.extent(a))
    first = in_front(block, dims)
    if len(dims) == 1:
        return first, dims
    n = math.prod(first.shape[: len(dims)])
    return first.reshape(n, *first.shape[len(dims) :]), dims


def back_from(env: Env, front: Ndarray, axes: tuple[str, ...], dims: tuple[int, ...]) -> Ndarray:
    """Inverse of `front_of`."""
    if len(dims) != 1:
        front = front.reshape(*[env.extent(a) for a in axes], *front.shape[1:])
    return from_front(front, dims)


def varying_axes(aval: ShapedArray) -> frozenset[str]:
    """The axes along which blocks of a type differ between devices, including those of partial sums."""
    return aval.vma | aval.unreduced


def settle_extents(env: Env, aval: ShapedArray, axes: tuple[str, ...]) -> Callable[[Ndarray], Ndarray]:
    """A function that sets the extents of a block of type `aval`, on all axes but `axes`, to those that the type implies.

    Blocks that are sent need this: their extents must be the same on all processes.
    """
    wanted_extents = [
        (d, env.extent(a) if a in varying_axes(aval) else 1)
        for d, a in enumerate(env.axis_names)
        if a not in axes and env.extent(a) != 1
    ]

    def settle_block(block: Ndarray) -> Ndarray:
        for d, n in wanted_extents:
            if block.shape[d] != n:
                block = expand_dim(block, d, n) if n != 1 else block[(slice(None),) * d + (slice(0, 1),)]
        return block

    return settle_block


def own_part(env: Env, block: Ndarray, axes: tuple[str, ...]) -> Ndarray:
    """Select this process's coordinates from a block with every position along `axes`; extent 1 stays."""
    for a in axes:
        block = own_entries(env, block, a, env.dim(a))
    return block


def own_entries(env: Env, block: Ndarray, axis: str, dim: int) -> Ndarray:
    """Select this process's entries from a dim with one entry per position along a mesh axis (or 1): a view if adjacent."""
    assert env.processes is not None
    mine = env.processes.coordinates[env.dim(axis)]
    if block.shape[dim] == 1 or len(mine) == block.shape[dim]:
        return block
    near = mine[-1] - mine[0] == len(mine) - 1
    return block[(slice(None),) * dim + (slice(mine[0], mine[-1] + 1) if near else list(mine),)]


def block_bytes(env: Env, aval: ShapedArray, axes: tuple[str, ...]) -> int:
    """The bytes of a block of type `aval` per position along `axes`."""
    return aval.nbytes * math.prod(env.extent(a) for a in env.axis_names if a not in axes and a in varying_axes(aval))


def annotate_sends(run: AnyKernel, sent: int, ranks: tuple[int, ...]) -> AnyKernel:
    """Annotate `run`: each call makes one exchange between the processes `ranks` and sends `sent` bytes to others."""
    run.sent = sent  # type: ignore[attr-defined]
    run.ranks = ranks  # type: ignore[attr-defined]
    return run


def tag_of(what: str, env: Env, types: Types, params: Params) -> int:
    """The tag of an exchange, the same on all processes."""
    param_texts = [f"{k}={v}" for k, v in sorted(params.items())]
    return number_of(" ".join([what, str(env.axis_sizes), *[t.str_short() for t in types], *param_texts]))


def gather_across(kernel: Kernel) -> Across:
    """`across` for any collective: gather every position along its axes, run its kernel, keep this process's part."""

    def across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
        axes = params["axes"]
        line = line_of(env, axes)
        whole = whole_env(env, axes)
        if not line.crosses:
            return lambda *blocks: kernel(env, *blocks, **params)
        settle, tag = settle_extents(env, in_types[0], axes), tag_of("gather", env, in_types, params)

        def run(x: Ndarray, *more: Ndarray) -> Ndarray:
            front, dims = front_of(env, settle(x), axes)
            every = pool.empty((line.n, *front.shape[1:]), front.dtype)
            fill_front(line, front, every, tag)
            return own_part(env, kernel(whole, back_from(whole, every, axes, dims), *more, **params), axes)

        sent_bytes = block_bytes(env, in_types[0], axes) * len(line.mine) * (len(line.ranks) - 1)
        return annotate_sends(run, sent_bytes, line.ranks)

    return across


def fill_front(line: Line, front: Ndarray, every: Ndarray, tag: int) -> None:
    """Write the entries of all processes of the line into dim 0 of `every`, each at its position."""
    link = the_world().link(line.ranks)
    if all(isinstance(s, slice) for s in line.slices):
        link.all_gather(front, [every[s] for s in line.slices], tag)
        return
    takes = [pool.empty((len(m), *front.shape[1:]), front.dtype) for m in line.members]
    link.all_gather(front, takes, tag)
    for take, where in zip(takes, line.members, strict=True):
        every[where] = take
