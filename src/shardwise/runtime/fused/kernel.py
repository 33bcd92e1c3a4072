"""The op 'fused': a group of elementwise equations and reductions as one loop over memory.

Small calls run the group's NumPy functions, as without fusion. From `costs.FUSED_FEWEST` elements on, the group is compiled for the
way its blocks lie in memory (see `writer`): dims are put in memory order and merged where strides allow, and results keep that
order, so that blocks of a split array stay dense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from operator import add
from typing import Any

import numpy as np

from shardwise.base.locks import cached_property
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Equation, Literal, Program, ShapedArray, Var, define_op
from shardwise.ir.op import Params, Types
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.env import Env
from shardwise.runtime.fused.lines import SplitLoop, block_loops, lines_of, table_loops
from shardwise.runtime.fused.space import Graph, IterationSpace, joined_pieces
from shardwise.runtime.fused.steps import Arrangement
from shardwise.runtime.fused.tiled import TiledKernel
from shardwise.runtime.loops import (
    Calls,
    Met,
    Result,
    Specialization,
    SpecializedKernel,
    TableForm,
    align_block,
    dense_strides,
    memory_order,
    place_result,
)
from shardwise.runtime.machine import available
from shardwise.runtime.plan import Plan


class GroupKernel(SpecializedKernel):
    """A group of equations, callable on blocks.

    Without a `space`, all its equations are elementwise and of one shape.
    """

    def __init__(self, env: Env, program: Program, space: IterationSpace | None = None) -> None:
        assert program.equations, "no loop: nothing would write the results"
        out = program.outputs[0].aval
        self.program = program
        self.space = IterationSpace(out.shape, (), out.vma) if space is None else space
        self._env = env
        scalars = not env.lead and any(v.aval.ndim == 0 for v in program.inputs)
        super().__init__(self._specialize, lambda *blocks: self.plain(*blocks), scalars)

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """The group by the ops' own kernels, one after the other. Values are joined first; the other equations are a group again."""
        if self._graph.joins:
            return self._join_short_pieces(Plan(_join_values_first(self.program, self.space), self._env).run)
        if self.space.whole and self._env.lead:
            return _with_ranked_scalars(self.program, self._env)
        return Plan(self.program, self._env).run

    def _join_short_pieces(self, joined_first: Callable[..., Any]) -> Callable[..., Any]:
        """What joins values first, except for blocks with short pieces that are turned or repeated, as padding has them: of these it copies
        the short pieces alone, which loops then read where they lie.
        """
        pieces = {a.number for a in self._graph.accesses if a.along is not None}
        short = {i for i in pieces if 4 * self.program.inputs[i].aval.size <= math.prod(self.space.shape)}

        def run(*blocks: Ndarray) -> Any:
            turned = {i for i in short if min(blocks[i].strides, default=1) <= 0}
            if not turned:
                return joined_first(*blocks)
            return self(*[np.array(b, order="C") if i in turned else b for i, b in enumerate(blocks)])

        return run

    # -- loops -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _graph(self) -> Graph:
        return Graph(self.program, self.space, True)

    def _forgetful(self) -> Graph:
        return Graph(self.program, self.space, False)

    def meet_blocks(self, blocks: Sequence[Ndarray]) -> Met | None:
        """How loops meet blocks of these shapes and strides; None where they cannot be compiled, or not for a part of the loops."""
        return None if self._graph.joins else self._meet_blocks(blocks)

    def _meet_blocks(self, blocks: Sequence[Ndarray]) -> Met | None:
        if not all(b.dtype.isnative for b in blocks):
            return None
        graph, lead, lines = self._graph, self._env.lead, self._lines
        if lines is None:
            return None
        apiece = full = self._loops(blocks, lines)
        for line in lines:
            full = line.loops(full)
        shapes, strides, shifts = list[Shape](), list[Shape](), list[int]()
        tables = list[tuple[int, TableForm, Shape]]()
        for k, access in enumerate(graph.accesses):
            block = blocks[access.number]
            if access.at:
                own = block.shape[lead:], block.strides[lead:]
                form = None if lines else TableForm.of(*own, access.at, access.spans, block.itemsize)
                if form is None:
                    return None
                tables.append((k, *form))
                seen = table_loops(access, block, lead, full)
            else:
                seen = block_loops(access, block, lead, apiece, lines)
            if seen is None:
                return None
            shapes.append(seen[0])
            strides.append(seen[1])
            shifts.append(seen[2])
        order = memory_order(full, shapes, strides)
        crossed = {self._env.dim(a) for a in self.space.crossed}
        results = list[Result]()
        for var, extents in zip(graph.outputs, self._extents(graph, blocks, lead, crossed), strict=True):
            placed = self._place(var.aval, extents, apiece, order, lines)
            if placed is None:
                return None
            results.append(placed[0])
            strides.append(placed[1])
        reduced = tuple(d in crossed or d - lead in self.space.axes for d in range(len(full)))
        if max(full, default=1) >= 1 << 31 and any(reduced):
            return None
        positions = any(e.op.fold is not None and e.op.fold.positions for e in self.program.equations)
        if positions and sum(reduced[d] and full[d] > 1 for d in range(len(full))) > 1:
            return None
        numbers = tuple(a.number for a in graph.accesses)
        apart = frozenset(lead + a.along for a in graph.accesses if a.along is not None)
        shape_of = tuple(shapes), tuple(strides), tuple(results)
        moved = tuple(shifts) if apart else ()
        return Met(full, reduced, tuple(order), numbers, *shape_of, apart=apart, shifts=moved, tables=tuple(tables))

    def _loops(self, blocks: Sequence[Ndarray], lines: Sequence[SplitLoop]) -> Shape:
        """The extents of all loops: the grid's axes, then the dims of a device's part."""
        lead, space = self._env.lead, self.space
        loops = list(np.broadcast_shapes(*(b.shape[:lead] for b in blocks), (1,) * lead)) + list(space.shape)
        for axis in space.crossed:
            loops[self._env.dim(axis)] = self._env.size(axis)
        for line in lines:
            for d, n in zip(line.leads, line.sizes, strict=True):
                loops[d] = n
        return tuple(loops)

    def _place(
        self, aval: ShapedArray, extents: Shape, apiece: Shape, order: Sequence[int], lines: Sequence[SplitLoop]
    ) -> tuple[Result, Shape] | None:
        """How a result with these extents along the grid's axes is allocated, and its strides by loop; None if a split loop leaves it
        in parts.
        """
        places = self.space.places(aval.shape)
        assert places is not None
        core = [1] * len(self.space.shape)
        for n, d in zip(aval.shape, places, strict=True):
            if d is not None:
                core[d] = n
        shape, split = (*extents, *core), list[tuple[int, Shape, Shape]]()
        for line in lines:
            if any(shape[d] != apiece[d] for d in (*line.leads, line.loop)):
                return None
            shape = line.loops(shape)
            split.append((line.loop, line.leads, line.sizes))
        result = place_result(aval.dtype, shape, order, (*extents, *aval.shape), tuple(split))
        return result, dense_strides(shape, order, aval.dtype.itemsize)

    @cached_property
    def _lines(self) -> tuple[SplitLoop, ...] | None:
        return lines_of(self._graph, self._env)

    def call_alone(self, met: Met) -> Calls | None:
        """The function with which one thread does the whole group in one call, and its memory; None if there is no such function."""
        return self._calls(met, threaded=False)

    def call_into(self, blocks: Sequence[Ndarray], out: Ndarray, over: bool = False) -> Callable[..., None] | None:
        """What computes the one result of an elementwise group where `out` lies, be it a part of a larger block: it takes the addresses of
        the operands, and of the result. `over`: operands may lie there, too. None where the ops' own kernels are as fast.
        """
        met = None if self._lines else self.meet_blocks(blocks)
        if met is None or math.prod(met.full) < costs.FUSED_FEWEST:
            return None
        lead, numbers = self._env.lead, met.numbers
        extents, steps = align_block(out, range(out.ndim - lead), lead, len(met.full))
        if extents != met.full:
            return None
        calls = self._calls(replace(met, strides=(*met.strides[:-1], steps), streaming=False, once=over))
        if calls is None or numbers == tuple(range(len(blocks))):
            return None if calls is None else calls.run
        run = calls.run
        return lambda *addresses: run(*[addresses[i] for i in numbers], addresses[-1])

    def _calls(self, met: Met, threaded: bool = True) -> Calls | None:
        arrangement = Arrangement.of(self._graph, met)
        return None if arrangement is None else arrangement.calls(self._forgetful, threaded)

    def _specialize(self, blocks: Sequence[Ndarray]) -> Specialization | None:
        """The compiled form for blocks like these; None where the ops' own kernels are as fast."""
        met = self._meet_blocks(blocks)
        if met is None or math.prod(met.full) < costs.FUSED_FEWEST:
            return None
        arrangement = Arrangement.of(self._graph, met)
        calls = None if arrangement is None else arrangement.calls(self._forgetful)
        if arrangement is None or calls is None:
            return None
        run = _on_blocks(met, calls)

        @cache
        def run_over() -> Callable[[Sequence[Ndarray], Sequence[Ndarray]], object]:
            """Without stores past the cache: the memory that results go to was read just before."""
            return _on_blocks(met, self._calls(replace(met, streaming=False)) or calls) if arrangement.streams else run

        over = arrangement.over([(b.shape, b.itemsize) for b in blocks], self._forgetful)
        return Specialization(met.results, run, over, run_over)

    def _extents(self, graph: Graph, blocks: Sequence[Ndarray], lead: int, crossed: set[int]) -> list[Shape]:
        """Per output its extents along the grid's axes."""
        known: dict[Var, Shape] = {v: b.shape[:lead] for v, b in zip(self.program.inputs, blocks, strict=True)}
        for eqn in self.program.equations:
            extents = np.broadcast_shapes(*(known[a] for a in eqn.inputs if not isinstance(a, Literal)))
            if eqn.op.fold is not None:
                extents = tuple(1 if d in crossed else n for d, n in enumerate(extents))
            for axis in {a for piece in graph.joins.get(eqn, ()) for a in piece.over}:
                d = self._env.dim(axis)
                extents = (*extents[:d], self._env.size(axis), *extents[d + 1 :])
            known[eqn.outputs[0]] = extents
        return [known[v] for v in graph.outputs]


def _on_blocks(met: Met, calls: Calls) -> Callable[[Sequence[Ndarray], Sequence[Ndarray]], object]:
    """`calls` for the blocks that the accesses read and the results' blocks."""
    numbers, shifts, run = met.numbers, met.shifts, calls.run

    def on_blocks(blocks: Sequence[Ndarray], results: Sequence[Ndarray]) -> None:
        addresses = [address(blocks[i]) for i in numbers]
        if shifts:
            addresses = list(map(add, addresses, shifts))
        run(*addresses, *map(address, results))

    return on_blocks


def _with_ranked_scalars(program: Program, env: Env) -> Callable[..., tuple[Ndarray, ...]]:
    """A plan of elementwise equations in which scalars have the rank of the others, so that each may vary over any loop dim."""
    rank = program.outputs[0].aval.ndim
    scalars = [i for i, v in enumerate(program.inputs) if rank and not v.aval.ndim]
    if not scalars:
        return Plan(program, env).run
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
    run = Plan(Program(inputs, equations, program.outputs, 0, program.name), env).run

    def call(*blocks: Ndarray) -> tuple[Ndarray, ...]:
        given = list(blocks)
        for i in scalars:
            given[i] = given[i].reshape(given[i].shape + (1,) * rank)
        return run(*given)

    return call


def _join_values_first(program: Program, space: IterationSpace) -> Program:
    """The program with a group for all but the equations that join values."""
    joins = [e for e in program.equations if joined_pieces(e) is not None]
    rest = tuple(e for e in program.equations if e not in joins)
    made = {e.outputs[0] for e in rest}
    inputs = tuple(dict.fromkeys(a for e in rest for a in e.inputs if isinstance(a, Var) and a not in made))
    outputs = tuple(dict.fromkeys(v for v in program.outputs if isinstance(v, Var) and v in made))
    group: dict[str, Any] = {"program": Program(inputs, rest, outputs, 0, program.name)}
    params = group if space.whole else {**group, "space": space}
    rest_as_one = Equation(fused, inputs, outputs, params, rest[-1].source)
    return Program(program.inputs, (*joins, rest_as_one), program.outputs, 0, program.name)


def _fused_type(*types: ShapedArray, program: Program, space: IterationSpace | None = None) -> tuple[ShapedArray, ...]:
    return program.out_types


def _fused_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Any:
    kernel = GroupKernel(env, params["program"], params.get("space"))
    return (
        kernel
        if available()
        else TiledKernel(kernel.program, kernel.meet_blocks, lambda *blocks: kernel.plain(*blocks))
    )


fused = define_op(
    "fused",
    type_rule=_fused_type,
    compile=_fused_compile,
    multiple_results=True,
    local=True,
)
