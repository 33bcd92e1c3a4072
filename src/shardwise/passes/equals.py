"""Equal equations: those with the same op, params and operands, whose results are the same.

Comes in: the equations of a program, in order. Goes out: for each the first one that it equals, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
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

    def of(self, eqn: Equation, inputs: Sequence[Atom], more: tuple[Any, ...] = ()) -> Equation | None:
        """An earlier equation with these operands that gives the same, and of which `more` is the same; None if there is none."""
        op, given = eqn.op, eqn.params
        if op.effects and op.has_effects(given):
            return None
        try:
            params = self.number_of.get(id(given))
            if params is None:
                params = self.numbers.setdefault(frozenset(exact_items(given)), len(self.numbers))
                self.number_of[id(given)] = params
            for atom in inputs:
                if type(atom) is not Var:
                    inputs = tuple(map(key_of, inputs))
                    break
            # What a kernel computes for itself is in nobody's memory.
            key = (op, params, inputs, more, None if eqn.source is None else eqn.source.kernel)
            first_equation = self.first.setdefault(key, eqn)
        except TypeError:  # params that do not hash
            return None
        return None if first_equation is eqn else first_equation


def merge_equal(
    equations: Sequence[Equation], placements: Mapping[Var, Any]
) -> tuple[tuple[Equation, ...], dict[Atom, Atom]]:
    """The equations without those equal to an earlier one in the same layout, and for each dropped result the one to read instead."""
    equals, renamed_atoms = Equals(), dict[Atom, Atom]()
    kept_equations: list[Equation] = []
    layout_of, is_kept, equal_to = placements.get, kept_equations.append, equals.of
    for eqn in equations:
        inputs, outputs = eqn.inputs, eqn.outputs
        if renamed_atoms and not renamed_atoms.keys().isdisjoint(inputs):
            inputs = tuple([renamed_atoms.get(a, a) for a in inputs])
            eqn = Equation(eqn.op, inputs, outputs, eqn.params, eqn.source)
        layouts = (layout_of(outputs[0]),) if len(outputs) == 1 else tuple(map(layout_of, outputs))
        first = equal_to(eqn, inputs, layouts)
        if first is None:
            is_kept(eqn)
        else:
            renamed_atoms.update(zip(outputs, first.outputs, strict=True))
    return tuple(kept_equations), renamed_atoms


def key_of(atom: Atom) -> Any:
    """The key that atoms of equal values share."""
    return (atom.aval, atom.value.tobytes()) if isinstance(atom, Literal) else atom
