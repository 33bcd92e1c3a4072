"""Joining a large reduction with the reduction over devices of its result: one more loop of the same group.

Comes in: a per-device program. Goes out: the program in which such a pair is one equation, with the mesh axes in `sum_axes`.
"""

from __future__ import annotations

import math

from shardwise.ir import Equation, Program, Var, map_equations, map_programs
from shardwise.passes.parts import makers, users
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import space_of
from shardwise.runtime.machine import available


def with_crossing_reductions(program: Program, env: Env) -> Program:
    """`program` with these pairs joined; unchanged if the devices belong to several processes."""
    if not env.axis_names or env.processes is not None or not available():
        return program
    return _join_reductions(program, env)


def _join_reductions(program: Program, env: Env) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _join_reductions(inner, env)))
    producers, used = makers(program), users(program)
    result_vars = {v for v in program.outputs if isinstance(v, Var)}
    equations: list[Equation | None] = list(program.equations)
    for i, eqn in enumerate(program.equations):
        x = eqn.inputs[0] if eqn.inputs else None
        collective = eqn.op.collective
        reduction = None if collective is None or collective.absorbed is None else collective.absorbed(eqn.params)
        if reduction is None or reduction.rest is not None or x not in producers or x in result_vars or used[x] != [i]:
            continue
        first = program.equations[producers[x]]
        space, axes = space_of(first), eqn.params["axes"]
        if not first.op.crosses or space is None or space.crossed or not set(axes) <= space.vma:
            continue
        if (
            first.op.reduction_of(first.params) == reduction.kind
            and math.prod(space.shape) * math.prod(env.axis_sizes) >= costs.FUSED_FEWEST
        ):
            equations[producers[x]] = None
            equations[i] = Equation(
                first.op, first.inputs, eqn.outputs, {**first.params, "sum_axes": axes}, first.source
            )
    remaining = tuple(e for e in equations if e is not None)
    return Program(program.inputs, remaining, program.outputs, program.num_consts, program.name)
