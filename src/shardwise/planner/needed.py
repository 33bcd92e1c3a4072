"""Needed values: what the results of a program follow from, through barriers and loops value by value.

A residual that a loop stacks and whose reader's backward pass does not use it is never stored: XLA removes dead results of loops and dead
operands of barriers one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardwise.ir import Atom, Equation, Loop, Program, Var, region_of
from shardwise.planner.roles import Role, role_of


@dataclass(frozen=True, slots=True)
class Needed:
    """What results and effects of a program follow from.

    Attributes:
        values: the needed values.
        operands: per equation those of its operands that they follow from; none where nothing needs it.
    """

    values: set[Atom]
    operands: tuple[tuple[Atom, ...], ...]


@dataclass(slots=True)
class NeededInLoops:
    """What was found of loops' bodies, which layers of an unrolled model share: positions of needed inputs by needed stacked results."""

    known: dict[tuple[Program, tuple[int, ...]], tuple[int, ...]] = field(
        default_factory=dict[tuple[Program, tuple[int, ...]], tuple[int, ...]]
    )

    def inputs_of(self, loop: Loop, stacked: tuple[int, ...]) -> tuple[int, ...]:
        """The inputs of a loop's body that its carry and these of its stacked results follow from."""
        key = (loop.body, stacked)
        found = self.known.get(key)
        if found is None:
            body = loop.body
            wanted = (*body.outputs[: loop.num_carry], *(body.outputs[i] for i in stacked))
            inside = needed_of(body, wanted, [role_of(e) for e in body.equations], self).values
            found = self.known[key] = tuple([i for i, v in enumerate(body.inputs) if v in inside])
        return found


def needed_of(
    program: Program, results: Sequence[Atom], roles: Sequence[Role], loops: NeededInLoops | None = None
) -> Needed:
    """What `results` of a program, and its effects, follow from."""
    loops = loops or NeededInLoops()
    needed: set[Atom] = {a for a in results if isinstance(a, Var)}
    operands: list[tuple[Atom, ...]] = []
    for eqn, role in zip(reversed(program.equations), reversed(roles), strict=True):
        read = _needed_operands(eqn, role, needed, loops)
        operands.append(read)
        needed.update([a for a in read if isinstance(a, Var)])
    return Needed(needed, tuple(reversed(operands)))


def _needed_operands(eqn: Equation, role: Role, needed: set[Atom], loops: NeededInLoops) -> tuple[Atom, ...]:
    """The operands that the needed results of an equation follow from; none where nothing needs it."""
    if needed.isdisjoint(eqn.outputs) and not eqn.op.has_effects(eqn.params):
        return ()
    if role is Role.BARRIER:
        return tuple([a for a, v in zip(eqn.inputs, eqn.outputs, strict=True) if v in needed])
    region = region_of(eqn) if role is Role.LOOP else None
    if not isinstance(region, Loop) or region.test is not None:
        return eqn.inputs
    return _operands_of_loop(eqn, region, needed, loops)


def _operands_of_loop(eqn: Equation, loop: Loop, needed: set[Atom], loops: NeededInLoops) -> tuple[Atom, ...]:
    """The carry as a whole, and those constants and stacked operands that it or needed stacked results follow from."""
    stacked = tuple([i for i in range(loop.num_carry, len(eqn.outputs)) if eqn.outputs[i] in needed])
    first = loop.num_consts
    last = first + loop.num_carry
    consts, rows = eqn.inputs[loop.consts], eqn.inputs[loop.rows]
    inside = loops.inputs_of(loop, stacked)
    kept = [consts[i] if i < first else rows[i - last] for i in inside if not first <= i < last]
    return (*kept, *eqn.inputs[loop.carry])
