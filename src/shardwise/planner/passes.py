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

_LOADS = 2  # so many bytes are loaded from near in the time in which one is read and written


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
    touched = touched_bytes(group.equations, group.reads, group.writes)
    return Pass(group.equations, touched, 0, lookups_of(group.equations) if lookups else NO_LOOKUPS)


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
    touched: dict[Var, int] = {}
    for var, nbytes in touched_bytes(equations, reads, writes).items():
        _add(touched, root_of(names.get(var, var), roots), nbytes)
    return Pass(tuple(equations), touched, 0, lookups_of((eqn,)))


def lookups_of(equations: Sequence[Equation]) -> Lookups:
    """The places that a kernel goes to that gathers or scatters."""
    found = [places for eqn in equations if (places := _lookups(eqn)).places]
    if len(found) < 2:
        return found[0] if found else NO_LOOKUPS
    windows, elements, spans, updates, combined, repeats, _, _ = zip(*found, strict=True)
    count = sum(windows) + sum(elements)
    width = sum(p.width * (p.windows + p.elements) for p in found) / count
    pieces = sum(p.pieces * (p.windows + p.elements) for p in found) / count
    return Lookups(sum(windows), sum(elements), max(spans), any(updates), sum(combined), sum(repeats), width, pieces)


def _lookups(eqn: Equation) -> Lookups:
    if eqn.op.at_positions:
        count = math.prod(np.broadcast_shapes(*(a.aval.shape for a in eqn.inputs[1:])))
        taken, table, read = eqn.outputs[0].aval, eqn.inputs[0].aval, eqn.params["read"]
        run = dict(zip(read.at, read.spans, strict=True)).get(table.ndim - 1)
        return _in_pieces(_lookups_of(count, taken, _span(eqn, 1), False), taken.size, table.shape[-1], run)
    op, params, _ = unwrap_op(eqn.op, eqn.params)
    op, params, types = join_columns(op, params, tuple(a.aval for a in eqn.inputs))
    found = None if op.indexed is None else op.indexed(params, types)
    if found is None:
        return NO_LOOKUPS
    starts = types[
        found.first
    ].shape  # without vectors, of the first of several numbers: one for each vmap that maps it
    count = math.prod(starts[:-1] if found.vectors else starts)
    if not found.vectors and count == 1:
        return NO_LOOKUPS
    taken = types[-1 if found.vectors else 1] if op.updates else eqn.outputs[0].aval
    moved = taken.size
    places = _lookups_of(count, taken, _span(eqn, found.first), op.updates)
    run = dict(zip(found.dims, found.sizes, strict=True)).get(types[0].ndim - 1)
    places = _in_pieces(places, taken.size, types[0].shape[-1], run)
    if not op.updates:
        return places
    return places._replace(combined=moved if places.windows else 0, repeats=moved / max(types[0].size, 1))


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


def _in_pieces(places: Lookups, moved: int, length: int, run: int | None) -> Lookups:
    """The places of windows of which `run` elements lie side by side, of a row of `length` elements; None: all of a row."""
    if not places.windows or not run or run >= length:
        return places
    return places._replace(pieces=max(1.0, moved / places.windows / run))


def _passes_of_group(eqn: Equation, program: Program, roots: Mapping[Var, Atom]) -> tuple[Pass, ...]:
    graph = graph_of(eqn)
    fits = _row_bytes(graph.space, eqn) <= costs.FUSED_CACHED
    results = dict(zip(program.outputs, eqn.outputs, strict=True))
    read: set[Atom] = set()
    found: list[Pass] = []
    for p in range(graph.passes):
        touched: dict[Var, int] = {}
        loaded: dict[Atom, int] = {}
        cached = sum(v.aval.nbytes for v in graph.saved[p])
        for number in graph.used(p):
            if number >= len(graph.accesses):
                out = results[graph.outputs[number - len(graph.accesses)]]
                _add(touched, out, out.aval.nbytes)
                continue
            access = graph.accesses[number]
            operand = eqn.inputs[access.number]
            if access.at:
                found_at = sum(e.outputs[0].aval.nbytes for e in graph.needed[p] if number in graph.operands[e][:1])
                _add(touched, root_of(operand, roots), min(operand.aval.nbytes, found_at))
            elif operand in read and fits:
                cached += operand.aval.nbytes
            else:
                root = root_of(operand, roots)
                loaded[root] = loaded.get(root, 0) + _loaded_bytes(operand.aval, root.aval, graph.space.shape)
                _add(touched, root, operand.aval.nbytes)
            read.add(operand)
        again = sum(max(0, nbytes - root.aval.nbytes) for root, nbytes in loaded.items())
        cached += again // _LOADS
        held = {v for saved in graph.saved[:p] for v in saved}
        cached += sum(v.aval.nbytes for v in held if any(v is a for a in graph.reads(p)))
        places = lookups_of([e for e in graph.needed[p] if e.op.at_positions])
        found.append(Pass((*graph.rows[p], *graph.needed[p], *graph.folds[p]), touched, cached, places))
    return tuple(found)


def _loaded_bytes(operand: ShapedArray, root: ShapedArray, shape: tuple[int, ...]) -> int:
    """The bytes of an operand, a view of `root`, that a loop over such a shape loads: a row again in each round of a dim that it has not.

    What does not change along the last dim stays in a register.
    """
    rows = operand.ndim > 1 and root.ndim > 0 and root.shape[-1] == operand.shape[-1]
    if not rows or len(shape) != operand.ndim or operand.shape[-1] != shape[-1]:
        return min(operand.nbytes, root.nbytes)
    return max(operand.nbytes, math.prod(shape) * operand.itemsize)


def _row_bytes(space: IterationSpace, eqn: Equation) -> int:
    """The bytes of a row, over which the passes go one after the other."""
    widest = max((a.aval.itemsize for a in (*eqn.inputs, *eqn.outputs)), default=1)
    return math.prod(space.shape[d] for d in space.axes) * widest


def _outside(part: Pass, eqn: Equation, inner: Program, roots: Mapping[Var, Atom]) -> Pass:
    """A pass of one step of a kernel, whose own values the cache holds."""
    names: dict[Atom, Atom] = dict(zip(inner.inputs, eqn.inputs, strict=True))
    names.update(zip(inner.outputs, eqn.outputs, strict=True))
    touched: dict[Var, int] = {}
    cached = part.cached
    for var, nbytes in part.touched.items():
        if var in names:
            _add(touched, root_of(names[var], roots), nbytes)
        else:
            cached += nbytes
    return Pass(part.equations, touched, cached)


def overwritable(eqn: Equation, result: Var) -> tuple[Var, ...]:
    """The operands over which a fused group may write `result`: of its shape, read by no pass behind the one that makes it."""
    graph, program = graph_of(eqn), eqn.params["program"]
    inside = program.outputs[eqn.outputs.index(result)]
    if inside not in graph.full:
        return ()
    later = {a for p in range(graph.ready[inside] + 1, graph.passes) for a in graph.used(p) if a < len(graph.accesses)}
    spoiled = {eqn.inputs[graph.accesses[a].number] for a in later}
    return tuple(v for v in eqn.inputs if isinstance(v, Var) and v not in spoiled and _are_alike(v, result))


def _are_alike(one: Var, other: Var) -> bool:
    a, b = one.aval, other.aval
    return a.shape == b.shape and a.itemsize == b.itemsize and a.vma == b.vma


def _add(touched: dict[Var, int], value: Atom, nbytes: int) -> None:
    if isinstance(value, Var):
        touched[value] = min(value.aval.nbytes, touched.get(value, 0) + nbytes)
