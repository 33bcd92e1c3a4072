"""About how long a small program runs."""

from __future__ import annotations

import math

from shardwise.ir import ALONE, Branches, Loop, Program, Spread, is_update, region_of

_COMPLEX = 2  # parts of a complex value


def small_cost(program: Program, spread: Spread = ALONE) -> float:
    """About how many additions one run takes on such devices; loops without a known length count as one round."""
    total = 0.0
    for eqn in program.equations:
        # Of a value that is updated only the windows are touched.
        touched = eqn.inputs[1:] if is_update(eqn) else eqn.outputs
        region, size = region_of(eqn), max((spread.elements(v.aval) for v in touched), default=1)
        if isinstance(region, Loop):
            total += (1 if region.length is None else region.length) * sum(
                small_cost(p, spread) for p in region.programs
            )
        elif isinstance(region, Branches):
            total += max(small_cost(p, spread) for p in region.programs)
        elif eqn.op.product:
            total += math.sqrt(spread.elements(eqn.inputs[0].aval) * spread.elements(eqn.inputs[1].aval) * size)
        else:
            each = eqn.op.emit.cost if eqn.op.emit is not None else 1
            if any(v.aval.dtype.kind == "c" for v in eqn.outputs):
                each *= _COMPLEX
            total += (
                1 + each * max(size, *(spread.elements(a.aval) for a in eqn.inputs))
                if eqn.op.fold is not None
                else 1 + each * size
            )
    return total
