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
from shardwise.base.shapes import Ndarray
from shardwise.ir import Literal, Program, calls_user, subprograms
from shardwise.ir.op import unwrap_op
from shardwise.ops.control.regions import loop_plan
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool

_MOST = 0.75  # of an axis; with more devices on it the branch runs on all

Run = Callable[[list[Ndarray]], tuple[Ndarray, ...]]
Places = slice | Ndarray


@dataclass(frozen=True, slots=True)
class _Line:
    """Devices along a leading dim. `taken`: those whose blocks are computed; `own`: which of these take the branch, at `members`."""

    dim: int
    size: int
    taken: Places
    own: Places
    members: Places


class SomeDevices:
    """Branches over blocks, each on the devices that take it."""

    __slots__ = ("_env", "_grids", "_plans", "_programs")

    def __init__(self, programs: Sequence[Program], env: Env) -> None:
        self._programs = programs
        self._env = env
        self._grids = Bounded[tuple[Any, ...], list[tuple[int, list[_Line]]] | None](LAYOUTS)
        self._plans = Bounded[tuple[Any, ...], Run](LAYOUTS)

    def __call__(self, index: Ndarray, blocks: Sequence[Ndarray]) -> tuple[Ndarray, ...] | None:
        """The results; None where the devices of a branch are no grid of their own."""
        key = index.shape, index.tobytes()
        try:
            found = self._grids[key]
        except KeyError:
            found = self._grids[key] = _grids_of(index)
        if found is None:
            return None
        parts = [(lines, self._run(i, lines, blocks)) for i, lines in found]
        return tuple(_join([(lines, outs[k]) for lines, outs in parts], index.shape) for k in range(len(parts[0][1])))

    def _run(self, i: int, lines: Sequence[_Line], blocks: Sequence[Ndarray]) -> Sequence[Ndarray]:
        program = self._programs[i]
        if not program.equations:  # results are operands or constants
            at = {v: n for n, v in enumerate(program.inputs)}
            lead = (1,) * self._env.lead
            return [
                _cut(
                    np.asarray(a.value).reshape(lead + a.aval.shape) if isinstance(a, Literal) else blocks[at[a]], lines
                )
                for a in program.outputs
            ]
        sizes = list(self._env.axis_sizes)
        for line in lines:
            sizes[line.dim] = line.size
        key = (i, *sizes)
        plan = self._plans.get(key)
        if plan is None:
            env = replace(self._env, axis_sizes=tuple(sizes))
            plan = self._plans[key] = loop_plan(program, env, 0, len(program.inputs))
        return plan([_cut(b, lines) for b in blocks])


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
    found = list[tuple[int, list[_Line]]]()
    for i in np.unique(index).tolist():
        lines = _lines_of(index == i, dims)
        if lines is None:
            return None
        found.append((i, lines))
    return found


def _lines_of(mask: Ndarray, dims: Sequence[int]) -> list[_Line] | None:
    """The devices of `mask` as a grid: along each dim those that it has. None if it is none, or no few slices."""
    lines = list[_Line]()
    for d in dims:
        others = tuple(k for k in range(mask.ndim) if k != d)
        lines.append(_line(d, mask.shape[d], np.flatnonzero(mask.any(others))))
    counts = [len(range(x.size)[x.own]) if isinstance(x.own, slice) else len(x.own) for x in lines]
    listed = sum(isinstance(p, np.ndarray) for x in lines for p in (x.taken, x.members))
    return lines if np.count_nonzero(mask) == math.prod(counts) and (listed == 0 or len(lines) == 1) else None


def _line(dim: int, n: int, members: Ndarray) -> _Line:
    count, first = len(members), int(members[0])
    step = int(members[1]) - first if count > 1 else 1
    even = count == 1 or bool((np.diff(members) == step).all())
    places: Places = slice(first, int(members[-1]) + 1, step) if even else members
    size = _round_up(count)
    if size > _MOST * n:
        return _Line(dim, n, slice(None), places, places)
    more = size - count
    if even and first + (size - 1) * step < n:
        return _Line(dim, size, slice(first, first + (size - 1) * step + 1, step), slice(0, count), places)
    if even and first - more * step >= 0:
        begin = first - more * step
        return _Line(dim, size, slice(begin, int(members[-1]) + 1, step), slice(more, size), places)
    taken = np.concatenate([members, np.repeat(members[-1:], more)])
    return _Line(dim, size, taken, slice(0, count), places)


def _round_up(count: int) -> int:
    """The least of 1, 2, 3, 4, 6, 8, 12, ... that is no less."""
    size = 1 << (count - 1).bit_length()
    return 3 * size // 4 if size >= 4 and 3 * size // 4 >= count else size


def _index(lines: Sequence[_Line], shape: Sequence[int], which: str) -> tuple[Any, ...]:
    """The index of such places in a block; dims where it has one part are left whole."""
    index: list[Any] = [slice(None)] * (max(x.dim for x in lines) + 1)
    for line in lines:
        if shape[line.dim] > 1:
            index[line.dim] = getattr(line, which)
    return tuple(index)


def _cut(block: Ndarray, lines: Sequence[_Line]) -> Ndarray:
    return block[_index(lines, block.shape, "taken")]


def _join(parts: Sequence[tuple[Sequence[_Line], Ndarray]], extents: Sequence[int]) -> Ndarray:
    """The results of all branches, each at its devices; `extents`: of the index, which says how many these are."""
    shapes = [tuple(map(max, extents, x.shape)) + x.shape[len(extents) :] for _, x in parts]
    out = pool.empty(np.broadcast_shapes(*shapes), parts[0][1].dtype)
    for lines, x in parts:
        out[_index(lines, out.shape, "members")] = x[_index(lines, x.shape, "own")]
    return out
