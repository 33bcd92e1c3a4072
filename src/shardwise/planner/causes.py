"""The resources that bound a schedule, and the error bars of a plan's seconds.

In: a `Schedule`. Out: shares of its seconds by cause, and an `Interval`.
"""

from __future__ import annotations

import math

from shardwise.planner.result import Interval, Schedule, Task

HOST = "host"  # the stream of copies between a device's memory and the host's


def shares(plan: Schedule) -> dict[str, float]:
    """Seconds by cause on the critical path: 'product', 'compute', 'memory', 'latency', 'host',
    'collective:<axes>'; they sum to the schedule's.
    """
    seconds_by_cause: dict[str, float] = {}
    for task in plan.tasks:
        if not task.critical:
            continue
        if task.body is None:
            seconds_by_cause[_cause(task)] = seconds_by_cause.get(_cause(task), 0.0) + task.seconds
            continue
        inner = shares(task.body)
        scale = task.seconds / math.fsum(inner.values()) if any(inner.values()) else 0.0
        for cause, seconds in inner.items():
            seconds_by_cause[cause] = seconds_by_cause.get(cause, 0.0) + seconds * scale
    total = math.fsum(seconds_by_cause.values())
    return (
        {cause: seconds * plan.seconds / total for cause, seconds in seconds_by_cause.items()}
        if total
        else seconds_by_cause
    )


# Of the published steps, and of programs that a GPU ran, four of five lie between these ratios to the prediction; see
# docs/plan-accuracy.md. Links vary more, and so do the kernels that XLA writes for GPUs.
_SPREAD = {"collective": (0.7, 1.6), "latency": (0.5, 2.0), "product": (0.9, 1.25)}
_OTHERS = {"gpu": (0.7, 1.65)}
_USUAL = (0.9, 1.25)


def interval(plan: Schedule, platform: str = "") -> Interval:
    """The most likely seconds of a schedule, and bounds that are the wider the more of it communication is."""
    low = high = 0.0
    others = _OTHERS.get(platform, _USUAL)
    for cause, seconds in shares(plan).items():
        below, above = _SPREAD.get(cause.partition(":")[0], others)
        low += below * seconds
        high += above * seconds
    return Interval(low, plan.seconds, high)


def _cause(task: Task) -> str:
    if task.stream == HOST:
        return HOST
    if task.kind == "collective" or task.bound == "link":
        return f"collective:{','.join(task.axes)}"
    if task.bound == "flops":
        return "product" if task.kind == "product" or (task.kind == "kernel" and task.flops) else "compute"
    return task.bound
