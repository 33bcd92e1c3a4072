"""Positions of several numbers are read column by column, where the columns lie.

Comes in: a per-device program. Goes out: the program in which ops at joined columns of positions (`x[i, j]`, `x.at[i, j].add`) get the
columns as operands (`Op.columns`), and nobody joins these.
"""

from __future__ import annotations

import math

from shardwise.ir import Atom, Equation, Program, Var, map_equations, map_programs
from shardwise.ops.indexing.columns import joined_operand, with_columns
from shardwise.passes.parts import makers
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import joined_pieces
from shardwise.runtime.machine import available


def with_columns_apart(program: Program, env: Env) -> Program:
    """`program` with the columns of many positions as operands of the ops that use them."""
    return _apart(program, env) if available() else program


def _apart(program: Program, env: Env) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _apart(inner, env)))
    if all(e.op.columns is None for e in program.equations):
        return program
    producers, devices = makers(program), math.prod(env.axis_sizes)

    def apart(eqn: Equation) -> Equation:
        joined_atom = joined_operand(eqn)
        if joined_atom is None or joined_atom not in producers or joined_atom.aval.size * devices < costs.FUSED_FEWEST:
            return eqn
        if env.processes is not None and eqn.op.exchange_axes(eqn.params):
            return eqn  # which has a kernel of its own
        columns = _columns_of(program.equations[producers[joined_atom]])
        return eqn if columns is None else with_columns(eqn, columns)

    return map_equations(program, apart)


def _columns_of(eqn: Equation) -> tuple[Atom, ...] | None:
    """The operands of an equation that joins them as columns, one beside the other along the last dim."""
    pieces = joined_pieces(eqn)
    if pieces is None or any(p.over or p.along != eqn.outputs[0].aval.ndim - 1 for p in pieces):
        return None
    columns: tuple[Var, ...] = tuple(p.source for p in pieces)
    return columns if all(c.aval.shape[-1] == 1 for c in columns) else None
