"""Steps of ops whose kernels run an algorithm (`Op.algorithm`): sorts, Fourier transforms, factorizations, running reductions, random bits.

In: an equation with local types. Out: the algorithm and how many of its steps the equation takes. What a step takes is a figure of the
machine (`Chip.steps`); a machine without that figure counts only the bytes of such an op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shardwise.ir import Equation, Steps, unwrap_op
from shardwise.ir.op import Types


def without_steps(
    equations: Sequence[Equation], figures: Mapping[str, float], turns: Mapping[str, float] | None = None
) -> tuple[Sequence[Equation], float]:
    """The equations that have no algorithm with a figure, and the seconds of the steps and turns of the others."""
    steps_by_equation = [steps_of(eqn) for eqn in equations]
    if not any(steps.algorithm in figures for steps in steps_by_equation):
        return equations, 0.0
    others = [eqn for eqn, steps in zip(equations, steps_by_equation, strict=True) if steps.algorithm not in figures]
    waits = turns or {}
    return others, math.fsum(
        s.number * figures.get(s.algorithm, 0.0) + s.turns * waits.get(s.algorithm, 0.0) for s in steps_by_equation
    )


def steps_of(eqn: Equation) -> Steps:
    """The algorithm of an equation and its steps; none of ops that have none of their own."""
    op, params, mapped_dims = unwrap_op(eqn.op, eqn.params)
    ins, outs = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
    if op.algorithm is not None:
        steps = op.algorithm(*_of_one(ins, outs, mapped_dims), params)
        return steps._replace(number=steps.number * math.prod(outs[0].shape[: len(mapped_dims)]))
    divides = op.divisor is not None
    if op.emit is not None and any(t.dtype.kind == "c" for t in ins) and (divides or op.transcendental):
        return Steps("complex_division" if divides else "complex_function", float(sum(t.size for t in outs)))
    return Steps("", 0.0)


def _of_one(ins: Types, outs: Types, mapped: Sequence[Sequence[bool]]) -> tuple[Types, Types]:
    """The types without the dims of vmaps, which stand in front."""
    if not mapped:
        return ins, outs
    counts = [sum(given) for given in zip(*mapped, strict=True)]
    of_one = tuple([t.update(shape=t.shape[n:]) for t, n in zip(ins, counts, strict=True)])
    return of_one, tuple([t.update(shape=t.shape[len(mapped) :]) for t in outs])
