"""Simplification of per-device programs: equal equations once, dead ones never, cheaper forms."""

from __future__ import annotations

from typing import Any

from shardwise.ir import (
    Atom,
    Equation,
    Literal,
    Program,
    Var,
    exact_items,
    live_equations,
    map_equations,
    map_programs,
)


def simplify(program: Program) -> Program:
    """The same program with less to do, loop bodies and branches too."""
    return _simplified(program, {})


def _simplified(program: Program, done: dict[Program, Program]) -> Program:
    """`done` keeps what was made of inner programs, so that equations that shared one still do."""
    if program not in done:
        inner = cheaper_forms(map_equations(program, lambda e: map_programs(e, lambda p: _simplified(p, done))))
        done[program] = live_equations(common_subexpressions(inner))
    return done[program]


def cheaper_forms(program: Program) -> Program:
    """Put in an equation's place what its op would rather have run (`Op.rewrite`)."""
    if all(e.op.rewrite is None for e in program.equations):
        return program
    names: dict[Var, Atom] = {}
    equations: list[Equation] = []

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else names.get(a, a)

    for eqn in program.equations:
        eqn = Equation(eqn.op, tuple(map(read, eqn.inputs)), eqn.outputs, eqn.params, eqn.source)
        cheaper: Program | None = eqn.op.rewrite(eqn) if eqn.op.rewrite is not None else None
        if cheaper is None:
            equations.append(eqn)
            continue
        names.update(zip(cheaper.inputs, eqn.inputs, strict=True))
        for e in cheaper.equations:
            equations.append(Equation(e.op, tuple(map(read, e.inputs)), e.outputs, e.params, e.source or eqn.source))
        names.update(zip(eqn.outputs, map(read, cheaper.outputs), strict=True))
    outputs = tuple(map(read, program.outputs))
    return Program(program.inputs, tuple(equations), outputs, program.num_consts, program.name)


def common_subexpressions(program: Program) -> Program:
    """Merge equations with the same op, params and operands."""
    replaced: dict[Var, Atom] = {}
    seen: dict[Any, Equation] = {}
    kept = []

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else replaced.get(a, a)

    for eqn in program.equations:
        inputs = tuple(read(a) for a in eqn.inputs)
        eqn = Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)
        if eqn.op.has_effects(eqn.params):
            kept.append(eqn)
            continue
        try:
            key = (eqn.op, tuple(_key(a) for a in inputs), frozenset(exact_items(eqn.params)))
            first = seen.setdefault(key, eqn)
        except TypeError:  # params that do not hash
            first = eqn
        if first is eqn:
            kept.append(eqn)
        else:
            replaced.update(zip(eqn.outputs, first.outputs, strict=True))
    return Program(
        program.inputs, tuple(kept), tuple(read(a) for a in program.outputs), program.num_consts, program.name
    )


def _key(atom: Atom) -> Any:
    return (atom.aval, atom.value.tobytes()) if isinstance(atom, Literal) else atom
