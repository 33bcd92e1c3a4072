"""Folding reductions over mesh axes into the op whose result they reduce, if one process has the devices.

Comes in: a device program. Goes out: the program in which such a pair is one equation with the axes in its param `sum_axes`. Products,
sums, gathers and scatters can sum over devices themselves (`Op.absorbs`). A collective that is a reduction followed by a local step (a
reduce-scatter keeps each device's own part) folds as well if no axis crosses processes.
"""

from __future__ import annotations

from shardwise.base.shapes import Axes
from shardwise.ir import AbsorbedReduction, Equation, Program, Var, map_equations, map_programs


def fold_reductions(program: Program, crossing: frozenset[str] = frozenset()) -> Program:
    """The same program with such pairs joined, in loop bodies and branches too. `crossing` are the axes that cross processes: a sum
    over them stays an equation if its producer cannot sum between processes."""
    return _fold_program(program, crossing, {})


def _fold_program(program: Program, crossing: frozenset[str], done: dict[Program, Program]) -> Program:
    """`done`: new programs by old one, so that equations which shared a program still do."""
    if program not in done:
        inner = map_equations(program, lambda e: map_programs(e, lambda p: _fold_program(p, crossing, done)))
        done[program] = _fold_in(inner, crossing)
    return done[program]


def _fold_in(program: Program, crossing: frozenset[str]) -> Program:
    if all(_as_reduction(e) is None for e in program.equations):
        return program
    uses: dict[Var, int] = {}
    for eqn in program.equations:
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                uses[atom] = uses.get(atom, 0) + 1
    for atom in program.outputs:
        if isinstance(atom, Var):
            uses[atom] = uses.get(atom, 0) + 2
    producer: dict[Var, int] = {}
    equations: list[Equation | None] = []
    for eqn in program.equations:
        reduction = _as_reduction(eqn)
        producer_place = (
            producer.get(eqn.inputs[0]) if reduction is not None and isinstance(eqn.inputs[0], Var) else None
        )
        maker = equations[producer_place] if producer_place is not None else None
        if (
            reduction is None
            or maker is None
            or producer_place is None
            or uses.get(maker.outputs[0]) != 1
            or not _joins(eqn.params["axes"], reduction, maker, crossing)
        ):
            equations.append(eqn)
        else:
            equations[producer_place] = None
            axes, result = eqn.params["axes"], eqn.outputs[0]
            if reduction.rest is not None:
                whole = maker.outputs[0].aval
                result = Var(whole.update(vma=whole.vma - set(axes)))
            params = {**maker.params, "sum_axes": axes}
            equations.append(Equation(maker.op, maker.inputs, (result,), params, maker.source))
            if reduction.rest is not None:
                rest, own = reduction.rest
                equations.append(Equation(rest, (result,), eqn.outputs, dict(own), eqn.source))
        for var in eqn.outputs:
            producer[var] = len(equations) - 1
    remaining = tuple(e for e in equations if e is not None)
    return Program(program.inputs, remaining, program.outputs, program.num_consts, program.name)


def _as_reduction(eqn: Equation) -> AbsorbedReduction | None:
    collective = eqn.op.collective
    return None if collective is None or collective.absorbed is None else collective.absorbed(eqn.params)


def _joins(axes: Axes, reduction: AbsorbedReduction, maker: Equation, crossing: frozenset[str]) -> bool:
    """Whether the op that made the operand of a reduction over mesh axes can do the reduction itself."""
    if (
        maker.op.absorbs is None
        or maker.params.get("sum_axes")
        or reduction.kind != maker.op.reduction_of(maker.params)
    ):
        return False
    if not crossing.isdisjoint(axes) and (maker.op.across is None or reduction.rest is not None):
        return False
    return set(axes) <= set().union(*[a.aval.vma for a in maker.inputs])
