"""Turned views: in which order the dims of a view lie in the memory of its root.

In: an equation whose result shows its operand, and the order of the operand's dims. Out: the order of the result's dims, as far as
strides can say it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardwise.ir import Atom, Equation

Order = tuple[int, ...]  # dims of more than one element, those whose elements lie farthest apart first


def order_of(eqn: Equation, orders: Mapping[Atom, Order]) -> Order | None:
    """The order of the result's dims; None where no strides show it: it has to be copied.

    A reshape takes dims apart wherever they lie, but joins only dims that lie side by side. `orders` are those of turned operands.
    """
    operand, out = eqn.inputs[0], eqn.outputs[0]
    rule = eqn.op.sharding_rule((operand.aval,), (out.aval,), eqn.params)
    lies: dict[int, int] = {}  # per factor its place
    for d in orders.get(operand, range(operand.aval.ndim)):
        for factor in rule.inputs[0][d]:
            if rule.sizes[factor] > 1:
                lies[factor] = len(lies)
    starts: list[tuple[int, int]] = []
    for d, factors in enumerate(rule.outputs[0]):
        parts = [f for f in factors if rule.sizes[f] > 1]
        at = [lies.get(f, -1) for f in parts]
        if math.prod([rule.sizes[f] for f in parts]) != out.aval.shape[d] or -1 in at:
            return None
        if at != list(range(at[0], at[0] + len(at))) if at else False:
            return None
        if at:
            starts.append((at[0], d))
    return tuple([d for _, d in sorted(starts)])


def is_turned(order: Order) -> bool:
    """Whether elements lie in another order than in an array of its own."""
    return list(order) != sorted(order)
