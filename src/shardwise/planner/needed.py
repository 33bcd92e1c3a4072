"""Needed values: what the results of a program follow from, through barriers and loops value by value.

A residual that a loop stacks and whose reader's backward pass does not use it is never stored: XLA removes dead results of loops and dead
operands of barriers one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.ir import Atom, Equation, Loop, Program, Var, region_of
from shardwise.planner.roles import Role, role_of


def needed_values(program: Program, roles: Sequence[Role]) -> set[Atom]:
    """The values that the program's results, and effects, follow from."""
    return _needed(program, program.outputs, roles)


def needed_operands(eqn: Equation, role: Role, needed: set[Atom]) -> tuple[Atom, ...]:
    """The operands that the needed results of an equation follow from; none where nothing needs it."""
    if not eqn.op.has_effects(eqn.params) and needed.isdisjoint(eqn.outputs):
        return ()
    if role is Role.BARRIER:
        return tuple(a for a, v in zip(eqn.inputs, eqn.outputs, strict=True) if v in needed)
    region = region_of(eqn) if role is Role.LOOP else None
    if not isinstance(region, Loop) or region.test is not None:
        return eqn.inputs
    return _operands_of_loop(eqn, region, needed)


def _operands_of_loop(eqn: Equation, loop: Loop, needed: set[Atom]) -> tuple[Atom, ...]:
    """The carry as a whole, and those constants and stacked operands that it or needed stacked results follow from."""
    stacked = zip(eqn.outputs[loop.num_carry :], loop.body.outputs[loop.num_carry :], strict=True)
    wanted = (*loop.body.outputs[: loop.num_carry], *(entry for out, entry in stacked if out in needed))
    inside = _needed(loop.body, wanted, [role_of(e) for e in loop.body.equations])
    inputs = loop.body.inputs
    first = loop.num_consts
    last = first + loop.num_carry
    consts = zip(eqn.inputs[loop.consts], inputs[:first], strict=True)
    rows = zip(eqn.inputs[loop.rows], inputs[last:], strict=True)
    kept = [a for pairs in (consts, rows) for a, v in pairs if v in inside]
    return (*kept, *eqn.inputs[loop.carry])


def _needed(program: Program, results: Sequence[Atom], roles: Sequence[Role]) -> set[Atom]:
    needed: set[Atom] = {a for a in results if isinstance(a, Var)}
    for eqn, role in zip(reversed(program.equations), reversed(roles), strict=True):
        needed.update(a for a in needed_operands(eqn, role, needed) if isinstance(a, Var))
    return needed
