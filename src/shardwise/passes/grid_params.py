"""Translating params of equations from mesh axes to the axes of the grid that the program is compiled for.

Comes in: a global program and its grid. Goes out: the program whose equations, inner programs included, name grid axes only.
"""

from __future__ import annotations

from typing import Any

from shardwise.ir import Equation, Program, ProgramMap
from shardwise.passes.grid import Grid


def on_grid(program: Program, grid: Grid) -> Program:
    """`program` with params rewritten by `Op.to_grid`."""
    rewritten: dict[tuple[Any, ...], tuple[Any, Any]] = {}  # by id of params, which are kept: no id is reused

    def own(program: Program) -> Program:
        """The program with the params of its own equations rewritten."""
        equations = list(program.equations)
        for i, eqn in enumerate(program.equations):
            if eqn.op.to_grid is None:
                continue
            types = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
            key = (eqn.op, id(eqn.params), types)
            if key not in rewritten:
                rewritten[key] = eqn.params, dict(eqn.op.to_grid(dict(eqn.params), grid, *types))
            equations[i] = Equation(eqn.op, eqn.inputs, eqn.outputs, rewritten[key][1], eqn.source)
        if all(new is old for new, old in zip(equations, program.equations, strict=True)):
            return program
        return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)

    inner = ProgramMap(lambda p: inner.inside(own(p)))
    return inner.of(program)
