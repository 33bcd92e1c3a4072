"""Groups with reductions on blocks: how their loops lie in memory, which functions they need, and the calls.

A row that fits into the cache goes through all passes at once (see `fold_codegen`); long rows, and few ones, are cut into
pieces whose size depends on the shapes alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.ir import Literal, Program, Var
from shardwise.runtime.address import address
from shardwise.runtime.blocks import Ndarray
from shardwise.runtime.env import Env
from shardwise.runtime.fused.codegen import CONTIGUOUS, REPEATED, STREAMED, STRIDED, Kernel, assembled, width_of
from shardwise.runtime.fused.fold_codegen import FoldWriter
from shardwise.runtime.fused.frame import HEAD, Form
from shardwise.runtime.fused.layout import Met, Result, Work, dense_strides, memory_order, merged, placed, streams
from shardwise.runtime.fused.space import Graph, Space
from shardwise.runtime.machine import llvm
from shardwise.runtime.machine.standby import standby
from shardwise.runtime.machine.threads import thread_count
from shardwise.runtime.memory import pool
from shardwise.runtime.plan import Plan

Shape = tuple[int, ...]

_FEWEST = 1 << 14  # elements from which compiled loops pay
_CHUNK = 1 << 14  # elements that a thread takes at a time
_THREADED = 1 << 17  # elements from which a second thread pays
_CACHED = 1 << 20  # bytes of a row that pass after pass can read from the cache
_PIECE = 1 << 16  # elements of a piece of a long row
_KEPT = 1 << 18  # bytes beside results that wait for the next call
_STRIPS = 4  # vectors side by side, where lanes have results of their own


@dataclass(frozen=True, slots=True)
class _Step:
    """One function with its job."""

    kernel: Kernel
    job: Any
    threads: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is run for blocks of given shapes and strides, and the memory it needs besides blocks and results."""

    numbers: tuple[int, ...]  # the block that each access reads
    results: tuple[Result, ...]
    steps: tuple[_Step, ...]
    pointers: Any
    extra: tuple[
        int, int, int
    ]  # where values kept between passes begin, then accumulators of pieces, then their results
    bytes: int  # of all these
    spare: list[Ndarray]


@dataclass(frozen=True, slots=True)
class _Loops:
    """Loops in memory order: extents, which are reduced, and per access and output the strides in bytes."""

    extents: list[int]
    reduced: list[bool]
    strides: list[list[int]]


class FoldedKernel:
    """A group with reductions, callable on blocks; keeps a compiled layout per combination of shapes and strides."""

    __slots__ = ("_env", "_graphs", "_layouts", "_plain", "program", "space")

    def __init__(self, env: Env, program: Program, space: Space) -> None:
        self.program = program
        self.space = space
        self._env = env
        self._plain: Any = None
        self._layouts: Bounded[Any, _Layout | None] = Bounded(LAYOUTS)
        self._graphs: dict[bool, Graph] = {}

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        if not self._env.lead:  # NumPy functions of 0-d arrays give scalars
            blocks = tuple([np.asarray(b) for b in blocks])
        key = tuple([(b.shape, b.strides) for b in blocks])
        try:
            layout = self._layouts[key]
        except KeyError:
            layout = self._layouts[key] = self._layout(blocks)
        if layout is None:
            return self.plain(*blocks)
        outs = [r.empty() for r in layout.results]
        given = [address(blocks[i]) for i in layout.numbers] + [address(a) for a in outs]
        spare = self._memory(layout)
        if spare is not None:
            start = address(spare)
            given += [start + offset for offset in layout.extra]
        pointers = layout.pointers(*given)  # the rest, if any, is not used
        at = ctypes.addressof(pointers)
        for step in layout.steps:
            counters = (ctypes.c_int64 * 2)()
            standby.run(step.kernel, ctypes.addressof(step.job), at, ctypes.addressof(counters), step.threads)
        if spare is not None and layout.bytes <= _KEPT:
            layout.spare.append(spare)
        return tuple(outs)

    @staticmethod
    def _memory(layout: _Layout) -> Ndarray | None:
        """Memory for a call, besides results; a little is kept from call to call."""
        if not layout.bytes:
            return None
        try:
            return layout.spare.pop()
        except IndexError:
            return pool.empty((layout.bytes,), np.uint8)

    @property
    def plain(self) -> Any:
        """The group by the ops' own kernels, one after the other."""
        if self._plain is None:
            self._plain = Plan(self.program, self._env).run
        return self._plain

    def _graph(self, keeps: bool) -> Graph:
        if keeps not in self._graphs:
            self._graphs[keeps] = Graph(self.program, self.space, keeps)
        return self._graphs[keeps]

    # -- loops -----------------------------------------------------------------------------------------------------------

    def met(self, blocks: Sequence[Ndarray]) -> Met | None:
        """How loops meet blocks of these shapes and strides; None where they cannot be compiled."""
        if not all(b.dtype.isnative for b in blocks):
            return None
        graph = self._graph(True)
        lead, space = self._env.lead, self.space
        crossed = {self._env.dim(a) for a in space.crossed}
        loops = list(np.broadcast_shapes(*(b.shape[:lead] for b in blocks), (1,) * lead)) + list(space.shape)
        for axis in space.crossed:
            loops[self._env.dim(axis)] = self._env.size(axis)
        full = tuple(loops)
        if max(full) >= 1 << 31:
            return None
        shapes, strides = [], []
        for access in graph.accesses:
            shape, steps = _along_loops(blocks[access.number], access.places, lead, len(full))
            shapes.append(shape)
            strides.append(steps)
        order = memory_order(full, shapes, strides)
        results = []
        for var, extents in zip(graph.outputs, self._extents(graph, blocks, lead, crossed), strict=True):
            places = space.places(var.aval.shape)
            assert places is not None
            core = [1] * len(space.shape)
            for n, d in zip(var.aval.shape, places, strict=True):
                if d is not None:
                    core[d] = n
            shape = (*extents, *core)
            strides.append(dense_strides(shape, order, var.aval.dtype.itemsize))
            results.append(placed(var.aval.dtype, shape, order, (*extents, *var.aval.shape)))
        reduced = tuple(d in crossed or d - lead in space.axes for d in range(len(full)))
        positions = any(e.op.fold is not None and e.op.fold.positions for e in self.program.equations)
        if positions and sum(reduced[d] and full[d] > 1 for d in range(len(full))) > 1:
            return None
        numbers = tuple(a.number for a in graph.accesses)
        return Met(full, reduced, tuple(order), numbers, tuple(shapes), tuple(strides), tuple(results))

    def work(self, met: Met) -> Work | None:
        """The function and its job, if one thread can do all of it in one go."""
        layout = self._compile(self._graph(True), met, alone=True)
        if layout is None:
            return None
        (step,) = layout.steps
        return Work(step.kernel, step.job, layout.bytes, layout.extra)

    def _layout(self, blocks: Sequence[Ndarray]) -> _Layout | None:
        """The compiled layout for blocks like these; None where the ops' own kernels serve."""
        met = self.met(blocks)
        return None if met is None or math.prod(met.full) < _FEWEST else self._compile(self._graph(True), met)

    def _extents(self, graph: Graph, blocks: Sequence[Ndarray], lead: int, crossed: set[int]) -> list[Shape]:
        """Per output its extents along the grid's axes."""
        known: dict[Var, Shape] = {v: b.shape[:lead] for v, b in zip(self.program.inputs, blocks, strict=True)}
        for eqn in self.program.equations:
            extents = np.broadcast_shapes(*(known[a] for a in eqn.inputs if not isinstance(a, Literal)))
            if eqn.op.fold is not None:
                extents = tuple(1 if d in crossed else n for d, n in enumerate(extents))
            known[eqn.outputs[0]] = extents
        return [known[v] for v in graph.outputs]

    # -- functions -------------------------------------------------------------------------------------------------------

    def _compile(self, graph: Graph, met: Met, alone: bool = False) -> _Layout | None:
        """The functions and jobs for loops that are met so. `alone`: one function and one thread, or None."""
        loops, results = _merged_loops(*met.sorted()), met.results
        width = width_of(self.program)
        n = len(loops.extents)
        sizes = [graph.program.inputs[a.number].aval.dtype.itemsize for a in graph.accesses]
        sizes += [v.aval.dtype.itemsize for v in graph.outputs]
        last = n - 1
        if (
            not loops.reduced[last]
            and 4 <= loops.extents[last] < width
            and all(own[last] in (0, size) for own, size in zip(loops.strides, sizes, strict=True))
        ):
            width = 1 << (loops.extents[last].bit_length() - 1)  # short columns are shorter vectors
        lane = next((d for d in reversed(range(n)) if loops.extents[d] >= width), None)
        if lane is None:
            return None
        along = loops.reduced[lane]
        folded = [d for d in range(n) if loops.reduced[d]]
        inner = lane if along else folded[-1]
        kept = [d for d in range(n) if not loops.reduced[d] and d != lane]
        outer = [d for d in folded if d != inner]
        access = [
            REPEATED if own[lane] == 0 else CONTIGUOUS if own[lane] == size else STRIDED
            for own, size in zip(loops.strides, sizes, strict=True)
        ]
        length = math.prod(loops.extents[d] for d in folded)
        row_bytes = length * sum(s for s, a in zip(sizes, graph.accesses, strict=False) if not a.row)
        row_bytes += length * sum(v.aval.dtype.itemsize for saved in graph.saved for v in saved)
        if not along:
            side = 1
            if STRIDED not in access:
                room = (_CACHED // (row_bytes * width) if graph.passes > 1 else 0) or _STRIPS
                side = next((k for k in (4, 2) if k <= room and loops.extents[lane] >= k * width), 1)
            width *= side
            row_bytes *= width
        for k, (result, var) in enumerate(zip(results, graph.outputs, strict=True), len(graph.accesses)):
            nbytes, own = math.prod(result.shape) * result.dtype.itemsize, loops.strides[k]
            around = [s for d, s in enumerate(own) if d != lane]
            if (
                met.streaming
                and var in graph.full
                and access[k] == CONTIGUOUS
                and loops.extents[lane] % width == 0
                and streams(nbytes, around, loops.extents[lane], result.dtype.itemsize)
            ):
                access[k] = STREAMED
        strips = 1 if along else -(-loops.extents[lane] // width)
        units = strips * math.prod(loops.extents[d] for d in kept)
        work = length * (1 if along else width)
        count, rounds = loops.extents[inner], math.prod(loops.extents[d] for d in outer)
        split = (graph.passes > 1 and row_bytes > _CACHED) or (units < 8 and work > 2 * _PIECE)
        if split and alone:
            return None
        if split and graph.passes > 1:
            graph = self._graph(False)
        cut = "inner" if count >= rounds else "outer"
        form = Form(
            width,
            along,
            len(kept),
            len(outer),
            tuple(access),
            along and count % width != 0,
            cut,
            wide=llvm.target().wide,
        )
        each = (rounds if cut == "inner" else count) * (1 if along else width)
        piece = max(1, _PIECE // each)
        if along and cut == "inner":
            piece = -(-piece // width) * width
        whole = count if cut == "inner" else rounds
        pieces = -(-whole // piece)
        padded = -(-count // width) * width if along else count
        slot = rounds * padded * 8 * (1 if along else width)
        saved = sum(map(len, graph.saved))
        head = {"units": units, "grain": max(1, _CHUNK // work), "size": loops.extents[lane], "count": count, "rounds": rounds,
                "strips": strips, "pieces": pieces, "piece": piece, "padded": padded, "slot": slot}  # fmt: skip
        tail = [loops.extents[d] for d in (*kept, *outer)]
        for own in loops.strides:
            tail += [own[d] for d in (*kept, *outer, inner, lane)]
        elements = units * work
        threads = thread_count() if elements >= _THREADED and not alone else 1

        def step(text: str, **changed: int) -> _Step:
            values = head | changed
            fields = [values[name] for name in HEAD] + tail
            job = (ctypes.c_int64 * len(fields))(*fields)
            many = threads if fields[0] > fields[1] else 1
            return _Step(assembled(text), job, many)

        steps = []
        last = max([p for p in range(graph.passes) if graph.folds[p]], default=0)
        if split:
            for p in range(graph.passes):
                steps.append(step(FoldWriter(graph, form).part(p), units=units * pieces, grain=1))
                if graph.folds[p]:
                    steps.append(step(FoldWriter(graph, form).finish(p, p == last), grain=max(1, units // 16)))
        else:
            steps.append(step(FoldWriter(graph, form).whole()))
        vectors = 8 * width * units * 4 * max(1, sum(map(len, graph.folds)))
        pointers = ctypes.c_void_p * (len(access) + 3)
        scratch, parts, totals = threads * saved * slot, vectors * pieces if split else 0, vectors if split else 0
        extra = (0, scratch, scratch + parts)
        return _Layout(met.numbers, results, tuple(steps), pointers, extra, scratch + parts + totals, [])


def _along_loops(block: Ndarray, places: Sequence[int | None], lead: int, n: int) -> tuple[Shape, Shape]:
    """Extents and strides of a block per loop: grid axes, then the dims of the full shape."""
    shape, strides = [1] * n, [0] * n
    for d in range(lead):
        shape[d] = block.shape[d]
        strides[d] = block.strides[d] if block.shape[d] != 1 else 0
    for i, d in enumerate(places, lead):
        if d is not None and block.shape[i] != 1:
            shape[lead + d] = block.shape[i]
            strides[lead + d] = block.strides[i]
    return tuple(shape), tuple(strides)


def _merged_loops(extents: Sequence[int], reduced: Sequence[bool], strides: Sequence[Sequence[int]]) -> _Loops:
    """The loops with neighbours of one kind made one where that is possible; at least one is reduced."""
    out = _Loops([], [], [[] for _ in strides])
    start = 0
    while start < len(extents):
        end = start
        while end < len(extents) and (reduced[end] == reduced[start] or extents[end] == 1):
            end += 1
        sizes, steps = merged(extents[start:end], [s[start:end] for s in strides])
        if sizes != [1]:
            out.extents.extend(sizes)
            out.reduced.extend([reduced[start]] * len(sizes))
            for own, more in zip(out.strides, steps, strict=True):
                own.extend(more)
        start = end
    if not any(out.reduced):
        out.extents.append(1)
        out.reduced.append(True)
        for own in out.strides:
            own.append(0)
    return out
