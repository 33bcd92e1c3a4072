"""Joining a large reduction with the reduction over devices of its result: one more loop of the same group.

Comes in: a per-device program. Goes out: the program in which such a pair is one equation, with the mesh axes in `sum_axes`. Where the
values that are reduced are read from pieces that lie apart, as a part and the rows that a neighbour sent, the two stay apart, and are taken
apart: a loop over all devices does not find the next device's pieces by equal steps, and values would be joined in memory for it.
"""

from __future__ import annotations

import math

from shardwise.ir import Atom, Equation, Program, Var, map_equations, map_programs
from shardwise.passes.parts import makers, users
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import joined_pieces, space_of
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
    parts: dict[int, list[Equation]] = {}
    for i, eqn in enumerate(program.equations):
        if eqn.op.fold is not None and eqn.op.absorbs is not None and eqn.params.get("sum_axes"):
            if _reads_pieces_apart(eqn.inputs[0], program, producers):
                parts[i] = _take_apart(eqn)
            continue
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
            and not _reads_pieces_apart(first.inputs[0], program, producers)
        ):
            equations[producers[x]] = None
            equations[i] = Equation(
                first.op, first.inputs, eqn.outputs, {**first.params, "sum_axes": axes}, first.source
            )
    remaining = tuple([e for i, old in enumerate(equations) if old is not None for e in parts.get(i, [old])])
    return Program(program.inputs, remaining, program.outputs, program.num_consts, program.name)


def _reads_pieces_apart(atom: Atom, program: Program, producers: dict[Var, int]) -> bool:
    """Whether elementwise ops make a value of a joined one whose pieces are parts of several values."""
    atoms, passed_atoms = [atom], set[Atom]()
    while atoms:
        x = atoms.pop()
        if x in passed_atoms or not isinstance(x, Var) or x not in producers:
            continue
        passed_atoms.add(x)
        eqn = program.equations[producers[x]]
        pieces = joined_pieces(eqn)
        if pieces is None:
            atoms += eqn.inputs if eqn.op.emit is not None else ()
        elif len({_source(piece.source, program, producers) for piece in pieces}) > 1:
            # Pieces of rows are joined in memory in any case: their elements lie at unequal steps.
            return pieces[0].along == 0 or pieces[0].along < x.aval.ndim - 1
    return False


def _source(x: Var, program: Program, producers: dict[Var, int]) -> Var:
    """The value that `x` is a view of, or itself."""
    while x in producers and (eqn := program.equations[producers[x]]).op.view and isinstance(eqn.inputs[0], Var):
        x = eqn.inputs[0]
    return x


def _take_apart(eqn: Equation) -> list[Equation]:
    """A reduction within devices, and the one over devices of its result."""
    axes, collective = eqn.params["sum_axes"], eqn.op.absorbs
    assert collective is not None
    out = eqn.outputs[0].aval
    part = Var(out.update(vma=out.vma | eqn.inputs[0].aval.vma))
    params = {k: v for k, v in eqn.params.items() if k != "sum_axes"}
    over = {"axes": axes, "kind": eqn.op.reduction_of(eqn.params)}
    return [
        Equation(eqn.op, eqn.inputs, (part,), params, eqn.source),
        Equation(collective, (part,), eqn.outputs, over, eqn.source),
    ]
