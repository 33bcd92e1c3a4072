"""Inlining: an equation that only calls a program (nested jit, custom derivatives) is replaced by the program's equations.

An op that has a simpler form for literal operands (`Op.static`) takes that form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shardwise.ir import Atom, Equation, Literal, Program, ProgramMap, SharedParams, Var, map_equations, subprograms


def inline_calls(program: Program) -> Program:
    """`program` without call equations; what it calls gets fresh variables. Equal params become one object."""
    outermost, has_calls = program, dict[Program, bool]()

    def inline_program(program: Program) -> Program:
        if not _has_calls(program, has_calls):
            return map_equations(program, with_shared_params)
        equations: list[Equation] = []
        names: dict[Var, Atom] = {}
        _splice(program, names, equations, params_of, keeps_vars=program is outermost)
        outputs = tuple(a if isinstance(a, Literal) else names.get(a, a) for a in program.outputs)
        return Program(program.inputs, tuple(equations), outputs, program.num_consts, program.name)

    def with_shared_params(eqn: Equation) -> Equation:
        params = shared_params(eqn.params)
        return eqn if params is eqn.params else Equation(eqn.op, eqn.inputs, eqn.outputs, params, eqn.source)

    def params_of(eqn: Equation) -> Mapping[str, Any]:
        """The params of an equation with its programs inlined; equal ones are one object."""
        known_pair = params_by_id.get(id(eqn.params))
        if known_pair is None:
            alike = with_shared_params(eqn)
            known_pair = params_by_id[id(eqn.params)] = eqn.params, bodies.params_of(alike)
        return known_pair[1]

    bodies, shared_params = ProgramMap(inline_program), SharedParams()
    params_by_id: dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}  # by id of the params, which are kept
    return bodies.of(program)


def _has_calls(program: Program, known: dict[Program, bool]) -> bool:
    known_answer = known.get(program)
    if known_answer is None:
        known_answer = known[program] = any(
            eqn.op.inline is not None
            or eqn.op.static is not None
            or any(_has_calls(sub, known) for _, sub in subprograms(eqn.params))
            for eqn in program.equations
        )
    return known_answer


def _splice(
    program: Program,
    names: dict[Var, Atom],
    equations: list[Equation],
    params_of: Callable[[Equation], Mapping[str, Any]],
    keeps_vars: bool = False,
) -> None:
    """Append the equations of `program`, with fresh variables unless it `keeps_vars`: a program that stands nowhere else."""
    for eqn in program.equations:
        op, inputs, outputs = eqn.op, eqn.inputs, eqn.outputs
        if not names.keys().isdisjoint(inputs):
            inputs = tuple([names.get(a, a) for a in inputs])  # type: ignore[arg-type]
        if op.inline is not None:
            _splice_call(eqn, inputs, names, equations, params_of)
            continue
        if not keeps_vars:
            outputs = tuple([Var(v.aval) for v in outputs])
            names.update(zip(eqn.outputs, outputs, strict=True))
        params = params_of(eqn)
        if not (inputs is eqn.inputs and outputs is eqn.outputs and params is eqn.params):
            eqn = Equation(op, inputs, outputs, params, eqn.source)
        simpler = None if op.static is None else op.static(eqn)
        equations.append(eqn if simpler is None else simpler)


def _splice_call(
    eqn: Equation,
    inputs: tuple[Atom, ...],
    names: dict[Var, Atom],
    equations: list[Equation],
    params_of: Callable[[Equation], Mapping[str, Any]],
) -> None:
    """Append the equations of the program that `eqn` calls on these operands."""
    assert eqn.op.inline is not None
    inner: Program = eqn.op.inline(eqn)
    inner_names: dict[Var, Atom] = dict(zip(inner.inputs, inputs, strict=True))
    _splice(inner, inner_names, equations, params_of)
    for var, atom in zip(eqn.outputs, inner.outputs, strict=True):
        names[var] = atom if isinstance(atom, Literal) else inner_names.get(atom, atom)
