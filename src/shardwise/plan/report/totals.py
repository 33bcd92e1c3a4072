"""Sums over a plan that every report shows: by buffer, by op, by source line, by axis. Loops count all of their trips."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.planner import Buffer, Line, Plan, Schedule, Task, Traffic

_SEVERAL = "several types"
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class OpTotal:
    """All tasks of one name at one line.

    Attributes:
        seconds: that they take; `critical` of these delay the step.
        times: how often one of them runs.
    """

    name: str
    kind: str
    stream: str
    source: Line | None
    bound: str = ""
    seconds: float = 0.0
    critical: float = 0.0
    flops: float = 0.0
    hbm_bytes: float = 0.0
    sent_bytes: float = 0.0
    times: int = 0
    longest: float = 0.0


@dataclass(slots=True)
class LineTotal:
    """The cost of one line of the user's program."""

    source: Line
    seconds: float = 0.0
    critical: float = 0.0
    flops: float = 0.0
    sent_bytes: float = 0.0
    peak_bytes: int = 0


def leaves(schedule: Schedule, times: int = 1) -> Iterator[tuple[Task, int]]:
    """The tasks that are no loops, with how often each runs in a step."""
    for task in schedule.tasks:
        if task.body is None:
            yield task, times
        else:
            yield from leaves(task.body, times * task.trips)


def op_totals(plan: Plan) -> list[OpTotal]:
    """By name and line, what takes longest first."""
    total_by_op: dict[tuple[str, str, Line | None], OpTotal] = {}
    for task, times in leaves(plan.schedule):
        key = task.name, task.stream, task.source
        total = total_by_op.get(key)
        if total is None:
            total = total_by_op[key] = OpTotal(task.name, task.kind, task.stream, task.source)
        seconds = times * task.seconds
        total.seconds += seconds
        total.critical += seconds if task.critical else 0.0
        total.flops += times * task.flops
        total.hbm_bytes += times * task.hbm_bytes
        total.sent_bytes += times * task.sent_bytes
        total.times += times
        if seconds >= total.longest:
            total.longest, total.bound = seconds, task.bound
    return sorted(total_by_op.values(), key=lambda t: -t.seconds)


@dataclass(slots=True)
class MeasuredTotal:
    """All tasks of a step with one name at one line, loops as a whole: their measured and their predicted seconds."""

    name: str
    source: Line | None
    seconds: float = 0.0
    predicted: float = 0.0
    times: int = 0


def measured_totals(plan: Plan) -> list[MeasuredTotal]:
    """By name and line, what took longest first; empty if nothing was measured."""
    took = dict(plan.measured)
    total_by_op: dict[tuple[str, Line | None], MeasuredTotal] = {}
    for task in plan.schedule.tasks:
        if task.place in took:
            total = total_by_op.setdefault((task.name, task.source), MeasuredTotal(task.name, task.source))
            total.seconds += took[task.place]
            total.predicted += task.seconds
            total.times += 1
    return sorted(total_by_op.values(), key=lambda t: -t.seconds)


def line_totals(plan: Plan) -> dict[Line, LineTotal]:
    """By source line; what has none is left out."""
    total_by_line: dict[Line, LineTotal] = {}

    def at(source: Line) -> LineTotal:
        return total_by_line.setdefault(source, LineTotal(source))

    for op in op_totals(plan):
        if op.source is not None:
            line = at(op.source)
            line.seconds += op.seconds
            line.critical += op.critical
            line.flops += op.flops
            line.sent_bytes += op.sent_bytes
    for buffer in plan.buffers:
        if buffer.source is not None:
            at(buffer.source).peak_bytes += buffer.nbytes * buffer.count
    return total_by_line


def buffer_totals(buffers: Iterable[Buffer]) -> list[Buffer]:
    """Buffers that are alike in one: `count` of them, the largest first. Paths of arguments are alike that differ in numbers only."""
    buffer_by_key: dict[tuple[object, ...], Buffer] = {}
    for b in buffers:
        path = _NUMBER.sub("*", b.name) if b.kind in ("argument", "result", "constant") else ""
        key = b.kind, b.type, b.spec, b.source, b.nbytes, path
        known_buffer = buffer_by_key.get(key)
        buffer_by_key[key] = (
            b
            if known_buffer is None
            else replace(known_buffer, name=path or known_buffer.name, count=known_buffer.count + b.count)
        )
    return sorted(buffer_by_key.values(), key=lambda b: -b.nbytes * b.count)


def traffic_totals(plan: Plan) -> list[Traffic]:
    """Collectives of one kind, axes, line and cause in one, what sends most first."""
    traffic_by_key: dict[tuple[object, ...], Traffic] = {}
    for t in plan.traffic:
        key = t.kind, t.axes, t.source, t.cause, t.implicit, t.level
        known_traffic = traffic_by_key.get(key)
        if known_traffic is None:
            traffic_by_key[key] = t
        else:
            trips = None if known_traffic.trips is None or t.trips is None else known_traffic.trips + t.trips
            value = t.value if known_traffic.value == t.value else _SEVERAL
            traffic_by_key[key] = replace(
                known_traffic,
                nbytes=known_traffic.nbytes + t.nbytes,
                trips=trips,
                seconds=known_traffic.seconds + t.seconds,
                value=value,
            )
    return sorted(traffic_by_key.values(), key=lambda t: -t.nbytes)


def bottleneck(plan: Plan) -> str:
    """The bound of the step, in a few words: ``all-gather over fsdp``, ``matrix products``."""
    if not plan.shares:
        return ""
    cause = max(plan.shares, key=lambda k: plan.shares[k])
    kind, _, axes = cause.partition(":")
    if kind != "collective":
        return _CAUSES.get(kind, kind)
    over = [t for t in traffic_totals(plan) if not axes or ",".join(t.axes) == axes]
    over.sort(key=lambda t: -t.seconds or -t.nbytes)
    if not over:
        return f"collectives over {axes}"
    first = over[0]
    where = f", {first.source[0].rpartition('/')[2]}:{first.source[1]}" if first.source else ""
    return f"{first.kind} over {', '.join(first.axes)}{where}"


_CAUSES = {
    "product": "matrix products",
    "memory": "the memory's bandwidth",
    "latency": "latencies",
    "host": "copies to and from the host's memory",
    "vector": "elementwise arithmetic",
}
