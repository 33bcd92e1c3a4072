"""A plan's schedule as a trace that Perfetto and chrome://tracing open: a track per stream, one for loops, and the memory in use."""

from __future__ import annotations

import json
from typing import Any

from shardwise.ir import source_text
from shardwise.planner import Plan, Schedule, Task

EVENTS = 200_000  # at most; of loops with more the first trips are drawn
_LOOPS = "loops"


def to_trace(plan: Plan) -> str:
    """The trace as JSON in Chrome's event format; times are in microseconds."""
    writer = _Writer(EVENTS)
    writer.schedule(plan.schedule, 0.0)
    tracks = {stream: i for i, stream in enumerate([_LOOPS, *sorted(writer.streams)], 1)}
    name = f"{plan.name} on {plan.machine}"
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": name}}]
    for stream, tid in tracks.items():
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": stream}})
    for event in writer.events:
        event["tid"] = tracks[event["tid"]]
    for seconds, nbytes in plan.profile:
        events.append({"ph": "C", "pid": 1, "name": "memory in use", "ts": 1e6 * seconds, "args": {"bytes": nbytes}})
    document: dict[str, Any] = {"displayTimeUnit": "ms", "traceEvents": events + writer.events}
    if writer.left_out:
        document["otherData"] = {"trips of loops that are not drawn": writer.left_out}
    return json.dumps(document, allow_nan=False)


class _Writer:
    def __init__(self, room: int) -> None:
        self.events: list[dict[str, Any]] = []
        self.streams: set[str] = set()
        self.left_out = 0
        self._room = room

    def schedule(self, schedule: Schedule, start: float) -> None:
        """Add its tasks, from `start` (seconds) on."""
        for task in schedule.tasks:
            self._add(task, start + task.start)

    def _add(self, task: Task, start: float) -> None:
        event = {"ph": "X", "pid": 1, "name": task.name, "ts": 1e6 * start, "dur": 1e6 * task.seconds}
        event |= {"cat": task.kind, "tid": task.stream if task.body is None else _LOOPS, "args": _facts(task)}
        self.events.append(event)
        if task.body is None:
            self.streams.add(task.stream)
            return
        each = task.seconds / max(task.trips, 1)
        for trip in range(task.trips):
            if len(self.events) + len(task.body.tasks) > self._room:
                self.left_out += task.trips - trip
                break
            self.schedule(task.body, start + trip * each)


def _facts(task: Task) -> dict[str, Any]:
    facts = {
        "line": source_text(task.source),
        "bound by": task.bound,
        "value": task.value,
        "for": task.cause,
        "axes": ", ".join(task.axes),
        "FLOP": task.flops,
        "bytes of memory": task.hbm_bytes,
        "bytes sent": task.sent_bytes,
        "trips": task.trips if task.body is not None else 0,
    }
    return {name: value for name, value in facts.items() if value}
