"""Steps of ops whose kernels run an algorithm (`Op.algorithm`): sorts, Fourier transforms, factorizations, running reductions, random bits.

In: an equation with local types. Out: the algorithm and how many of its steps the equation takes. What a step takes is a figure of the
machine (`Chip.steps`), or several by the size of what is worked on; a machine without that figure counts only the bytes of such an op.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from shardwise.ir import Branches, Equation, Steps, region_of, rounds_of, subprograms, unwrap_op
from shardwise.ir.op import Types
from shardwise.planner.curves import Point, at_size

StepCost = float | Sequence[Point]  # seconds, or those by the size
_NO_TURNS: Mapping[str, float] = {}


def without_steps(
    equations: Sequence[Equation], figures: Mapping[str, StepCost], turns: Mapping[str, float] | None = None
) -> tuple[Sequence[Equation], float]:
    """The equations that have no algorithm with a figure, and the seconds of the steps and turns of the others, and of those in
    programs that equations hold."""
    others = [eqn for eqn in equations if named_figure(steps_of(eqn).algorithm, figures) is None]
    found = _seconds(equations, figures, turns or _NO_TURNS)
    return (equations if len(others) == len(equations) else others), found


def named_figure(algorithm: str, figures: Mapping[str, StepCost]) -> str | None:
    """The name under which a machine has the figure of an algorithm: its own, or of a variant that of the algorithm."""
    names = (algorithm, algorithm.partition("/")[0])
    return next((name for name in names if name in figures), None)


def _seconds(equations: Iterable[Equation], figures: Mapping[str, StepCost], turns: Mapping[str, float]) -> float:
    total = 0.0
    for eqn in equations:
        steps = steps_of(eqn)
        name = named_figure(steps.algorithm, figures)
        if name is not None:
            cost = figures[name]
            each = cost if isinstance(cost, (int, float)) else at_size(cost, steps.size)
            total += steps.number * each + steps.turns * turns.get(name, 0.0)
            continue
        region = region_of(eqn)
        programs = [p for _, p in subprograms(eqn.params)] if region is None else region.programs
        if programs:
            inner = [_seconds(p.equations, figures, turns) for p in programs]
            total += max(inner) if isinstance(region, Branches) else (rounds_of(eqn) or 1) * math.fsum(inner)
    return total


def steps_of(eqn: Equation) -> Steps:
    """The algorithm of an equation and its steps; none of ops that have none of their own."""
    op, params, mapped = unwrap_op(eqn.op, eqn.params)
    ins, outs = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
    if op.algorithm is not None:
        steps = op.algorithm(*_of_one(ins, outs, mapped), params)
        return steps._replace(number=steps.number * math.prod(outs[0].shape[: len(mapped)]))
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
