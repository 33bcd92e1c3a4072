"""The op 'fused': a group of equations as one loop over memory; with reductions, as in `runtime.fused_folds`.

Small calls run the group's NumPy functions, as without fusion. From `FEWEST` elements on, the group is compiled (see
`runtime.fused_codegen`) for the way its blocks lie in memory: dims are put in memory order and merged where strides allow, and
results keep that order, so that blocks of a split array stay dense.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.ir import Equation, Literal, Program, ShapedArray, Var, define_op
from shardwise.ir.op import Params, Types
from shardwise.runtime.address import address
from shardwise.runtime.blocks import Ndarray
from shardwise.runtime.env import Env
from shardwise.runtime.fused.codegen import CONTIGUOUS, REPEATED, STREAMED, STRIDED, Kernel, compiled, width_of
from shardwise.runtime.fused.folds import FoldedKernel
from shardwise.runtime.fused.layout import (
    Met,
    Result,
    Work,
    dense_strides,
    lined_up,
    memory_order,
    merged,
    placed,
    streams,
    tiled,
)
from shardwise.runtime.fused.space import Space
from shardwise.runtime.fused.tiled import TiledKernel
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.machine.standby import standby
from shardwise.runtime.machine.threads import thread_count
from shardwise.runtime.memory import alone
from shardwise.runtime.plan import Plan

FEWEST = 1 << 14  # elements from which a compiled loop pays
_CHUNK = 1 << 14  # elements that a thread takes at a time
_THREADED = 1 << 18  # work, in elements times what each costs beside an addition, from which a second thread pays

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """A kernel and its job for blocks of given shapes and strides."""

    kernel: Kernel
    inside: Callable[[], Kernel]  # one that does not write past the cache: what is written over was read just before
    job: Any
    pointers: Any  # the ctypes type of the array of pointers
    results: tuple[Result, ...]
    over: tuple[tuple[int, int], ...]  # (result, operand) that lie alike in memory: one may be written over the other
    threads: int


class FusedKernel:
    """A group of equations, callable on blocks; keeps a compiled layout per combination of shapes and strides."""

    __slots__ = ("_cost", "_env", "_layouts", "_plain", "_scalars", "depends", "program")

    def __init__(self, env: Env, program: Program) -> None:
        self.program = program
        self._env = env
        self._plain: Any = None
        self._scalars = not env.lead and any(v.aval.ndim == 0 for v in program.inputs)
        self._layouts: Bounded[Any, _Layout | None] = Bounded(LAYOUTS)
        self.depends = _dependencies(program)
        self._cost = sum(e.op.emit.cost for e in program.equations if e.op.emit is not None)

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        return self._run(blocks, ())

    def over(self, free: Sequence[int], blocks: list[Ndarray]) -> tuple[Ndarray, ...]:
        """The results, written over those operands of `free` (positions) that nothing but the list can reach."""
        return self._run(blocks, free)

    def _run(self, blocks: Sequence[Ndarray], free: Sequence[int]) -> tuple[Ndarray, ...]:
        if self._scalars:  # NumPy functions of 0-d arrays give scalars
            blocks = [np.asarray(b) for b in blocks]
        key = tuple([(b.shape, b.strides) for b in blocks])
        try:
            layout = self._layouts[key]
        except KeyError:
            layout = self._layouts[key] = self._layout(blocks)
        if layout is None:
            return self.plain(*blocks)
        taken = self._written_over(layout, blocks, free)
        outs = [blocks[taken[j]].view(r.dtype) if j in taken else r.empty() for j, r in enumerate(layout.results)]
        kernel = layout.inside() if taken else layout.kernel
        addresses = [address(b) for b in (*blocks, *outs)]
        for i in taken.values():
            blocks[i] = None  # type: ignore[index]  a list, whose owner sees what is left
        pointers, counter = layout.pointers(*addresses), ctypes.c_int64(0)
        at, count = ctypes.addressof(pointers), ctypes.addressof(counter)
        standby.run(kernel, ctypes.addressof(layout.job), at, count, layout.threads)
        return tuple(outs)

    @staticmethod
    def _written_over(layout: _Layout, blocks: Sequence[Ndarray], free: Sequence[int]) -> dict[int, int]:
        """By the result's position, that of an operand that dies and in whose memory it goes."""
        taken: dict[int, int] = {}
        if free and isinstance(blocks, list):
            for j, i in layout.over:
                if i in free and j not in taken and i not in taken.values() and alone(blocks, i):
                    taken[j] = i
        return taken

    @property
    def plain(self) -> Any:
        """The group by NumPy, one function after the other."""
        if self._plain is None:
            self._plain = self._numpy()
        return self._plain

    def _numpy(self) -> Any:
        """A plan of the group in which scalars have the rank of the others, so that each may vary over any loop dim."""
        program, lead = self.program, self._env.lead
        rank = program.outputs[0].aval.ndim
        scalars = [i for i, v in enumerate(program.inputs) if v.aval.ndim < rank]
        if not scalars or not lead:
            return Plan(program, self._env).run
        ranked = {program.inputs[i]: Var(program.inputs[i].aval.update(shape=(1,) * rank)) for i in scalars}
        equations = tuple(
            Equation(
                e.op,
                tuple(a if isinstance(a, Literal) else ranked.get(a, a) for a in e.inputs),
                e.outputs,
                e.params,
                e.source,
            )
            for e in program.equations
        )
        inputs = tuple(ranked.get(v, v) for v in program.inputs)
        run = Plan(Program(inputs, equations, program.outputs, 0, program.name), self._env).run

        def call(*blocks: Ndarray) -> tuple[Ndarray, ...]:
            given = list(blocks)
            for i in scalars:
                given[i] = given[i].reshape(given[i].shape + (1,) * rank)
            return run(*given)

        return call

    def met(self, blocks: Sequence[Ndarray]) -> Met | None:
        """How loops meet blocks of these shapes and strides; None where they cannot be compiled."""
        lead, program = self._env.lead, self.program
        core = program.outputs[0].aval.shape
        if not all(block.dtype.isnative for block in blocks):
            return None
        shapes, strides = lined_up(blocks, lead, core)
        full = np.broadcast_shapes(*shapes, (1,) * lead + core)
        order = memory_order(full, shapes, strides)
        results = []
        for var, needed in zip(program.outputs, self.depends, strict=True):
            extents = np.broadcast_shapes(*(shapes[i][:lead] for i in needed)) + core
            dtype = var.aval.dtype
            strides.append(dense_strides(extents, order, dtype.itemsize))
            results.append(placed(dtype, extents, order, extents))
        kept = (False,) * len(full)
        return Met(full, kept, tuple(order), tuple(range(len(blocks))), tuple(shapes), tuple(strides), tuple(results))

    def work(self, met: Met) -> Work | None:
        """The function and its job; None where NumPy does as well."""
        inputs = [v.aval.dtype.itemsize for v in self.program.inputs]
        sizes = inputs + [r.dtype.itemsize for r in met.results]
        whole, _, strides = met.sorted()
        extents, steps = merged(whole, strides)
        access = []
        width = width_of(self.program)
        if extents[-1] < 2 * width:
            return None
        tiled(extents, steps, sizes, width)
        for own, size in zip(steps, sizes, strict=True):
            access.append(REPEATED if own[-1] == 0 else CONTIGUOUS if own[-1] == size else STRIDED)
        if any(a != CONTIGUOUS for a in access[len(inputs) :]):
            return None
        inner = extents[-1]
        for k, (own, result) in enumerate(zip(steps[len(inputs) :], met.results, strict=True), len(inputs)):
            nbytes = math.prod(result.shape) * result.dtype.itemsize
            if met.streaming and streams(nbytes, own[:-1], inner, result.dtype.itemsize) and inner % width == 0:
                access[k] = STREAMED
        parts = max(1, inner // _CHUNK)
        segment = -(-inner // parts // 64) * 64 if parts > 1 else inner  # whole cache lines
        parts = -(-inner // segment)
        rows = math.prod(extents[:-1])
        job = [rows * parts, max(1, _CHUNK // segment), parts, segment, inner, *extents[:-1]]
        for own in steps:
            job.extend(own)
        return Work(compiled(self.program, access, len(extents) - 1), (ctypes.c_int64 * len(job))(*job))

    def _layout(self, blocks: Sequence[Ndarray]) -> _Layout | None:
        """The compiled layout for blocks like these; None where NumPy does as well."""
        met = self.met(blocks)
        elements = 0 if met is None else math.prod(met.full)
        if met is None or elements < FEWEST:
            return None
        work = self.work(met)
        if work is None:
            return None
        threads = thread_count() if elements * self._cost >= _THREADED and elements > 2 * _CHUNK else 1
        # The last vector of a row goes back over what was done, unless it ends with the row: then it would read results.
        over = (
            ()
            if work.job[4] % width_of(self.program)
            else tuple(
                (j, i)
                for j, r in enumerate(met.results)
                for i, b in enumerate(blocks)
                if met.strides[i] == met.strides[len(blocks) + j]
                and r.block == met.full == b.shape
                and r.dtype.itemsize == b.itemsize
            )
        )
        pointers = ctypes.c_void_p * (len(blocks) + len(met.results))

        @cache
        def inside() -> Kernel:
            other = self.work(replace(met, streaming=False))
            return work.kernel if other is None else other.kernel

        return _Layout(work.kernel, inside, work.job, pointers, met.results, over, threads)


def _dependencies(program: Program) -> list[tuple[int, ...]]:
    """Per output the positions of the inputs that it depends on."""
    known: dict[Var, frozenset[int]] = {v: frozenset([i]) for i, v in enumerate(program.inputs)}
    for eqn in program.equations:
        needed = frozenset[int]().union(*[known[a] for a in eqn.inputs if not isinstance(a, Literal)])
        for var in eqn.outputs:
            known[var] = needed
    return [tuple(sorted(known[v])) for v in program.outputs if isinstance(v, Var)]


def _fused_type(*types: ShapedArray, program: Program, space: Space | None = None) -> tuple[ShapedArray, ...]:
    return program.out_types


def _fused_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Any:
    program, space = params["program"], params.get("space")
    if space is not None:
        return FoldedKernel(env, program, space)
    kernel = FusedKernel(env, program)
    return (
        kernel if available() else TiledKernel(env.lead, program, kernel.depends, lambda *blocks: kernel.plain(*blocks))
    )


fused = define_op(
    "fused",
    type_rule=_fused_type,
    compile=_fused_compile,
    multiple_results=True,
    local=True,
    takes_over=lambda params: params.get("space") is None,
)
