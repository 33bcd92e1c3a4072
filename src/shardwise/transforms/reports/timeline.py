"""A timeline of what this process computes: compiled programs, their equations, and annotations, as Chrome and Perfetto show it.

In: what Python tells of each generated plan that is entered and of each of its lines, each of which belongs to an equation; while no
timeline runs nothing is recorded or slowed down. Out: a JSON document, or a part of a file that several processes share.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from shardwise.ir import Equation
from shardwise.planner import held_program
from shardwise.runtime.plan import EQUATIONS
from shardwise.sharding import process_index
from shardwise.transforms.tracing import SCOPES

_PLAN = "<plan of "
_END = b"\n]}\n"
_running_timelines: list[Timeline] = []


def running_timeline() -> Timeline | None:
    """The timeline that records; None if none does."""
    return _running_timelines[0] if _running_timelines else None


class Timeline:
    """The events of this process between `start` and `stop`."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.clock = time.time()  # at the same moment, which other processes know as well
        self.events: list[dict[str, Any]] = []
        self.thread_names: dict[int, str] = {}  # known when it ends
        self._about: dict[Equation, dict[str, Any]] = {}

    def start(self) -> None:
        """Begin to record. RuntimeError if another timeline does."""
        if _running_timelines:
            raise RuntimeError(
                "Profile has already been started. Only one profile may be run at a time; call stop_trace first."
            )
        _running_timelines.append(self)
        self._before = (sys.gettrace(), threading.gettrace())
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def stop(self) -> None:
        """Record no more; the trace functions that were set before are in force again."""
        _running_timelines.remove(self)
        own, new = self._before
        sys.settrace(own)
        threading.settrace(new)  # type: ignore[arg-type]
        self.thread_names = {thread.native_id or 0: thread.name for thread in threading.enumerate()}

    def add(self, name: str, kind: str, begin: float, end: float, about: Mapping[str, Any]) -> None:
        """An event from `begin` to `end`, in seconds of `time.perf_counter`."""
        scope = "/".join(SCOPES.get())
        event = {"name": name, "cat": kind, "ph": "X", "ts": 1e6 * (begin - self.begin), "dur": 1e6 * (end - begin),
                 "tid": threading.get_native_id()}  # fmt: skip
        if scope:
            about = {**about, "scope": scope}
        self.events.append(event | {"args": about} if about else event)

    def document(self) -> dict[str, Any]:
        """The events of this process as a Chrome trace, in microseconds from the start."""
        return {"displayTimeUnit": "ms", "traceEvents": self._own_events(0.0)}

    def append_to(self, path: str | os.PathLike[str]) -> None:
        """Write the events behind those of other processes in the file, in the order in which processes come; the first one makes it.

        The file is a whole JSON document each time. Times count from the start of the process that came first.
        """
        with open(path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            head = file.readline()
            if head:
                origin = float(head.split(b'"origin": ')[1].split(b"}")[0])
                file.truncate(os.fstat(file.fileno()).st_size - len(_END))
            else:
                origin = self.clock
                file.write(b'{"displayTimeUnit": "ms", "otherData": {"origin": %r}, "traceEvents": [\n' % origin)
            lines = (json.dumps(event).encode() for event in self._own_events(1e6 * (self.clock - origin)))
            file.write((b",\n" if head else b"") + b",\n".join(lines) + _END)

    def _own_events(self, later: float) -> list[dict[str, Any]]:
        """The events, `later` microseconds later, with this process's number and the names of its threads."""
        rank = process_index()
        own_events: list[dict[str, Any]] = [
            {
                "name": "process_name",
                "ph": "M",
                "pid": rank,
                "args": {"name": f"process {rank} on {socket.gethostname()}"},
            }
        ]
        own_events += [
            {"name": "thread_name", "ph": "M", "pid": rank, "tid": i, "args": {"name": n}}
            for i, n in self.thread_names.items()
        ]
        return own_events + [event | {"ts": event["ts"] + later, "pid": rank} for event in self.events]

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Python's trace function: follows plans, and nothing else."""
        code = frame.f_code
        return _PlanTimer(self, frame) if code.co_name == "run" and code.co_filename.startswith(_PLAN) else None

    def about(self, eqn: Equation) -> dict[str, Any]:
        """Details of an equation's event: types and bytes of operands and results on one device, the ops of a group, the user's lines."""
        if eqn not in self._about:
            self._about[eqn] = _about(eqn)
        return self._about[eqn]


class _PlanTimer:
    """Times one run of a plan, equation by equation: most have one line, some a few."""

    def __init__(self, timeline: Timeline, frame: FrameType) -> None:
        self.timeline = timeline
        self.equations: Mapping[int, Equation] = frame.f_globals.get(EQUATIONS, {})
        self.begin = self.since = time.perf_counter()
        self.current: Equation | None = None

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        now = time.perf_counter()
        next_equation = None if event == "return" else self.equations.get(frame.f_lineno)
        if next_equation is not self.current:
            if self.current is not None:
                self.timeline.add(self.current.op.name, "equation", self.since, now, self.timeline.about(self.current))
            self.current, self.since = next_equation, time.perf_counter()
        if event == "return":
            name = frame.f_code.co_filename.removeprefix(_PLAN).removesuffix(">")
            self.timeline.add(name, "program", self.begin, now, {})
        return self


def _about(eqn: Equation) -> dict[str, Any]:
    operands, results = [a.aval for a in eqn.inputs], [v.aval for v in eqn.outputs]
    about: dict[str, Any] = {
        "operands": " ".join(t.str_short() for t in operands),
        "results": " ".join(t.str_short() for t in results),
        "bytes": sum(t.nbytes for t in (*operands, *results)),
    }
    inner = held_program(eqn)
    if inner is not None:
        about["ops"] = " ".join(dict.fromkeys(e.op.name for e in inner.equations))
    sources = [e.source for e in (inner.equations if inner is not None else ()) if e.source] or [eqn.source]
    lines = dict.fromkeys(f"{s.file}:{s.line}{', backward' if s.backward else ''}" for s in sources if s)
    if lines:
        about["line"] = "; ".join(lines)
    return about
