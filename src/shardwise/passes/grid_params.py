"""Translating params of equations from mesh axes to the axes of the grid that the program is compiled for.

Comes in: a global program and its grid. Goes out: the program whose equations, inner programs included, name grid axes only.
"""

from __future__ import annotations

from typing import Any

from shardwise.ir import Equation, Program, ProgramMap, map_equations
from shardwise.passes.grid import Grid


def on_grid(program: Program, grid: Grid) -> Program:
    """`program` with params rewritten by `Op.to_grid`."""
    rewritten: dict[tuple[Any, ...], tuple[Any, Any]] = {}  # by id of params, which are kept: no id is reused

    def changed(eqn: Equation) -> Equation:
        if eqn.op.to_grid is not None:
            types = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
            key = (eqn.op, id(eqn.params), types)
            if key not in rewritten:
                rewritten[key] = eqn.params, dict(eqn.op.to_grid(dict(eqn.params), grid, *types))
            eqn = Equation(eqn.op, eqn.inputs, eqn.outputs, rewritten[key][1], eqn.source)
        return inner(eqn)

    inner = ProgramMap(lambda p: map_equations(p, changed))
    return inner.of(program)
