"""A timeline as an XSpace, which xprof and TensorBoard read; `profile_data` reads it here.

An XSpace has planes, a plane lines, a line events; names of events and statistics stand once in a plane, under numbers. As in profiles
that JAX writes for CPUs, the plane ``/host:CPU`` has a line per thread, ``/host:metadata`` says what ran, and ``Task Environment`` when.
A kernel computes for all devices of its process at once, so devices have no lines of their own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shardwise.base.protobuf import block, double, number, text
from shardwise.transforms.reports.timeline import Timeline

_PER_MICROSECOND = 1_000_000  # picoseconds


class _SharedText(str):
    """A text that stands once in its plane, since many events share it."""


def xspace_of(timeline: Timeline, hostname: str, about: Mapping[str, Any]) -> bytes:
    """The events that a timeline has recorded, and facts about the run.

    Events carry the arguments that they have in the Chrome trace, under xprof's names where it has some.
    """
    began = round(1e9 * timeline.clock)
    end = began + round(max((1e3 * (e["ts"] + e["dur"]) for e in timeline.events), default=0.0))
    threads: dict[int, list[dict[str, Any]]] = {}
    for event in sorted(timeline.events, key=lambda e: (e["ts"], -e["dur"])):  # what holds others comes first
        threads.setdefault(event["tid"], []).append(event)
    metadata, host, times = _Plane("/host:metadata"), _Plane("/host:CPU"), _Plane("Task Environment")
    host.say({"process_id": os.getpid()})
    for tid, events in threads.items():
        host.add_line(tid, timeline.thread_names.get(tid, str(tid)), _with_programs(events))
    metadata.say({**about, "process_id": os.getpid()})
    times.say({"profile_start_time": began, "profile_stop_time": end})
    planes = b"".join(block(1, plane.message(i)) for i, plane in enumerate((metadata, host, times)))
    return planes + text(4, hostname)


def _with_programs(events: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Events of a thread with their statistics. Those of equations name the program around them."""
    program, until = "", 0.0
    for event in events:
        given = event.get("args", {})
        if event["cat"] == "program":
            program, until = event["name"], event["ts"] + event["dur"]
            yield event, {**given, "hlo_module": _SharedText(program)}
        elif event["cat"] == "equation":
            stats: dict[str, Any] = {"hlo_op": _SharedText(event["name"])}
            if event["ts"] <= until:
                stats["hlo_module"] = _SharedText(program)
            for key, value in given.items():
                stat_name: str = _NAMES.get(str(key), str(key))
                stats[stat_name] = _SharedText(value) if isinstance(value, str) else value
            yield event, stats
        else:
            root = {"_r": 1} if "step_num" in given else {}  # of a step
            yield event, {**{key: _read(value) for key, value in given.items()}, **root}


def _read(value: str) -> int | float | str:
    """The value of an annotation, which is kept as a text: numbers are shown as numbers."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(value)
    return value


_NAMES: dict[Any, str] = {"bytes": "bytes_accessed", "line": "source", "scope": "tf_op"}


class _Plane:
    """The message XPlane: its lines, and the names that they use."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.body = b""
        self._events: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def say(self, stats: Mapping[str, Any]) -> None:
        """Statistics of the plane itself."""
        self.body += self._statistics(6, stats)

    def add_line(self, tid: int, name: str, events: Iterable[tuple[dict[str, Any], Mapping[str, Any]]]) -> None:
        """A thread's events, in microseconds from the start of the profile."""
        line = [number(1, tid), text(2, name)]
        for event, stats in events:
            begin, takes = (round(_PER_MICROSECOND * event[key]) for key in ("ts", "dur"))
            key = self._events.setdefault(event["name"], len(self._events) + 1)
            line.append(block(4, number(1, key) + number(2, begin) + number(3, takes) + self._statistics(4, stats)))
        self.body += block(3, b"".join(line))

    def message(self, identity: int) -> bytes:
        """The bytes of the plane."""
        names = b"".join(block(4, _entry(i, name)) for name, i in self._events.items())
        names += b"".join(block(5, _entry(i, name)) for name, i in self._stats.items())
        return number(1, identity) + text(2, self.name) + self.body + names

    def _statistics(self, tag: int, stats: Mapping[str, Any]) -> bytes:
        return b"".join(block(tag, number(1, self._number_of(k)) + self._value(v)) for k, v in stats.items())

    def _value(self, value: Any) -> bytes:
        if isinstance(value, _SharedText):
            return number(7, self._number_of(value))
        if isinstance(value, int):
            return number(3, value) if value >= 0 else number(4, value + (1 << 64))
        return double(2, value) if isinstance(value, float) else text(5, str(value))

    def _number_of(self, name: str) -> int:
        return self._stats.setdefault(str(name), len(self._stats) + 1)


def _entry(i: int, name: str) -> bytes:
    return number(1, i) + block(2, number(1, i) + text(2, name))
