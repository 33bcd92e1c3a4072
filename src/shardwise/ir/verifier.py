"""The laws of the IR, checked after each pass where `jax_enable_checks` is set, as it is in the tests.

Each value is defined once and before it is used, and each equation's results have the shapes and dtypes that its op's type rule gives
for its operands and params.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.ir.program import Equation, Program, Var, subprograms
from shardwise.ir.types import ShapedArray


class ProgramError(AssertionError):
    """A pass produced a program that breaks the IR's laws: an internal error."""


def verify(program: Program, after: str = "", before: Program | None = None) -> Program:
    """Return `program` if it obeys the laws.

    The equations that it shares with `before`, a program that was verified, are not asked for their types again.

    Raises:
        ProgramError: it does not; the message names the equation, and the pass `after` which it was verified.
    """
    if program is before:
        return program
    verified_parts: set[Equation | Program] = set()
    if before is not None:
        _note(before, verified_parts)
    _verify(program, f" after {after}" if after else "", verified_parts)
    return program


def _note(program: Program, known: set[Equation | Program]) -> None:
    known.add(program)
    known.update(program.equations)
    for eqn in program.equations:
        for _, inner in subprograms(eqn.params):
            if inner not in known:
                _note(inner, known)


def _verify(program: Program, since: str, known: set[Equation | Program]) -> None:
    if program in known:
        return
    defined_vars: set[Var] = set()

    def define(variables: Sequence[Var], where: str) -> None:
        for var in variables:
            if var in defined_vars:
                raise ProgramError(f"{where}: {var} is defined twice{since}")
            defined_vars.add(var)

    define(program.inputs, "inputs")
    for eqn in program.equations:
        for atom in eqn.inputs:
            if isinstance(atom, Var) and atom not in defined_vars:
                raise ProgramError(f"{eqn}: {atom} is used before it is defined{since}")
        define(eqn.outputs, eqn.op.name)
        if eqn in known:
            continue
        _check_types(eqn, since)
        for _, inner in subprograms(eqn.params):
            _verify(inner, since, known)
    for atom in program.outputs:
        if isinstance(atom, Var) and atom not in defined_vars:
            raise ProgramError(f"output {atom} is never defined{since}")


def _check_types(eqn: Equation, since: str) -> None:
    rule_types = eqn.op.type_rule(*[a.aval for a in eqn.inputs], **eqn.params)
    inferred_types = tuple(rule_types) if eqn.op.multiple_results else (rule_types,)
    if len(inferred_types) != len(eqn.outputs):
        raise ProgramError(f"{eqn}: {eqn.op.name} gives {len(inferred_types)} results, not {len(eqn.outputs)}{since}")
    for var, aval in zip(eqn.outputs, inferred_types, strict=True):
        if _kind(var.aval) != _kind(aval):
            raise ProgramError(f"{eqn}: the type rule of {eqn.op.name} gives {aval.str_short()}{since}")


def _kind(aval: ShapedArray) -> object:
    return aval.shape, aval.dtype
