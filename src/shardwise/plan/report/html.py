"""A plan as one HTML page that needs no network: the tables and drawings are made in the browser from the data in it.

`page.html` is the frame, `page.css` and `page.js` are put into it. Whatever comes from the program (names, source text) enters as JSON
inside of a script element that browsers do not run, with `<` escaped, and reaches the page as text nodes.
"""

from __future__ import annotations

import html
import json
import linecache
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from shardwise.plan.report import terminal
from shardwise.plan.report.totals import bottleneck, buffer_totals, line_totals, op_totals, traffic_totals
from shardwise.planner import Buffer, Line, Plan, Schedule

POINTS = 1500  # of the drawing of memory over time
TASKS = 12_000  # that are drawn as lanes; the shortest are left out
AROUND = 12  # lines of source shown on both sides of one that costs something
PARAMETERS = 200  # whose layouts are drawn


def to_html(plan: Plan) -> str:
    """The page."""
    page = files("shardwise.plan.report")
    data = json.dumps(page_data(plan), separators=(",", ":"), allow_nan=False)
    parts = {
        "title": html.escape(f"{plan.name} on {plan.machine}"),
        "style": page.joinpath("page.css").read_text(),
        "text": html.escape(terminal.text(plan, width=110)),
        "script": page.joinpath("page.js").read_text(),
        "data": data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
    }
    frame = page.joinpath("page.html").read_text()
    pieces = frame.split("$$")  # text, name, text, name, ..., text: nothing that was put in is looked at again
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def page_data(plan: Plan) -> dict[str, Any]:
    """The data of the page. Sources are indices into `lines`, which hold ``[file, line]``."""
    lines = _Numbers()
    schedule_rows = _ScheduleRows(lines, plan.schedule)
    totals = line_totals(plan)
    return {
        "name": plan.name,
        "machine": plan.machine,
        "chip": plan.chip,
        "devices": plan.devices,
        "mesh": list(plan.mesh.items()),
        "calls": plan.calls,
        "verdict": terminal.verdict(plan),
        "fits": plan.fits,
        "bound": bottleneck(plan),
        "capacity": plan.capacity,
        "peak": plan.peak,
        "arguments": plan.arguments,
        "results": plan.results,
        "aliased": plan.aliased,
        "temporaries": plan.temporaries,
        "seconds": [plan.seconds.low, plan.seconds.likely, plan.seconds.high],
        "flops": plan.flops,
        "mfu": plan.mfu,
        "shares": sorted(plan.shares.items(), key=lambda s: -s[1]),
        "profile": _fewer(plan.profile),
        "buffers": [[*_buffer(b), lines.of(b.source)] for b in buffer_totals(plan.buffers)],
        "parameters": [_buffer(b) for b in plan.buffers if b.kind == "argument" and b.global_shape][:PARAMETERS],
        "traffic": [
            [t.kind, t.axes, t.nbytes, t.trips, t.value, t.cause, t.implicit, lines.of(t.source), t.level, t.seconds]
            for t in traffic_totals(plan)
        ],
        "ops": [
            [
                t.name,
                t.stream,
                t.seconds,
                t.critical,
                t.times,
                t.flops,
                t.hbm_bytes,
                t.sent_bytes,
                t.bound,
                lines.of(t.source),
            ]
            for t in op_totals(plan)
        ],
        "labels": schedule_rows.labels.values,
        "streams": schedule_rows.streams.values,
        "tasks": schedule_rows.tasks,
        "left_out": schedule_rows.left_out,
        "bodies": schedule_rows.bodies,
        "costs": [[lines.of(s), t.seconds, t.critical, t.flops, t.sent_bytes, t.peak_bytes] for s, t in totals.items()],
        "lines": lines.values,
        "sources": _sources(totals),
        "advice": [[a.change, a.effect, lines.of(a.source), a.seconds, a.nbytes] for a in plan.advice],
        "notes": plan.notes,
    }


class _Numbers:
    """Numbers for values, in the order in which they first come."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        """The number of `value`; -1 for None."""
        if value is None:
            return -1
        if value not in self._known:
            self._known[value] = len(self.values)
            self.values.append(value)
        return self._known[value]


class _ScheduleRows:
    """A schedule as rows of numbers: label, stream, start, seconds, source, trips, body, bound by, critical."""

    def __init__(self, lines: _Numbers, schedule: Schedule) -> None:
        self.labels, self.streams = _Numbers(), _Numbers()
        self.bodies: list[Any] = []
        self.left_out = 0
        self._lines = lines
        self.streams.of("compute")
        self.tasks = self._rows(schedule)

    def _rows(self, schedule: Schedule) -> list[list[Any]]:
        tasks = schedule.tasks
        if len(tasks) > TASKS:
            least = sorted((t.seconds for t in tasks), reverse=True)[TASKS]
            tasks = tuple(t for t in tasks if t.seconds > least or t.body is not None)
            self.left_out += len(schedule.tasks) - len(tasks)
        rows: list[list[Any]] = []
        for t in tasks:
            body = -1
            if t.body is not None:
                body = len(self.bodies)
                self.bodies.append(None)
                self.bodies[body] = [t.body.seconds, self._rows(t.body)]
            label = f"{t.name} over {', '.join(t.axes)}" if t.axes else t.name
            rows.append([
                self.labels.of(label), self.streams.of(t.stream), _short(t.start), _short(t.seconds), self._lines.of(t.source),
                t.trips, body, t.bound, int(t.critical),
            ])  # fmt: skip
        return rows


def _short(seconds: float) -> float:
    return float(f"{seconds:.6g}")


def _buffer(b: Buffer) -> list[Any]:
    return [b.name, b.kind, b.nbytes, b.count, b.type, [list(axes) for axes in b.spec], list(b.global_shape)]


def _fewer(profile: Iterable[tuple[float, int]]) -> list[list[float]]:
    """At most POINTS steps of the curve: of each stretch of time the first point and the highest."""
    points = list(profile)
    if len(points) <= POINTS:
        return [[_short(t), n] for t, n in points]
    each = -(-len(points) // (POINTS // 2))
    kept_points: list[list[float]] = []
    for i in range(0, len(points), each):
        stretch = points[i : i + each]
        for t, n in sorted({stretch[0], max(stretch, key=lambda p: p[1])}):
            kept_points.append([_short(t), n])
    return [*kept_points, [_short(points[-1][0]), points[-1][1]]]


def _sources(costs: Iterable[Line]) -> list[list[Any]]:
    """``[file, [[number, text], ...]]`` with the lines that cost something and those around them."""
    lines_by_file: dict[str, set[int]] = {}
    for file, line in costs:
        lines_by_file.setdefault(file, set()).add(line)
    sources: list[list[Any]] = []
    for file, marks in lines_by_file.items():
        texts = linecache.getlines(file)
        shown_lines = sorted(
            {n for line in marks for n in range(max(1, line - AROUND), min(len(texts), line + AROUND) + 1)}
        )
        if not texts:
            shown_lines = sorted(marks)
        sources.append([file, [[n, texts[n - 1].rstrip("\n") if n <= len(texts) else ""] for n in shown_lines]])
    return sources
