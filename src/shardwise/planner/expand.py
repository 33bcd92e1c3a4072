"""Equations in terms of others: a program in which some stand for programs of their own."""

from __future__ import annotations

from collections.abc import Callable

from shardwise.ir import Atom, Equation, Literal, Program, Var


def expand_equations(program: Program, program_for: Callable[[Equation], Program | None]) -> Program:
    """`program` with the equations of ``program_for(eqn)``, where that is one, in the place of an equation with one result."""
    names: dict[Atom, Atom] = {}
    equations: list[Equation] = []
    for eqn in program.equations:
        inner = program_for(eqn)
        if inner is None:
            equations.append(eqn)
            continue
        names.clear()
        names.update(zip(inner.inputs, eqn.inputs, strict=True))
        *before, last = inner.equations
        for e in before:
            outputs = tuple([Var(v.aval) for v in e.outputs])
            equations.append(Equation(e.op, _rename_atoms(e.inputs, names), outputs, e.params, eqn.source))
            names.update(zip(e.outputs, outputs, strict=True))
        equations.append(Equation(last.op, _rename_atoms(last.inputs, names), eqn.outputs, last.params, eqn.source))
    if not names:  # no equation stands for a program
        return program
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _rename_atoms(atoms: tuple[Atom, ...], names: dict[Atom, Atom]) -> tuple[Atom, ...]:
    return tuple([a if isinstance(a, Literal) else names.get(a, a) for a in atoms])
