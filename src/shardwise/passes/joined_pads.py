"""Pads that loops read, as joined values: with rows of the fill value before and behind.

Comes in: a per-device program. Goes out: the program in which such pads are joined values, one dim after the other. Loops read these in
place, and slices of them (`cut_pieces`); the padded value is never made.
"""

from __future__ import annotations

import math

from shardwise.ir import Equation, Program, Spread, Var, map_equations, map_programs
from shardwise.ops.shapes.fill import stored_fill
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import pad_p, slice_p
from shardwise.passes.parts import read_by_loops, users
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine import available


def with_joined_pads(program: Program, env: Env) -> Program:
    """`program` with pads that loops read, themselves or slices of them, as joined values."""
    return _join_pads(program, env.spread) if available() else program


def _join_pads(program: Program, spread: Spread) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _join_pads(inner, spread)))
    if not any(e.op is pad_p for e in program.equations):
        return program
    used, reads = users(program), read_by_loops(program, spread)
    result_vars = {v for v in program.outputs if isinstance(v, Var)}

    def joins(eqn: Equation) -> bool:
        if eqn.op is not pad_p or eqn.outputs[0] in result_vars or not _long_rows(eqn):
            return False
        (out,), readers = eqn.outputs, [program.equations[i] for i in used.get(eqn.outputs[0], ())]
        if spread.elements(out.aval) <= costs.FUSED_FEWEST or not readers:
            return False
        if reads(out):
            return len(_padded_dims(eqn)) == 1
        return all(r.op is slice_p and reads(r.outputs[0]) and _joins_one_dim(eqn, r) for r in readers)

    if not any(map(joins, program.equations)):
        return program
    equations = [e for eqn in program.equations for e in (_with_rows(eqn) if joins(eqn) else [eqn])]
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _padded_dims(eqn: Equation) -> list[tuple[int, int, int]]:
    """The dims that are padded, and by how many elements before and behind."""
    return [(d, low, high) for d, (low, high, _) in enumerate(eqn.params["padding_config"]) if low or high]


def _long_rows(eqn: Equation) -> bool:
    """Whether elements are added alone, and loops that end with a piece are long."""
    shape, dims = eqn.outputs[0].aval.shape, _padded_dims(eqn)
    if any(low < 0 or high < 0 or between for low, high, between in eqn.params["padding_config"]):
        return False
    return bool(dims) and all(math.prod(shape[d + 1 :] or shape[d:]) >= costs.FUSED_PADDED for d, _, _ in dims)


def _joins_one_dim(eqn: Equation, sliced: Equation) -> bool:
    """Whether a slice of a pad has fill values along one dim at most, so that no loop reads what is joined twice."""
    if any(s != 1 for s in sliced.params["strides"] or ()):
        return False
    first, limit, shape = sliced.params["start_indices"], sliced.params["limit_indices"], eqn.outputs[0].aval.shape
    return sum(first[d] < low or limit[d] > shape[d] - high for d, low, high in _padded_dims(eqn)) <= 1


def _with_rows(eqn: Equation) -> list[Equation]:
    """The pad as joined values; the rows along the first dims are the longest pieces."""
    (x, fill), (out,) = eqn.inputs, eqn.outputs
    padded_dims = _padded_dims(eqn)
    new_equations: list[Equation] = []

    def rows(d: int, count: int) -> list[Var]:
        if not count:
            return []
        shape = (*x.aval.shape[:d], count, *x.aval.shape[d + 1 :])
        row = Var(
            fill.aval.update(shape=shape, vma=out.aval.vma)
        )  # so that loops step from device to device as those of x do
        params = {"shape": shape, "axes": tuple(sorted(out.aval.vma))}
        new_equations.append(Equation(stored_fill, (fill,), (row,), params, eqn.source))
        return [row]

    for d, low, high in reversed(padded_dims):
        pieces = (*rows(d, low), x, *rows(d, high))
        shape = (*x.aval.shape[:d], low + x.aval.shape[d] + high, *x.aval.shape[d + 1 :])
        whole = out if d == padded_dims[0][0] else Var(out.aval.update(shape=shape))
        new_equations.append(Equation(concatenate_p, pieces, (whole,), {"dimension": d}, eqn.source))
        x = whole
    return new_equations
