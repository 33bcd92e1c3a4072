"""Folding reductions over mesh axes into the op whose result they reduce, if one process has the devices.

Comes in: a device program. Goes out: the program in which such a pair is one equation with the axes in its param `sum_axes`. Products,
sums, gathers and scatters can sum over devices themselves (`Op.absorbs`). A collective that is a reduction followed by a local step (a
reduce-scatter keeps each device's own part) folds as well if no axis crosses processes. Between the two there may be ops that only add
up and move what is summed (`Op.additive`), as in gradients of weights that a layer uses twice: all of the terms are summed then.
"""

from __future__ import annotations

from shardwise.base.shapes import Axes
from shardwise.ir import AbsorbedReduction, Atom, Equation, Literal, Program, Var, map_equations, map_programs
from shardwise.passes.partial_sums import is_zero, keeps_sums, summed_operands


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
    uses: dict[Atom, int] = {}
    for atom in (*[a for e in program.equations for a in e.inputs], *program.outputs, *program.outputs):
        uses[atom] = uses.get(atom, 0) + 1
    makers: dict[Atom, int] = {}
    equations: list[Equation | None] = []
    for eqn in program.equations:
        reduction = _as_reduction(eqn)
        tree = None if reduction is None else _Tree(eqn, reduction, crossing, equations, makers, uses)
        if tree is None or isinstance(eqn.inputs[0], Literal) or not tree.follow(eqn.inputs[0]):
            new_equations = [eqn]
        else:
            new_equations = tree.summed_equations()
            for place in tree.places:
                equations[place] = None
        for e in new_equations:
            equations.append(e)
            makers.update(dict.fromkeys(e.outputs, len(equations) - 1))
    remaining = tuple(e for e in equations if e is not None)
    return Program(program.inputs, remaining, program.outputs, program.num_consts, program.name)


def _as_reduction(eqn: Equation) -> AbsorbedReduction | None:
    collective = eqn.op.collective
    return None if collective is None or collective.absorbed is None else collective.absorbed(eqn.params)


class _Tree:
    """The equations that make the operand of a reduction over mesh axes: those that can reduce themselves, and those between that add
    up and move their results. Nothing else reads these.

    Attributes:
        places: of those equations among `equations`.
    """

    def __init__(
        self,
        eqn: Equation,
        reduction: AbsorbedReduction,
        crossing: frozenset[str],
        equations: list[Equation | None],
        makers: dict[Atom, int],
        uses: dict[Atom, int],
    ) -> None:
        self._eqn, self._reduction, self._crossing = eqn, reduction, crossing
        self._equations, self._makers, self._uses = equations, makers, uses
        self._axes: Axes = eqn.params["axes"]
        self.places: list[int] = []

    def follow(self, atom: Atom) -> bool:
        """Whether a value is made so. The places are noted."""
        if is_zero(atom):
            return True
        place = self._makers.get(atom)
        maker = None if place is None else self._equations[place]
        if place is None or maker is None or self._uses[atom] != 1:
            return False
        self.places.append(place)
        return self._joins(maker) or (self._is_between(maker) and all([self.follow(a) for a in summed_operands(maker)]))

    def summed_equations(self) -> list[Equation]:
        """The equations in place of those and of the reduction."""
        eqn, axes = self._eqn, self._axes
        operand, result = eqn.inputs[0], eqn.outputs[0]
        rest = self._reduction.rest
        names: dict[Atom, Var] = {} if rest is not None else {operand: result}
        new_equations: list[Equation] = []
        for place in sorted(self.places):
            maker = self._equations[place]
            assert maker is not None
            (out,) = maker.outputs
            whole = names.setdefault(out, Var(out.aval.update(vma=out.aval.vma - set(axes))))
            if self._joins(maker):
                new_equations.append(
                    Equation(maker.op, maker.inputs, (whole,), {**maker.params, "sum_axes": axes}, maker.source)
                )
            else:
                operands = tuple([names.get(a, a) for a in maker.inputs])
                new_equations.append(Equation(maker.op, operands, (whole,), maker.params, maker.source))
        if rest is not None:
            new_equations.append(Equation(rest[0], (names[operand],), eqn.outputs, dict(rest[1]), eqn.source))
        return new_equations

    def _joins(self, maker: Equation) -> bool:
        """Whether an equation can do the reduction itself."""
        axes, reduction = self._axes, self._reduction
        if (
            maker.op.absorbs is None
            or maker.params.get("sum_axes")
            or reduction.kind != maker.op.reduction_of(maker.params)
        ):
            return False
        if not self._crossing.isdisjoint(axes) and (maker.op.across is None or reduction.rest is not None):
            return False
        return set(axes) <= set().union(*[a.aval.vma for a in maker.inputs])

    def _is_between(self, maker: Equation) -> bool:
        """Whether the reduction may be taken before an equation: of its operands, in its type."""
        if self._reduction.kind != "sum" or len(maker.outputs) != 1 or not keeps_sums(maker):
            return False
        parts = summed_operands(maker)
        others = [a for a in maker.inputs if not any(a is p for p in parts)]
        return all(a.aval.dtype == maker.outputs[0].aval.dtype for a in parts) and all(
            a.aval.vma.isdisjoint(self._axes) for a in others
        )
