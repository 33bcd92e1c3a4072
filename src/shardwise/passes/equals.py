"""Equal equations: those with the same op, params and operands, whose results are the same.

Comes in: the equations of a program, in order. Goes out: for each the first one that it equals, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwise.ir import Atom, Equation, Literal, Var, exact_items


@dataclass(slots=True)
class Equals:
    """The equations seen so far.

    Attributes:
        first: by op, operands and the number of the params, the first equation.
        numbers: equal params share a number.
        number_of: by the id of params, which an equation keeps alive: many equations have the same object.
    """

    first: dict[Any, Equation] = field(default_factory=dict)
    numbers: dict[Any, int] = field(default_factory=dict)
    number_of: dict[int, int] = field(default_factory=dict)

    def of(self, eqn: Equation, inputs: Sequence[Atom], *more: Any) -> Equation | None:
        """An earlier equation with these operands that gives the same, and of which `more` is the same; None if there is none."""
        op = eqn.op
        if op.effects and op.has_effects(eqn.params):
            return None
        try:
            params = self.number_of.get(id(eqn.params))
            if params is None:
                params = self.numbers.setdefault(frozenset(exact_items(eqn.params)), len(self.numbers))
                self.number_of[id(eqn.params)] = params
            found = self.first.setdefault(
                (op, params, more, *[a if type(a) is Var else key_of(a) for a in inputs]), eqn
            )
        except TypeError:  # params that do not hash
            return None
        return None if found is eqn else found


def merged(
    equations: Sequence[Equation], placements: Mapping[Var, Any]
) -> tuple[tuple[Equation, ...], dict[Atom, Atom]]:
    """The equations without those that give what an earlier one gives in the same layout, and by result of these the one that is left."""
    equals, left = Equals(), dict[Atom, Atom]()
    kept: list[Equation] = []
    for eqn in equations:
        if not left.keys().isdisjoint(eqn.inputs):
            inputs = tuple([left.get(a, a) for a in eqn.inputs])
            eqn = Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)
        first = equals.of(eqn, eqn.inputs, *[placements.get(v) for v in eqn.outputs])
        if first is None:
            kept.append(eqn)
        else:
            left.update(zip(eqn.outputs, first.outputs, strict=True))
    return tuple(kept), left


def key_of(atom: Atom) -> Any:
    """What atoms of equal values share."""
    return (atom.aval, atom.value.tobytes()) if isinstance(atom, Literal) else atom
