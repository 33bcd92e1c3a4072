"""Passes: how a kernel of our own goes over memory, and which operands its results may be written over.

In: an equation of a scheduled program. Out: `Pass`es. What needs the result of a reduction comes in a later pass over the row than the
reduction: the graph of a fused group says which. Operands are read again there, from the cache where it holds a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shardwise.ir import Atom, Equation, Program, ShapedArray, Var, unwrap_op
from shardwise.ops.indexing.columns import join_columns
from shardwise.planner.flops import touched_bytes
from shardwise.planner.views import root_of
from shardwise.planner.work import NO_LOOKUPS, Group, Lookups, Pass
from shardwise.runtime import costs
from shardwise.runtime.fused import Graph, IterationSpace, fused


def held_program(eqn: Equation) -> Program | None:
    """The program that a kernel computes as one, on the operands of the equation; None for others."""
    inner = eqn.params.get("program")
    return inner if isinstance(inner, Program) and eqn.op.region is None else None


def passes_of(eqn: Equation, roots: Mapping[Var, Atom]) -> tuple[Pass, ...]:
    """The passes of one kernel. `roots`: per view the value that owns its memory."""
    inner = held_program(eqn)
    if inner is None:
        return (_single((eqn,), eqn, eqn, roots),)
    if eqn.op is fused:
        return _passes_of_group(eqn, inner, roots)
    if not eqn.op.local:
        return (_single(inner.equations, eqn, inner, roots),)
    return tuple(_outside(p, eqn, inner, roots) for e in inner.equations for p in passes_of(e, {}))


def whole_pass(group: Group, *, lookups: bool) -> Pass:
    """A group of a compiler's, which goes over memory once. `lookups`: with the places that it looks up."""
    bytes_by_var = touched_bytes(group.equations, group.reads, group.writes)
    return Pass(group.equations, bytes_by_var, 0, lookups_of(group.equations) if lookups else NO_LOOKUPS)


def graph_of(eqn: Equation) -> Graph:
    """The passes of a fused group as its kernel makes them."""
    program: Program = eqn.params["program"]
    out = program.outputs[0].aval
    return Graph(program, eqn.params.get("space") or IterationSpace(out.shape, (), out.vma), True)


def _single(equations: Sequence[Equation], eqn: Equation, ends: Equation | Program, roots: Mapping[Var, Atom]) -> Pass:
    """All in one go; `ends` has the operands and results under the names that `equations` use."""
    reads = [a for a in dict.fromkeys(ends.inputs) if isinstance(a, Var)]
    writes = [a for a in ends.outputs if isinstance(a, Var)]
    names: dict[Atom, Atom] = dict(zip(ends.inputs, eqn.inputs, strict=True))
    names.update(zip(ends.outputs, eqn.outputs, strict=True))
    bytes_by_var: dict[Var, int] = {}
    for var, nbytes in touched_bytes(equations, reads, writes).items():
        _add(bytes_by_var, root_of(names.get(var, var), roots), nbytes)
    return Pass(tuple(equations), bytes_by_var, 0, lookups_of((eqn,)))


def lookups_of(equations: Sequence[Equation]) -> Lookups:
    """The places that a kernel goes to that gathers or scatters."""
    lookups = [places for eqn in equations if any(places := _lookups(eqn))]
    if len(lookups) < 2:
        return lookups[0] if lookups else NO_LOOKUPS
    windows, elements, spans, updates, combined_counts, repeats, _ = zip(*lookups, strict=True)
    count = sum(windows) + sum(elements)
    width = sum(p.width * (p.windows + p.elements) for p in lookups) / count
    return Lookups(sum(windows), sum(elements), max(spans), any(updates), sum(combined_counts), sum(repeats), width)


def _lookups(eqn: Equation) -> Lookups:
    if eqn.op.at_positions:
        count = math.prod(np.broadcast_shapes(*(a.aval.shape for a in eqn.inputs[1:])))
        return _lookups_of(count, eqn.outputs[0].aval, _span(eqn, 1), False)
    op, params, _ = unwrap_op(eqn.op, eqn.params)
    op, params, types = join_columns(op, params, tuple(a.aval for a in eqn.inputs))
    windows = None if op.indexed is None else op.indexed(params, types)
    if windows is None:
        return NO_LOOKUPS
    starts = types[
        windows.first
    ].shape  # without vectors, of the first of several numbers: one for each vmap that maps it
    count = math.prod(starts[:-1] if windows.vectors else starts)
    if not windows.vectors and count == 1:
        return NO_LOOKUPS
    window_type = types[-1 if windows.vectors else 1] if op.updates else eqn.outputs[0].aval
    moved_elements = window_type.size
    places = _lookups_of(count, window_type, _span(eqn, windows.first), op.updates)
    if not op.updates:
        return places
    return places._replace(
        combined=moved_elements if places.windows else 0, repeats=moved_elements / max(types[0].size, 1)
    )


def _span(eqn: Equation, first: int) -> int:
    """The bytes that a place may be anywhere in: where each row of a batch has places of its own, those of a row.

    `first` is the first operand with places.
    """
    types = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
    rule = eqn.op.sharding_rule(*types, eqn.params)
    own = {f for dim in rule.inputs[first] for f in dim}
    table = types[0][0]
    rows = math.prod(n for n, dim in zip(table.shape, rule.inputs[0], strict=True) if own.intersection(dim))
    return table.nbytes // max(rows, 1)


def _lookups_of(count: int, moved: ShapedArray, span: int, updates: bool) -> Lookups:
    """`count` places of all that is `moved`."""
    width = moved.nbytes / max(count, 1)
    if moved.size > count:
        return Lookups(count, 0, span, updates, width=width)
    return Lookups(0, count, span, updates, width=width)


def _passes_of_group(eqn: Equation, program: Program, roots: Mapping[Var, Atom]) -> tuple[Pass, ...]:
    graph = graph_of(eqn)
    fits = _row_bytes(graph.space, eqn) <= costs.FUSED_CACHED
    results = dict(zip(program.outputs, eqn.outputs, strict=True))
    read: set[Atom] = set()
    group_passes: list[Pass] = []
    for p in range(graph.passes):
        bytes_by_var: dict[Var, int] = {}
        cached_bytes = sum(v.aval.nbytes for v in graph.saved[p])
        for number in graph.used(p):
            if number >= len(graph.accesses):
                out = results[graph.outputs[number - len(graph.accesses)]]
                _add(bytes_by_var, out, out.aval.nbytes)
                continue
            access = graph.accesses[number]
            operand = eqn.inputs[access.number]
            if access.at:
                lookup_bytes = sum(e.outputs[0].aval.nbytes for e in graph.needed[p] if number in graph.operands[e][:1])
                _add(bytes_by_var, root_of(operand, roots), min(operand.aval.nbytes, lookup_bytes))
            elif operand in read and fits:
                cached_bytes += operand.aval.nbytes
            else:
                _add(bytes_by_var, root_of(operand, roots), operand.aval.nbytes)
            read.add(operand)
        held_vars = {v for saved in graph.saved[:p] for v in saved}
        cached_bytes += sum(v.aval.nbytes for v in held_vars if any(v is a for a in graph.reads(p)))
        places = lookups_of([e for e in graph.needed[p] if e.op.at_positions])
        group_passes.append(
            Pass((*graph.rows[p], *graph.needed[p], *graph.folds[p]), bytes_by_var, cached_bytes, places)
        )
    return tuple(group_passes)


def _row_bytes(space: IterationSpace, eqn: Equation) -> int:
    """The bytes of a row, over which the passes go one after the other."""
    widest = max((a.aval.itemsize for a in (*eqn.inputs, *eqn.outputs)), default=1)
    return math.prod(space.shape[d] for d in space.axes) * widest


def _outside(part: Pass, eqn: Equation, inner: Program, roots: Mapping[Var, Atom]) -> Pass:
    """A pass of one step of a kernel, whose own values the cache holds."""
    names: dict[Atom, Atom] = dict(zip(inner.inputs, eqn.inputs, strict=True))
    names.update(zip(inner.outputs, eqn.outputs, strict=True))
    bytes_by_var: dict[Var, int] = {}
    cached_bytes = part.cached
    for var, nbytes in part.touched.items():
        if var in names:
            _add(bytes_by_var, root_of(names[var], roots), nbytes)
        else:
            cached_bytes += nbytes
    return Pass(part.equations, bytes_by_var, cached_bytes)


def overwritable(eqn: Equation, result: Var) -> tuple[Var, ...]:
    """The operands over which a fused group may write `result`: of its shape, read by no pass behind the one that makes it."""
    graph, program = graph_of(eqn), eqn.params["program"]
    inside = program.outputs[eqn.outputs.index(result)]
    if inside not in graph.full:
        return ()
    later = {a for p in range(graph.ready[inside] + 1, graph.passes) for a in graph.used(p) if a < len(graph.accesses)}
    spoiled_inputs = {eqn.inputs[graph.accesses[a].number] for a in later}
    return tuple(v for v in eqn.inputs if isinstance(v, Var) and v not in spoiled_inputs and _are_alike(v, result))


def _are_alike(one: Var, other: Var) -> bool:
    a, b = one.aval, other.aval
    return a.shape == b.shape and a.itemsize == b.itemsize and a.vma == b.vma


def _add(touched: dict[Var, int], value: Atom, nbytes: int) -> None:
    if isinstance(value, Var):
        touched[value] = min(value.aval.nbytes, touched.get(value, 0) + nbytes)
