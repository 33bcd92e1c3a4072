"""Rings: a product with a large gather or scatter as many small products, each beside the transfer of one part.

From `Target.rings_from` devices on, a product with a gathered operand of at least `ring_bytes` computes with one part while it receives
the next from its neighbours: the gathered value never exists, only the parts in flight in both directions. A product whose result is
scattered sends partial sums along likewise. XLA calls that a windowed einsum, JAX's documents a collective matmul.
"""

from __future__ import annotations

import math
from dataclasses import field, replace

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Equation, Var, unwrap_op
from shardwise.planner.recompute import Chosen
from shardwise.planner.roles import Role, role_of
from shardwise.planner.target import Target
from shardwise.planner.values import Values
from shardwise.planner.work import Group

# The part in use and the next one, in each direction.
PARTS = 4


@dataclass(slots=True)
class Rings:
    """The collectives that run inside products.

    Attributes:
        taken: the positions of equations that have no group of their own.
        products: per position of a scatter those of the product that runs with it.
    """

    taken: set[int] = field(default_factory=set[int])
    products: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])


def find_rings(values: Values, chosen: Chosen, target: Target) -> Rings:
    """The collectives that run as rings; a gathered value that only rings read is no longer stored."""
    rings = Rings()
    if not target.rings_from:
        return rings
    for i, eqn in enumerate(values.program.equations):
        if values.roles[i] is not Role.COLLECTIVE or len(eqn.inputs) != 1 or len(eqn.outputs) != 1:
            continue
        if devices_of(eqn) < target.rings_from:
            continue
        operand, out = values.root(eqn.inputs[0]), eqn.outputs[0]
        if not isinstance(operand, Var):
            continue
        if out.aval.nbytes >= target.ring_bytes and out.aval.nbytes > operand.aval.nbytes:
            users = values.users.get(out, [])
            if out not in values.stored and users and all(values.roles[u] is Role.PRODUCT for u in users):
                rings.taken.add(i)
                chosen.stored.discard(out)
                chosen.leaves[out], chosen.cones[out] = (operand,), frozenset((i,))
        elif operand.aval.nbytes >= target.ring_bytes and operand.aval.nbytes > out.aval.nbytes:
            product = values.makers.get(operand)
            if product is None or values.roles[product] is not Role.PRODUCT or values.users.get(operand) != [i]:
                continue
            if operand is eqn.inputs[0] and not any(operand is a for a in values.outputs):
                rings.taken.add(product)
                rings.products[i] = (product,)
    return rings


def with_ring(group: Group, target: Target) -> Group:
    """A group whose product runs beside a collective, with the parts in flight."""
    if group.kind != "product" or not target.rings_from:
        return group
    parts = 0
    devices = 1
    for eqn in group.equations:
        if role_of(eqn) is Role.COLLECTIVE:
            devices = max(devices, devices_of(eqn))
            parts += PARTS * min(eqn.inputs[0].aval.nbytes, eqn.outputs[0].aval.nbytes)
    return replace(group, rings=devices, scratch=parts) if devices > 1 else group


def devices_of(eqn: Equation) -> int:
    """The number of devices that a collective joins."""
    _, params, _ = unwrap_op(eqn.op, eqn.params)
    return math.prod(params.get("sizes", (1,)))
