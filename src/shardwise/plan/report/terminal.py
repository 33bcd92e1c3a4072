"""A plan as a page of text: the verdict first, then memory, traffic, time and advice."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TextIO

from shardwise.ir import source_text
from shardwise.plan.report.figures import (
    binary_unit,
    count_text,
    mesh_text,
    share_text,
    size_text,
    spec_text,
    time_text,
)
from shardwise.plan.report.totals import bottleneck, buffer_totals, measured_totals, op_totals, traffic_totals
from shardwise.planner import Plan

ROWS = 10  # of a table; the rest is one line
_STYLES = {"bold": "1", "faint": "2", "good": "1;32", "bad": "1;31"}

Paint = Callable[[str, str], str]


def text(plan: Plan, width: int = 100, color: bool = False, rows: int = ROWS) -> str:
    """The page, in lines of at most `width` characters. `rows`: the most that a table shows."""
    paint: Paint = _paint_words if color else _plain
    blocks = [
        _head(plan, paint, width),
        _memory(plan, paint, width, rows),
        _traffic(plan, paint, width, rows),
        _time(plan, paint, width, rows),
        _measured_lines(plan, paint, width, rows),
        _advice(plan, paint, width),
        _notes(plan, paint, width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def show(plan: Plan, file: TextIO | None = None) -> None:
    """Print the page, as wide as the terminal, in color where `file` (standard output) is one that takes it."""
    out = sys.stdout if file is None else file
    tty = out.isatty()
    color = tty and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    print(text(plan, width=max(shutil.get_terminal_size((100, 24)).columns, 60) if tty else 100, color=color), file=out)


def verdict(plan: Plan) -> str:
    """``fits: 71.3 GiB of 95 GiB; 4.12 s a step; bound by all-gather over fsdp, layers.py:88``."""
    used = f"{size_text(plan.peak)} of {size_text(plan.capacity)}"
    if plan.fits:
        fits = f"fits: {used}"
    else:
        fits = f"does not fit: {used}, {size_text(plan.peak - plan.capacity)} too much"
    parts = [fits, f"{time_text(plan.seconds.likely)} a step"]
    bound = bottleneck(plan)
    return "; ".join([*parts, f"bound by {bound}"] if bound else parts)


def short_lines(plans: Sequence[Plan]) -> list[str]:
    """A line for each plan; those of one name are told apart by the type of the largest argument or result."""
    names = Counter(plan.name for plan in plans)
    lines: list[str] = []
    for plan in plans:
        ends = [b for b in plan.buffers if b.kind in ("argument", "result") and b.type]
        ends_text = f" with {max(ends, key=lambda b: b.nbytes).type}" if names[plan.name] > 1 and ends else ""
        lines.append(f"{plan.name}{ends_text} ({plan.calls} x): {verdict(plan)}")
    return lines


def _head(plan: Plan, paint: Paint, width: int) -> list[str]:
    mesh = f", mesh {mesh_text(plan.mesh)}" if plan.mesh else ""
    chips = f"{plan.devices:,} x {plan.chip}"
    low, high = time_text(plan.seconds.low), time_text(plan.seconds.high)
    facts = [
        f"a step takes {low} to {high}",
        f"{count_text(plan.flops, 'FLOP')}{'' if plan.together else ' per device'}",
        f"MFU {100 * plan.mfu:.0f} %",
    ]
    if plan.calls != 1:
        facts.append(f"called {plan.calls:,} times" if plan.calls else "compiled, not called")
    verdict_lines = _wrap_words(verdict(plan), width)
    return [
        *_wrap_words(f"{plan.name} on {plan.machine} ({chips}{mesh})", width),
        *[paint(line, "good" if plan.fits else "bad") for line in verdict_lines],
        *_wrap_words("; ".join(facts), width),
    ]


def _memory(plan: Plan, paint: Paint, width: int, rows: int) -> list[str]:
    buffers = buffer_totals(plan.buffers)
    parts = [("arguments", plan.arguments), ("results", plan.results - plan.aliased), ("temporaries", plan.temporaries)]
    sums = ", ".join(f"{part} {size_text(n)}" for part, n in parts)
    donation_text = f"; {size_text(plan.aliased)} of the results lie in donated arguments" if plan.aliased else ""
    per = "in this process" if plan.together else "per device"
    title = f"memory at the peak: {size_text(plan.peak)} {per} ({sums}{donation_text})"
    unit, name = binary_unit(plan.peak)
    body = [
        (
            f"{b.nbytes * b.count / unit:,.2f}",
            share_text(b.nbytes * b.count, plan.peak),
            b.kind,
            f"{b.name} x{b.count}" if b.count > 1 else b.name,
            f"{b.type} {spec_text(b.spec)}".rstrip(),
            source_text(b.source),
        )
        for b in buffers
    ]
    rest = sum(b.nbytes * b.count for b in buffers[rows:])
    heads = (name, "", "kind", "value", "per device", "line")
    return _section(title, heads, body, rows, size_text(rest), paint, width)


def _traffic(plan: Plan, paint: Paint, width: int, rows: int) -> list[str]:
    totals = traffic_totals(plan)
    if not totals:
        return [] if plan.devices == 1 else [paint("traffic: none", "bold")]
    sent_bytes = sum(t.nbytes for t in totals)
    inserted_bytes = sum(t.nbytes for t in totals if t.implicit)
    title = f"traffic: a device sends {size_text(sent_bytes)} a step, {size_text(inserted_bytes)} of it in inserted collectives"
    unit, name = binary_unit(totals[0].nbytes)
    body = [
        (
            f"{t.nbytes / unit:,.2f}",
            "?" if t.trips is None else f"{t.trips:,}",
            time_text(t.seconds) if t.seconds else "",
            f"{t.kind} over {', '.join(t.axes)}" + (f" ({t.level})" if t.level else ""),
            f"for {t.cause}" if t.implicit else "written",
            source_text(t.source),
        )
        for t in totals
    ]
    rest = sum(t.nbytes for t in totals[rows:])
    heads = (name, "times", "takes", "collective", "cause", "line")
    return _section(title, heads, body, rows, size_text(rest), paint, width)


def _time(plan: Plan, paint: Paint, width: int, rows: int) -> list[str]:
    totals = [t for t in op_totals(plan) if t.seconds]
    if not totals:
        return []
    step = plan.seconds.likely
    hidden = sum(t.seconds for t in totals if t.kind == "collective") - sum(
        t.critical for t in totals if t.kind == "collective"
    )
    shares = sorted(plan.shares.items(), key=lambda s: -s[1])
    causes = ", ".join(
        f"{name.replace('collective:', 'collectives over ')} {share_text(s, step)}" for name, s in shares
    )
    title = f"time: {time_text(step)} a step"
    body = [
        (
            time_text(t.seconds),
            share_text(t.seconds, step),
            f"{t.times:,}",
            t.name,
            t.bound if t.stream == "compute" else f"{t.bound}, {t.stream}".strip(", "),
            source_text(t.source),
        )
        for t in totals
    ]
    rest = sum(t.seconds for t in totals[rows:])
    lines = _section(title, ("takes", "", "times", "op", "bound by", "line"), body, rows, time_text(rest), paint, width)
    if causes:
        lines[1:1] = ["  " + line for line in _wrap_words(causes, width - 2)]
    if hidden > 0.01 * step:
        lines += [
            "  " + line
            for line in _wrap_words(f"{time_text(hidden)} of the collectives hide behind computing.", width - 2)
        ]
    return lines


def _measured_lines(plan: Plan, paint: Paint, width: int, rows: int) -> list[str]:
    """Each kernel as it was measured, beside the prediction; loops as a whole."""
    totals = measured_totals(plan)
    if not totals:
        return []
    likely = plan.seconds.likely
    ratio = f", {share_text(likely, plan.measured_seconds)} of it predicted" if plan.measured_seconds else ""
    title = f"measured: {time_text(plan.measured_seconds)} a step{ratio}"
    body = [
        (time_text(m.seconds), time_text(m.predicted), f"{m.times:,}", m.name, source_text(m.source)) for m in totals
    ]
    rest = sum(m.seconds for m in totals[rows:])
    return _section(title, ("measured", "predicted", "times", "op", "line"), body, rows, time_text(rest), paint, width)


def _advice(plan: Plan, paint: Paint, width: int) -> list[str]:
    if not plan.advice:
        return []
    lines = [paint("advice", "bold")]
    for i, a in enumerate(plan.advice, 1):
        where = f" ({source_text(a.source)})" if a.source else ""
        lines += hanging_indent(f"{i}. {a.change}{where}: {a.effect}", width)
    return lines


def _notes(plan: Plan, paint: Paint, width: int) -> list[str]:
    if not plan.notes:
        return []
    return [paint("notes", "bold"), *[line for note in plan.notes for line in hanging_indent(f"- {note}", width)]]


# -- tables -------------------------------------------------------------------------------------------------------------------


def _section(
    title: str,
    heads: Sequence[str],
    body: Sequence[Sequence[str]],
    rows: int,
    rest: str,
    paint: Paint,
    width: int,
) -> list[str]:
    """A title and a table; columns before the third are numbers. Rows that are left out are summed in `rest`."""
    lines = [paint(line, "bold") for line in _wrap_words(title, width)]
    lines += [
        paint(line, "faint") if i == 0 else line for i, line in enumerate(table([heads, *body[:rows]], width - 2))
    ]
    if len(body) > rows:
        lines.append(paint(f"  and {len(body) - rows:,} more: {rest}", "faint"))
    return lines


def table(cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """Columns as wide as they need to be; where the page is narrower the widest are cut, in their middle."""
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    lines = list[str]()
    for row in cells:
        rows_shown = [
            f"{_cut(c, w):>{w}}" if _is_number(column[1:]) else f"{_cut(c, w):<{w}}"
            for c, w, column in zip(row, widths, columns, strict=True)
        ]
        lines.append(("  " + "  ".join(rows_shown)).rstrip())
    return lines


def _is_number(column: Sequence[str]) -> bool:
    return all(c[:1].isdigit() or c in ("", "?") or c.startswith("-") for c in column) and any(column)


def _cut(word: str, width: int) -> str:
    if len(word) <= width:
        return word
    head = (width - 1) // 2
    return f"{word[:head]}…{word[len(word) - (width - 1 - head) :]}"


def _wrap_words(sentence: str, width: int) -> list[str]:
    lines = [""]
    for word in sentence.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return [_cut(line, width) for line in lines]


def hanging_indent(sentence: str, width: int) -> list[str]:
    """A sentence in indented lines of at most `width` characters, those after the first further in."""
    first, *others = _wrap_words(sentence, width - 5)
    return [f"  {first}", *[f"     {line}" for line in others]]


def _plain(words: str, style: str) -> str:
    return words


def _paint_words(words: str, style: str) -> str:
    return f"\x1b[{_STYLES[style]}m{words}\x1b[0m"
