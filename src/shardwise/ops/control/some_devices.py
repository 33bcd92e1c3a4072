"""Branches that some devices take: a branch runs on the blocks of its own devices, as if there were no others.

Comes in: which branch each device takes, and blocks. Goes out: the results of all, put together. Devices along an axis that take a branch
are a slice of its blocks where they are evenly spaced, else a copy. Their number is rounded up, so that there are few plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Literal, Program, Var, calls_user, subprograms
from shardwise.ir.op import unwrap_op
from shardwise.ops.control.regions import loop_plan
from shardwise.runtime.env import Env
from shardwise.runtime.memory import alone, pool

_MOST = 0.75  # of an axis; with more devices on it the branch runs on all

Run = Callable[[list[Ndarray]], tuple[Ndarray, ...]]
Places = slice | Ndarray


@dataclass(frozen=True, slots=True)
class _Line:
    """Devices along a leading dim. `blocks`: those whose blocks are computed; `own`: which of these take the branch, at `members`."""

    dim: int
    size: int
    blocks: Places
    own: Places
    members: Places


class _BranchDevices:
    """The devices that take a branch: its number, where they lie along leading dims, and how many are computed along each dim."""

    __slots__ = ("_dims", "_indices", "branch", "lines", "sizes")

    def __init__(self, branch: int, lines: Sequence[_Line], axis_sizes: Sequence[int]) -> None:
        self.branch = branch
        self.lines = lines
        sizes = list(axis_sizes)
        for line in lines:
            sizes[line.dim] = line.size
        self.sizes = tuple(sizes)
        self._dims = max(x.dim for x in lines) + 1
        self._indices = dict[tuple[Any, ...], tuple[Any, ...]]()

    def index(self, shape: Shape, which: str) -> tuple[Any, ...]:
        """The index of such places in a block; dims where it has one part are left whole."""
        key = which, *shape[: self._dims]
        cached_index = self._indices.get(key)
        if cached_index is None:
            index: list[Any] = [slice(None)] * self._dims
            for line in self.lines:
                if shape[line.dim] > 1:
                    index[line.dim] = getattr(line, which)
            cached_index = self._indices[key] = tuple(index)
        return cached_index

    def cut(self, block: Ndarray) -> Ndarray:
        """The parts of the devices that are computed."""
        return block[self.index(block.shape, "blocks")]


class SomeDevices:
    """Branches over blocks, each on the devices that take it."""

    __slots__ = ("_env", "_grids", "_handed_on", "_plans", "_programs")

    def __init__(self, programs: Sequence[Program], env: Env) -> None:
        self._programs = programs
        self._env = env
        self._grids = Bounded[tuple[Any, ...], list[_BranchDevices] | None]()
        # By branch: which operand a result is.
        self._handed_on = [
            {k: p.inputs.index(v) for k, v in enumerate(p.outputs) if isinstance(v, Var) and v in p.inputs}
            for p in programs
        ]
        self._plans = Bounded[tuple[Any, ...], Run](LAYOUTS)

    def __call__(
        self, index: Ndarray, blocks: list[Ndarray], free: Sequence[int] = ()
    ) -> tuple[tuple[Ndarray, ...], list[int]] | None:
        """The results, and the blocks that these were written over; None where the devices of a branch are no grid of their own.

        `free`: the blocks that may be written over where nothing but the list refers to them. A result that is its operand on many devices
        then stays where it is.
        """
        key = index.shape, index.tobytes()
        try:
            branch_devices = self._grids[key]
        except KeyError:
            branch_devices = self._grids[key] = self._grids_of(index.clip(0, len(self._programs) - 1))
        if branch_devices is None:
            return None
        over = self._over(branch_devices, blocks, free) if free else {}
        parts = [(self._handed_on[group.branch], group, self._run(group, blocks)) for group in branch_devices]
        joined_results, used = list[Ndarray](), list[int]()
        for k in range(len(parts[0][2])):
            own, n = [(group, outs[k]) for _, group, outs in parts], over.get(k)
            shape = _shape_of([x.shape for _, x in own], index.shape)
            if n is None or blocks[n].shape != shape or _is_read(blocks[n], parts, k):
                out = pool.empty(shape, own[0][1].dtype)
            else:
                out = blocks[n]
                own = [part for part, (forwards, _, _) in zip(own, parts, strict=True) if forwards.get(k) != n]
                used.append(n)
            for group, x in own:
                out[group.index(shape, "members")] = x[group.index(x.shape, "own")]
            joined_results.append(out)
        return tuple(joined_results), used

    def _over(self, found: Sequence[_BranchDevices], blocks: list[Ndarray], free: Sequence[int]) -> dict[int, int]:
        """By result the operand that some branch hands on as it, and that only the list refers to."""
        over = dict[int, int]()
        for group in found:
            for k, n in self._handed_on[group.branch].items():
                if k not in over and n not in over.values() and n in free and alone(blocks, n):
                    over[k] = n
        return over

    def _grids_of(self, index: Ndarray) -> list[_BranchDevices] | None:
        lines_of_branches = _grids_of(index)
        return (
            None
            if lines_of_branches is None
            else [_BranchDevices(i, lines, self._env.axis_sizes) for i, lines in lines_of_branches]
        )

    def _run(self, group: _BranchDevices, blocks: Sequence[Ndarray]) -> Sequence[Ndarray]:
        program = self._programs[group.branch]
        if not program.equations:  # results are operands or constants
            at = {v: n for n, v in enumerate(program.inputs)}
            lead = (1,) * self._env.lead
            return [
                group.cut(np.asarray(a.value).reshape(lead + a.aval.shape) if isinstance(a, Literal) else blocks[at[a]])
                for a in program.outputs
            ]
        key = group.branch, *group.sizes
        plan = self._plans.get(key)
        if plan is None:
            env = replace(self._env, axis_sizes=group.sizes)
            plan = self._plans[key] = loop_plan(program, env, 0, len(program.inputs))
        return plan([group.cut(b) for b in blocks])


def runs_apart(programs: Sequence[Program], env: Env, axes: frozenset[str]) -> bool:
    """Whether the branches compute the same on some of the devices along these axes as on all."""
    return not env.extra and env.processes is None and all(_is_local(p, axes) for p in programs)


def _is_local(program: Program, axes: frozenset[str]) -> bool:
    for eqn in program.equations:
        op, params, _ = unwrap_op(eqn.op, eqn.params)
        if op.collective is not None and not op.hands_on and not axes.isdisjoint(params.get("axes", axes)):
            return False
        if calls_user(eqn) or not all(_is_local(p, axes) for _, p in subprograms(eqn.params)):
            return False
    return True


def _grids_of(index: Ndarray) -> list[tuple[int, list[_Line]]] | None:
    """The devices of each branch that is taken."""
    dims = [d for d, n in enumerate(index.shape) if n > 1]
    if len(dims) == 1:  # faster than masks
        members = dict[int, list[int]]()
        for device, i in enumerate(index.ravel().tolist()):
            members.setdefault(i, []).append(device)
        return [(i, [_line(dims[0], index.size, own)]) for i, own in members.items()]
    lines_of_branches = list[tuple[int, list[_Line]]]()
    for i in np.unique(index).tolist():
        lines = _lines_of(index == i, dims)
        if lines is None:
            return None
        lines_of_branches.append((i, lines))
    return lines_of_branches


def _lines_of(mask: Ndarray, dims: Sequence[int]) -> list[_Line] | None:
    """The devices of `mask` as a grid of slices: along each dim those that it has. None if they are none."""
    places = np.nonzero(mask)
    members = [sorted(set(places[d].tolist())) for d in dims]
    if len(places[0]) != math.prod(map(len, members)):
        return None
    lines = [_line(d, mask.shape[d], own) for d, own in zip(dims, members, strict=True)]
    return None if any(type(p) is not slice for x in lines for p in (x.blocks, x.members)) else lines


def _line(dim: int, n: int, members: list[int]) -> _Line:
    count, first, last = len(members), members[0], members[-1]
    step = members[1] - first if count > 1 else 1
    even = members == list(range(first, last + 1, step))
    places: Places = slice(first, last + 1, step) if even else np.array(members)
    size = _round_up(count)
    if size > _MOST * n:
        return _Line(dim, n, slice(None), places, places)
    more = size - count
    if even and first + (size - 1) * step < n:
        return _Line(dim, size, slice(first, first + (size - 1) * step + 1, step), slice(0, count), places)
    if even and first >= more * step:
        return _Line(dim, size, slice(first - more * step, last + 1, step), slice(more, size), places)
    return _Line(dim, size, np.array(members + members[-1:] * more), slice(0, count), places)


def _round_up(count: int) -> int:
    """The least of 1, 2, 3, 4, 6, 8, 12, ... that is no less."""
    size = 1 << (count - 1).bit_length()
    return 3 * size // 4 if size >= 4 and 3 * size // 4 >= count else size


def _shape_of(shapes: Sequence[Shape], extents: Sequence[int]) -> Shape:
    """The shape of the results of all branches together; `extents`: of the index, which says how many devices there are."""
    return (*map(max, extents, *shapes), *shapes[0][len(extents) :])


def _is_read(block: Ndarray, parts: Sequence[tuple[Any, _BranchDevices, Sequence[Ndarray]]], k: int) -> bool:
    """Whether a result other than number k lies in the block."""
    return any(np.may_share_memory(block, x) for _, _, outs in parts for m, x in enumerate(outs) if m != k)
