"""About how long a small program runs."""

from __future__ import annotations

import math

from shardwise.ir import Branches, Loop, Program, is_update, region_of


def small_cost(program: Program) -> float:
    """About how many additions one run takes; loops without a known length count as one round."""
    total = 0.0
    for eqn in program.equations:
        # Of a value that is updated only the windows are touched.
        touched = eqn.inputs[1:] if is_update(eqn) else eqn.outputs
        region, size = region_of(eqn), max((v.aval.size for v in touched), default=1)
        if isinstance(region, Loop):
            total += (1 if region.length is None else region.length) * sum(map(small_cost, region.programs))
        elif isinstance(region, Branches):
            total += max(map(small_cost, region.programs))
        elif eqn.op.product:
            total += math.sqrt(eqn.inputs[0].aval.size * eqn.inputs[1].aval.size * size)
        else:
            each = eqn.op.emit.cost if eqn.op.emit is not None else 1
            total += (
                1 + each * max(size, *(a.aval.size for a in eqn.inputs)) if eqn.op.fold is not None else 1 + each * size
            )
    return total
