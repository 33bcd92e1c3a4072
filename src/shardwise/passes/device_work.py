"""What a device computes, in bytes that it could send in the same time. With their transfers this compares one program on two grids.

Comes in: a per-device program. Goes out: a number. Devices that have lost a layout, and all compute the same, send little and compute much.
"""

from __future__ import annotations

import math

from shardwise.ir import Branches, Equation, Loop, Program, region_of, subprograms
from shardwise.ir.op import unwrap_op
from shardwise.passes.product_sizes import sizes_of_product
from shardwise.runtime import costs


def device_work(program: Program) -> float:
    """The bytes of all results and the multiplications of all products, in all rounds of loops, in bytes sent."""
    return math.fsum(map(_equation_work, program.equations))


def _equation_work(eqn: Equation) -> float:
    region = region_of(eqn)
    bodies = region.programs if region is not None else [p for _, p in subprograms(eqn.params)]
    if bodies:
        inner = list(map(device_work, bodies))
        if isinstance(region, Branches):
            return max(inner)
        rounds = region.length if isinstance(region, Loop) else None
        return math.fsum(inner) * (1 if rounds is None else rounds)
    made_bytes = 0 if eqn.op.view else sum([v.aval.nbytes for v in eqn.outputs])
    return made_bytes / costs.MADE_PER_SENT + _multiplications(eqn) / costs.MULTIPLIED_PER_SENT


def _multiplications(eqn: Equation) -> float:
    if not unwrap_op(eqn.op, eqn.params)[0].product:
        return 0.0
    return sizes_of_product(
        eqn.op, tuple([a.aval for a in eqn.inputs]), eqn.outputs[0].aval, eqn.params
    ).multiplications
