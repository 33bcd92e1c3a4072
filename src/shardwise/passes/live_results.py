"""Live results: loops, branches and barriers give only the results that somebody reads, from only the operands that these follow from.

Comes in: a per-device program. Goes out: the program without dead equations, whose equations with several results have only live ones
(`Op.narrow`). A residual that a forward loop stacks goes with the last equation of the backward loop that reads it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from shardwise.ir import Atom, Equation, NarrowedEquation, Program, ProgramPart, Var


class LiveResults:
    """The pass, for programs that share bodies: what is found of a body, or of params, is found once."""

    __slots__ = ("_narrowed", "_parts")

    def __init__(self) -> None:
        self._parts: dict[tuple[Program, tuple[int, ...]], ProgramPart] = {}
        # By id of the params, which the values keep.
        self._narrowed: dict[tuple[Any, int, tuple[bool, ...]], tuple[Any, NarrowedEquation | None]] = {}

    def __call__(self, program: Program) -> Program:
        """The program with live results alone; the program itself if all are live."""
        equations, _ = self._live(program.equations, program.outputs)
        if len(equations) == len(program.equations) and all(map(operator.is_, equations, program.equations)):
            return program
        return Program(program.inputs, equations, program.outputs, program.num_consts, program.name)

    def part_of(self, program: Program, results: Sequence[int]) -> ProgramPart:
        """The part of a program that the results at these positions, and its effects, follow from."""
        key = program, tuple(results)
        known_part = self._parts.get(key)
        if known_part is None:
            outputs = tuple([program.outputs[i] for i in results])
            equations, needed_atoms = self._live(program.equations, outputs)
            inputs = tuple([i for i, v in enumerate(program.inputs) if v in needed_atoms])
            known_part = self._parts[key] = ProgramPart(program, equations, outputs, inputs)
        return known_part

    def _live(self, equations: Sequence[Equation], outputs: Sequence[Atom]) -> tuple[tuple[Equation, ...], set[Atom]]:
        """The equations that `outputs` and effects follow from, and the values that these read."""
        needed_atoms: set[Atom] = {a for a in outputs if isinstance(a, Var)}
        kept_equations: list[Equation] = []
        for eqn in reversed(equations):
            if needed_atoms.isdisjoint(eqn.outputs) and not eqn.op.has_effects(eqn.params):
                continue
            if eqn.op.narrow is not None:
                eqn = self._narrow(eqn, needed_atoms)
            kept_equations.append(eqn)
            needed_atoms.update(eqn.inputs)
        kept_equations.reverse()
        return tuple(kept_equations), needed_atoms

    def _narrow(self, eqn: Equation, needed: set[Atom]) -> Equation:
        wanted_flags = tuple([v in needed for v in eqn.outputs])
        key = (eqn.op, id(eqn.params), wanted_flags)
        known_form = self._narrowed.get(key)
        if known_form is None:
            assert eqn.op.narrow is not None
            narrow_form: NarrowedEquation = eqn.op.narrow(eqn.params, wanted_flags, self.part_of)
            whole = len(narrow_form.results) == len(eqn.outputs) and len(narrow_form.operands) == len(eqn.inputs)
            known_form = self._narrowed[key] = eqn.params, None if whole else narrow_form
        new = known_form[1]
        if new is None:
            return eqn
        inputs = tuple([eqn.inputs[i] for i in new.operands])
        outputs = tuple([eqn.outputs[i] for i in new.results])
        return Equation(eqn.op, inputs, outputs, new.params, eqn.source)


def live_results(program: Program) -> Program:
    """The program without dead equations and dead results; the program itself if there are none."""
    return LiveResults()(program)
