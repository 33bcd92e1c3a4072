"""Mesh-related params of equations, expressed in the axes of the grid that the program is compiled for.

Comes in: a global program and its grid. Goes out: the program whose equations, inner programs included, name grid axes only.
"""

from __future__ import annotations

from shardwise.ir import Equation, Program, map_equations, map_programs
from shardwise.passes.grid import Grid


def on_grid(program: Program, grid: Grid) -> Program:
    """`program` with the params that `Op.to_grid` rewrites rewritten."""

    def changed(eqn: Equation) -> Equation:
        if eqn.op.to_grid is not None:
            types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
            params = dict(eqn.op.to_grid(dict(eqn.params), grid, *types))
            eqn = Equation(eqn.op, eqn.inputs, eqn.outputs, params, eqn.source)
        return map_programs(eqn, lambda inner: on_grid(inner, grid))

    return map_equations(program, changed)
