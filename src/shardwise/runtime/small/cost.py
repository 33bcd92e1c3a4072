"""About how long a small program runs."""

from __future__ import annotations

import math

from shardwise.ir import ALONE, Branches, Equation, Loop, Program, Spread, is_update, region_of

_COMPLEX = 2  # parts of a complex value


def small_cost(program: Program, spread: Spread = ALONE) -> float:
    """About how many additions one run takes on such devices; loops without a known length count as one round."""
    return sum([_equation_cost(eqn, spread) for eqn in program.equations], 0.0)


def _equation_cost(eqn: Equation, spread: Spread) -> float:
    # Of a value that is updated only the windows are touched.
    touched = eqn.inputs[1:] if is_update(eqn) else eqn.outputs
    region, size = region_of(eqn), max((spread.elements(v.aval) for v in touched), default=1)
    if isinstance(region, Loop):
        rounds = 1 if region.length is None else region.length
        return rounds * sum(small_cost(p, spread) for p in region.programs)
    if isinstance(region, Branches):
        return max(small_cost(p, spread) for p in region.programs)
    if eqn.op.product:
        types = [v.aval for v in (*eqn.inputs[:2], *eqn.outputs)]
        return math.sqrt(math.prod(t.size for t in types)) * spread.parts(*types)
    sizes = [spread.elements(a.aval) for a in eqn.inputs]
    each = eqn.op.emit.cost if eqn.op.emit is not None else 1
    if any(v.aval.dtype.kind == "c" for v in eqn.outputs):
        each *= _COMPLEX
    return 1 + each * (size if eqn.op.fold is None else max(size, *sizes))
