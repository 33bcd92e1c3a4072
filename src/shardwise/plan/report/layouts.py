"""A search as a page of text: what was varied, the layouts that no other beats, and the best of them as code.

In: what `search` found. Out: lines. Figures are written as in the page of a plan.
"""

from __future__ import annotations

from shardwise.plan.points import Point
from shardwise.plan.report.figures import mesh_text, size_text, time_text
from shardwise.plan.report.terminal import hanging_indent, table
from shardwise.plan.search import SearchResult

ROWS = 10  # of the front
CODES = 2  # layouts printed as code: the fastest, the smallest


def text(found: SearchResult, width: int = 100) -> str:
    """The page, in lines of at most `width` characters, but for the code."""
    refused_count = sum(found.refused.values())
    head = f"search: {found.planned} layouts planned in {time_text(found.seconds)}"
    lines = [head + (f", {refused_count} impossible" if refused_count else "")]
    lines += [line for what in found.varied for line in hanging_indent(f"varied: {what}", width)]
    lines += [line for what in found.kept for line in hanging_indent(f"as it is: {what}", width)]
    reasons = list(found.refused.items())[:ROWS]
    lines += [line for why, n in reasons for line in hanging_indent(f"impossible ({n}): {why}", width)]
    heads = ("", "step", "speed", "peak", "mesh", "batch", "remat", "specs")
    rows = [heads, _row("own", found.own, found.own)]
    rows += [_row(f"{i}", p, found.own) for i, p in enumerate(found.front[:ROWS], 1)]
    rows += [_row(p.layout.machine, p, found.own) for p in found.others]
    lines += ["", "layouts that no other beats in both time and memory", *table(rows, width - 2)]
    if not found.front:
        lines.append("  none fits")
    shown_points = dict.fromkeys((*found.front[:1], *found.front[:ROWS][-1:]))
    for p in [p for p in shown_points if p.layout != found.own.layout][:CODES]:
        title = f"layout {found.front.index(p) + 1}, {'the fastest' if p is found.front[0] else 'the smallest'}:"
        lines += ["", title, *[f"    {line}" for line in found.code(p).splitlines()]]
    if found.front and found.front[0].layout == found.own.layout:
        lines += ["", "no layout is faster than the program's own"]
    return "\n".join(lines)


def _row(name: str, p: Point, own: Point) -> tuple[str, ...]:
    layout = p.layout
    words = [*([f"{len(layout.dims)} changed"] if layout.dims else []), *(["constrained"] if layout.keep_batch else [])]
    return (
        name,
        time_text(p.seconds),
        f"{own.per_batch / p.per_batch:.2f}"
        if own.seconds and p.seconds
        else "",  # a step that moves nothing takes no time
        f"{size_text(p.peak)}{'' if p.fits else ' !'}",
        mesh_text(dict(layout.mesh)),
        "" if layout.batch == 1 else f"x{layout.batch}",
        layout.remat.removesuffix("_saveable"),
        ", ".join(words),
    )
