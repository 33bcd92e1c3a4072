"""Sinking: parts of values that only loops read, as constants, are extracted in each trip.

Our engine hoists all loop invariants, since parts of a value are views that cost nothing. Compilers leave cheap moves in loops, to avoid
copies of all parts beside the value itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardwise.ir import Atom, Equation, Literal, Loop, Program, Var, region_of
from shardwise.planner.target import Target

_SunkBodies = dict[object, tuple[Program, list[Equation]]]  # equal bodies, and the moves in them


def with_moves_in_loops(program: Program, target: Target) -> Program:
    """The program with moves of loop invariants inside the loops."""
    if target.pooled or all(e.op.region is None for e in program.equations):
        return program
    moves = _moves_for_loops(program)
    if not moves:
        return program
    known_bodies: _SunkBodies = {}
    equations: list[Equation] = []
    for eqn in program.equations:
        if eqn.op.region is not None and not moves.keys().isdisjoint(eqn.inputs):
            equations.append(_with_moves(eqn, moves, known_bodies))
        elif moves.get(eqn.outputs[0] if eqn.outputs else None) is not eqn:
            equations.append(eqn)
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _moves_for_loops(program: Program) -> dict[Atom | None, Equation]:
    """The equations of views that only loops (or such views) read, as constants, by result."""
    moves: dict[Atom | None, Equation] = {}
    constants: set[Atom] = set()
    elsewhere: set[Atom] = set(program.outputs)
    for eqn in reversed(program.equations):
        loop = None if eqn.op.region is None else region_of(eqn)
        if isinstance(loop, Loop) and loop.counted:
            constants.update(eqn.inputs[loop.consts])
            elsewhere.update(eqn.inputs[: loop.consts.start], eqn.inputs[loop.consts.stop :])
        elif eqn.op.view and len(eqn.outputs) == 1 and eqn.outputs[0] in constants and eqn.outputs[0] not in elsewhere:
            moves[eqn.outputs[0]] = eqn
            constants.update(eqn.inputs)
        else:
            elsewhere.update(eqn.inputs)
    return moves


def _with_moves(eqn: Equation, moves: Mapping[Atom | None, Equation], known: _SunkBodies) -> Equation:
    """The equation of a loop with the moves of its constants inside."""
    loop = region_of(eqn)
    assert isinstance(loop, Loop)
    body = loop.body
    pairs = list(zip(eqn.inputs[loop.consts], body.inputs, strict=False))
    consts: list[tuple[Atom, Var]] = [(a, v) for a, v in pairs if a not in moves]
    names: dict[Atom, Atom] = dict(consts)
    new_equations: list[Equation] = []

    def move(atom: Atom, out: Var) -> None:
        eqn = moves[atom]
        new_equations.append(Equation(eqn.op, tuple(map(name, eqn.inputs)), (out,), eqn.params, eqn.source))

    def name(atom: Atom) -> Atom:
        if isinstance(atom, Literal):
            return atom
        if atom not in names:
            names[atom] = var = Var(atom.aval)
            if atom in moves:
                move(atom, var)
            else:
                consts.append((atom, var))
        return names[atom]

    for atom, var in pairs:
        if atom in moves:
            move(atom, var)
    inputs = (*[v for _, v in consts], *body.inputs[loop.num_consts :])
    places: dict[Atom, int] = {v: i for i, v in enumerate((*inputs, *[e.outputs[0] for e in new_equations]))}
    key = body, tuple([(e.op, id(e.params), *[places.get(a, a) for a in e.inputs]) for e in new_equations])
    if key not in known:
        known[key] = Program(inputs, (*new_equations, *body.equations), body.outputs, 0, body.name), new_equations
    params = {k: known[key][0] if v is body else v for k, v in eqn.params.items()}
    params[loop.counted] = len(consts)
    operands = (*eqn.inputs[: loop.consts.start], *[a for a, _ in consts], *eqn.inputs[loop.consts.stop :])
    return Equation(eqn.op, operands, eqn.outputs, params, eqn.source)
