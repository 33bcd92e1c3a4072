"""`NarrowedEquation`: an equation that gives fewer results, from fewer operands.

In: an equation of an op with `Op.narrow`, and which of its results are wanted. Out: its `NarrowedEquation`, which
`passes.live_results` puts in its place. `narrow_call` is the rule of ops that call one program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir.program import Atom, Equation, Program

if TYPE_CHECKING:
    from shardwise.ir.op import Params


@dataclass(frozen=True, slots=True)
class NarrowedEquation:
    """The params of the equation, and the positions of the operands and results that it keeps, in order."""

    params: Params
    operands: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """The part of a program that some of its results, and its effects, follow from.

    Attributes:
        whole: the program.
        equations: in order.
        outputs: the results.
        inputs: positions of the inputs that they follow from.
    """

    whole: Program
    equations: tuple[Equation, ...]
    outputs: tuple[Atom, ...]
    inputs: tuple[int, ...]
    _programs: dict[tuple[int, ...], Program] = field(default_factory=dict[tuple[int, ...], Program])

    def program(self, inputs: Sequence[int]) -> Program:
        """The part as a program of the inputs at these positions: one object for each choice, which loops then share."""
        whole, key = self.whole, tuple(inputs)
        known_program = self._programs.get(key)
        if known_program is None:
            consts = sum(i < whole.num_consts for i in key)
            given = tuple([whole.inputs[i] for i in key])
            known_program = self._programs[key] = Program(given, self.equations, self.outputs, consts, whole.name)
        return known_program


PartOf = Callable[[Program, Sequence[int]], ProgramPart]


def narrow_call(
    params: Params, wanted: Sequence[bool], part_of: PartOf, *, per_operand: str = "", per_result: Sequence[str] = ()
) -> NarrowedEquation:
    """The call of a program for the wanted results, with the operands that they follow from.

    Args:
        params: those of the call, among them its `program`.
        wanted: which results are wanted.
        part_of: gives the parts of programs.
        per_operand: the param that has an entry per operand, if there is one.
        per_result: params that have an entry per result.
    """
    results = tuple([i for i, w in enumerate(wanted) if w])
    part = part_of(params["program"], results)
    new_params: dict[str, Any] = {"program": part.program(part.inputs)}
    if per_operand:
        new_params[per_operand] = tuple([params[per_operand][i] for i in part.inputs])
    for name in per_result:
        new_params[name] = tuple([params[name][i] for i in results])
    return NarrowedEquation({**params, **new_params}, part.inputs, results)
