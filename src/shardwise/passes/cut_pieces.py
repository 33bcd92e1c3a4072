"""Slices of joined values: each reads only the pieces that it needs.

Comes in: a per-device program. Goes out: the program in which slices of a joined value (as `tall[:-2]` of rows joined with their
neighbours' edges) are joined values of slices. Loops read these in place, and the large joined value is never made.
"""

from __future__ import annotations

from shardwise.base.shapes import with_entry
from shardwise.ir import Equation, Program, ShapedArray, Spread, Var, live_equations, map_equations, map_programs
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import slice_p
from shardwise.passes.parts import makers, read_by_loops, users
from shardwise.runtime.env import Env
from shardwise.runtime.fused import Piece, joined_pieces
from shardwise.runtime.machine import available


def with_cut_pieces(program: Program, env: Env) -> Program:
    """`program` with slices of joined values as joined values of slices, if loops read all of them, or as slices of one piece."""
    return _cut(program, env.spread) if available() else program


def _cut(program: Program, spread: Spread) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _cut(inner, spread)))
    while (cut := _cut_once(program, spread)) is not program:  # pieces may be joined values, too
        program = live_equations(cut)
    return program


def _cut_once(program: Program, spread: Spread) -> Program:
    producers, used, reads = makers(program), users(program), read_by_loops(program, spread)
    result_vars = {v for v in program.outputs if isinstance(v, Var)}
    replacements: dict[int, list[Equation]] = {}

    for whole in program.equations:
        out = whole.outputs[0] if whole.outputs else None
        readers = used.get(out, ()) if out is not None and out not in result_vars else ()
        if not readers or any(program.equations[i].op is not slice_p for i in readers):
            continue
        pieces = joined_pieces(whole)
        if pieces is None or pieces[0].over or any(producers.get(p.source, -1) > min(readers) for p in pieces):
            continue
        slices = {i: _slice_of(program.equations[i], pieces) for i in readers}
        if all(new and (len(new) == 1 or reads(new[-1].outputs[0])) for new in slices.values()):
            replacements.update({i: new for i, new in slices.items() if new})
    if not replacements:
        return program
    equations = [e for i, old in enumerate(program.equations) for e in replacements.get(i, (old,))]
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _slice_of(eqn: Equation, pieces: tuple[Piece, ...]) -> list[Equation] | None:
    """A slice of a value made of these pieces, as equations on their sources; None if that changes the slice's type."""
    first, limit, out = eqn.params["start_indices"], eqn.params["limit_indices"], eqn.outputs[0]
    if any(s != 1 for s in eqn.params["strides"] or ()):
        return None
    equations: list[Equation] = []
    parts: list[Var] = []
    for piece in pieces:
        d, t = piece.along, piece.source.aval
        low, high = max(first[d], piece.start) - piece.start, min(limit[d] - piece.start, t.shape[d])
        if low < high:
            starts, limits = with_entry(first, d, low), with_entry(limit, d, high)
            size = tuple(b - a for a, b in zip(starts, limits, strict=True))
            part = Var(ShapedArray(size, t.dtype, t.weak_type, vma=t.vma))
            params = {"start_indices": starts, "limit_indices": limits, "strides": None}
            equations.append(Equation(slice_p, (piece.source,), (part,), params, eqn.source))
            parts.append(part if size != t.shape else piece.source)
    if frozenset[str]().union(*[v.aval.vma for v in parts]) != out.aval.vma:
        return None
    if len(parts) == 1:
        return [Equation(slice_p, e.inputs, (out,), e.params, e.source) for e in equations]
    joined_parts = Equation(concatenate_p, tuple(parts), (out,), {"dimension": pieces[0].along}, eqn.source)
    return [*[e for e in equations if e.outputs[0] in parts], joined_parts]
