"""Advice whose effects are planned: the step is compiled anew with each change, and its plan compared with the program's own.

In: a step and its plan. Out: the plan with that advice in place of estimates. Policies and batches are looked at if the step does
not fit, or if asked for: they trace the function again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from shardwise.base.shapes import DimAxes
from shardwise.engine.data_free import DataFree
from shardwise.ir import source_text
from shardwise.plan.alternatives import split_also
from shardwise.plan.lost_batches import Pin
from shardwise.plan.pasted import spec_code
from shardwise.plan.points import Point, point_of
from shardwise.plan.step import Step, StepLayout
from shardwise.planner import (
    LEAST_MEMORY,
    LEAST_TIME,
    Advice,
    Machine,
    Plan,
    device_program_of,
    estimated_splits,
    for_chip,
    gib_text,
    seconds_text,
)

LONGER = 0.1  # of a step: memory is not saved at that price unless the step does not fit
MOST_DOUBLINGS = 4  # of a batch that fits
NAMES = 3  # of arguments, in a sentence
LARGE = 5_000  # equations: each plan of such a program takes about a second
ASK = "advice is estimated, because the program is large: shardwise plan --advise and shardwise.plan.advise plan it"


def plan_advice(plan: Plan, executable: DataFree, machine: Machine, thorough: bool = False) -> Plan:
    """The plan with the effects of its advice planned. To be called in the planned run that compiled the step.

    Args:
        plan: of the step.
        executable: the step.
        machine: that it is planned for.
        thorough: look for other policies of `checkpoint` and for other batches though the step fits, and plan anew however large the
            program is.
    """
    if executable.user_call is None:
        return plan
    if len(executable.device_program.equations) > LARGE and not thorough:
        return replace(plan, notes=(*plan.notes, ASK))
    step = Step(executable, machine)
    own = Point(StepLayout(step.sizes), plan.seconds.likely, plan.peak, plan.fits)
    earlier_advice = plan.advice
    advice: list[Advice] = []
    if not step.fixed:
        estimates = set(estimated_splits(device_program_of(executable, for_chip(machine.chip))))
        if estimates & set(earlier_advice):
            earlier_advice = tuple(a for a in earlier_advice if a not in estimates)
            advice += _splits(step, own, plan)
        advice += [*_kept_batches(step, own, plan), *_batch_splits(step, own, plan)]
    if thorough or not plan.fits:
        advice += [*_policies(step, own, plan), *_batches(step, own, plan)]
    return replace(plan, advice=(*sorted(advice, key=lambda a: (not a.fits, -a.seconds, -a.nbytes)), *earlier_advice))


def _effect(own: Point, new: Point) -> str:
    fits = "" if own.fits == new.fits else "it fits: " if new.fits else "it does not fit: "
    falls = "falls" if new.peak <= own.peak else "rises"
    peaks = f"the peak {falls} from {gib_text(own.peak)} to {gib_text(new.peak)}"
    times = f"a step takes {seconds_text(new.seconds)} instead of {seconds_text(own.seconds)}"
    if new.layout.batch == 1 or not own.seconds:  # a step that moves nothing takes no time
        return f"{fits}{peaks}, {times}"
    less = 1 - new.per_batch / own.per_batch
    return f"{fits}{peaks}, {times}, an example {abs(less):.0%} {'less' if less >= 0 else 'more'}"


def _advice(change: str, own: Point, new: Point) -> Advice:
    seconds, nbytes = own.per_batch - new.per_batch, own.peak - new.peak
    return Advice(change, _effect(own, new), seconds=seconds, nbytes=nbytes, fits=new.fits and not own.fits)


def _is_worth(own: Point, new: Point, plan: Plan) -> bool:
    """Whether a change makes the step fit, or makes it shorter, or saves memory at a low price."""
    if new.error or (own.fits and not new.fits):
        return False
    if not own.fits:
        return new.fits or new.peak < own.peak - LEAST_MEMORY * plan.capacity
    if new.per_batch < (1 - LEAST_TIME) * own.per_batch:
        return True
    return new.peak < own.peak - LEAST_MEMORY * plan.capacity and new.per_batch < (1 + LONGER) * own.per_batch


def _splits(step: Step, own: Point, plan: Plan) -> Iterator[Advice]:
    """Per axis: what lies whole along it, split over it."""
    least = LEAST_MEMORY * plan.capacity
    for axis, size in step.sizes:
        if size == 1:
            continue
        ways = {
            i: math.prod(n for name, n in step.sizes if any(name in axes for axes in a.dims))
            for i, a in enumerate(step.arguments)
        }
        whole = [
            i
            for i, a in enumerate(step.arguments)
            if a.batch_dim is None and a.nbytes / ways[i] * (1 - 1 / size) >= least
        ]
        dims = split_also(step, whole, [axis], step.sizes)
        if not dims:
            continue
        new = point_of(step, StepLayout(step.sizes, dims, keep_batch=True))
        if _is_worth(own, new, plan):
            change = f"Split {_list_dims(step, dims)} over {axis!r}, along which every device holds the same{_and_pins(step, new)}"
            yield _advice(change, own, new)


def _kept_batches(step: Step, own: Point, plan: Plan) -> Iterator[Advice]:
    """Values that carry all of a split batch, constrained to their part of it."""
    pins = step.pins_of(own.layout)
    new = point_of(step, replace(own.layout, keep_batch=True)) if pins else own
    if _is_worth(own, new, plan):
        change = f"Constrain {_list_pins(pins)}: from there on all devices compute all examples"
        yield replace(_advice(change, own, new), source=pins[0].source and pins[0].source.place)


def _batch_splits(step: Step, own: Point, plan: Plan) -> Iterator[Advice]:
    """Per axis that does not split the batch: the batch split over it, too."""
    batch = [i for i, a in enumerate(step.arguments) if a.batch_dim is not None]
    for axis, size in step.sizes:
        dims = split_also(step, batch, [axis], step.sizes) if size > 1 else ()
        if len(dims) < len(batch) or not batch:
            continue
        new = point_of(step, StepLayout(step.sizes, dims, keep_batch=True))
        if _is_worth(own, new, plan):
            yield _advice(f"Split {_list_dims(step, dims)} over {axis!r}{_and_pins(step, new)}", own, new)


def _and_pins(step: Step, new: Point) -> str:
    pins = step.pins_of(new.layout)
    return f", and constrain {_list_pins(pins)}" if pins else ""


def _list_pins(pins: Sequence[Pin]) -> str:
    """``bf16[8,128] of gather to P('data') at lm.py:12 (with_sharding_constraint)``."""
    words = [
        f"{p.var.aval.str_short()} of {p.op} to {spec_code(p.dims)}{f' at {source_text(p.source)}' if p.source else ''}"
        for p in pins
    ]
    return f"{', '.join(words)} (with_sharding_constraint)"


def _list_dims(step: Step, dims: Iterable[tuple[int, DimAxes]]) -> str:
    """``dim 0 of params['w']``, the largest first."""
    words = []
    for i, new in sorted(dims, key=lambda item: -step.arguments[item[0]].nbytes):
        a = step.arguments[i]
        d = next(d for d, axes in enumerate(new) if axes != a.dims[d])
        words.append(f"dim {d} of {a.names[0]}" + (f" and {len(a.names) - 1} like it" if len(a.names) > 1 else ""))
    more = len(words) - NAMES
    return ", ".join(words[:NAMES]) + (f" and {more} more" if more > 0 else "")


def _policies(step: Step, own: Point, plan: Plan) -> Iterator[Advice]:
    """The fastest policy that fits, of those that checkpointed functions could be given; where there are none, the functions of scans."""
    if not step.traces[1] and not step.bodies:
        return
    points: list[Point] = []
    least = own.peak
    for name in step.policies:
        point = point_of(step, replace(own.layout, remat=name))
        points.append(point)
        if not point.fits and point.peak >= least:  # the next policies save more
            break
        least = point.peak
    fits = [p for p in points if p.fits and _is_worth(own, p, plan)]
    if not fits:
        return
    best = min(fits, key=lambda p: p.seconds)
    policy = f"policy=jax.checkpoint_policies.{best.layout.remat}"
    if not step.bodies:
        yield _advice(f"Give jax.checkpoint {policy}", own, best)
        return
    more = f" and of {len(step.bodies) - 1} more" if len(step.bodies) > 1 else ""
    change = f"Wrap the function of the scan{more}, jax.checkpoint(f, prevent_cse=False, {policy})"
    yield replace(_advice(change, own, best), source=next(iter(step.bodies), None))


def _batches(step: Step, own: Point, plan: Plan) -> Iterator[Advice]:
    """The largest batch that fits: by the memory of one example, which the plan of half the batch gives; then planned itself."""
    batch = [a for a in step.arguments if a.batch_dim is not None and not step.traces[0]]
    lengths = {a.shape[a.batch_dim or 0] for a in batch}
    if len(lengths) != 1:
        return
    (length,) = lengths
    sizes = dict(step.sizes)
    ways = math.lcm(*[math.prod(sizes.get(x, 1) for x in a.dims[a.batch_dim or 0]) for a in batch])
    if not own.fits and length <= ways:
        return
    half = point_of(step, replace(own.layout, batch=Fraction(1, 2)))
    if half.error or length % 2 or half.peak >= own.peak:
        return
    each = (own.peak - half.peak) / (length / 2)
    most = length + math.floor((plan.capacity - own.peak) / each)
    if own.fits:
        most = length * 2 ** min(math.floor(math.log2(most / length)), MOST_DOUBLINGS)
    most -= most % ways
    while most >= ways and most != length:
        new = point_of(step, replace(own.layout, batch=Fraction(most, length)))
        if new.error:
            return
        if new.fits:
            if _is_worth(own, new, plan):
                yield _advice(f"Take a batch of {most:,} in place of {length:,}", own, new)
            return
        most = most // 2 if own.fits else most - max(ways, most // 10 // ways * ways)
