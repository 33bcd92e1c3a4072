"""The figures as tables, in the terminal and in docs/benchmarks.md."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from registry import CASES, Case, families

HEAD = """# Benchmarks

Both libraries run the same lines; each figure is the median of repeated calls that wait for their result, with the ratio of
JAX's to shardwise's in brackets: above 1, shardwise is faster. The same virtual CPU devices in one process for both.
First calls are cold: a process finds no compiled code of earlier ones; those of "First calls" load the compilers as well.
`python benchmarks/run.py --write` makes this page; `--only` and `--devices` choose, see `--help`.
"""
MEMORY_FAMILIES = ("Transfers and collectives", "Memory", "Models")
MEMORY_HEAD = """Memory beyond what the process had before, at its peak, setting up included:
"""


class Progress:
    """A line that says what is being timed."""

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        """Take the line away."""
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def describe_machine() -> dict[str, str]:
    """Processor, system, versions and date."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = {"Python": platform.python_version()}
    for name in ("shardwise", "jax", "numpy", "llvmlite"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "processor": f"{model}, {cores} cores",
        "system": f"{platform.system()} {platform.machine()}",
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
        "load before": load,
        "date": datetime.date.today().isoformat(),
    }


def seconds(figures: dict[str, Any] | None) -> str:
    """A time in words, or why there is none."""
    if not figures:
        return "-"
    if "error" in figures:
        return figures["error"] if figures["error"].startswith("over") else "failed"
    s = figures["median"]
    return f"{s * 1e6:.1f} us" if s < 1e-3 else f"{s * 1e3:.1f} ms" if s < 1 else f"{s:.2f} s"


def cell(pair: dict[str, Any] | None) -> str:
    """Ours, theirs and the ratio."""
    if not pair:
        return ""
    ours, theirs = pair.get("shardwise"), pair.get("jax")
    text = f"{seconds(ours)} / {seconds(theirs)}"
    ratio = compared(ours, theirs, "median")
    return text + (f" ({ratio})" if ratio else "")


def compared(ours: dict[str, Any] | None, theirs: dict[str, Any] | None, field: str) -> str:
    """Theirs in units of ours."""
    if not ours or not theirs or not ours.get(field) or not theirs.get(field):
        return ""
    ratio = theirs[field] / ours[field]
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2f}x"


def limit_share(found: Case, figures: dict[str, Any], rates: dict[str, float]) -> str:
    """How near ours on one device is to a copy of the bytes that it must move, or to NumPy's product, by the best calls."""
    ours = figures.get("1", {}).get("shardwise", {})
    if not ours.get("least") or not (found.copies or found.flops):
        return ""
    least = found.copies / rates["copy"] if found.copies else found.flops / rates["flops"]
    share = least / ours["least"]
    return f"{100 * share:.0f}%" if share < 1.5 else "no copy"


def tables(results: dict[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Per family a title, the columns and the rows."""
    cases, rates = results["cases"], results["rates"]
    for family in families():
        chosen = [c for c in CASES.values() if c.family == family and cases.get(c.name)]
        if not chosen:
            continue
        counts = sorted({int(n) for c in chosen for n in cases[c.name]})
        limits = {c.name: limit_share(c, cases[c.name], rates) for c in chosen}
        columns = [
            "case",
            *[f"{n} device{'s' * (n > 1)}" for n in counts],
            *(["of the limit"] if any(limits.values()) else []),
        ]
        body = [
            [
                c.title,
                *[cell(cases[c.name].get(str(n))) for n in counts],
                *([limits[c.name]] if any(limits.values()) else []),
            ]
            for c in chosen
        ]
        yield family, columns, body
    memory = list(_memory_rows(cases))
    if memory:
        counts = sorted({int(n) for name in cases for n in cases[name]})
        yield "Peak memory", ["case", *[f"{n} device{'s' * (n > 1)}" for n in counts]], memory
    if "import" in results:
        pair = results["import"]
        ratio = compared(pair.get("shardwise"), pair.get("jax"), "median")
        text = " / ".join(seconds(f) for f in pair.values())
        yield "Import", ["case", "interpreter included"], [["`import`", f"{text} ({ratio})" if ratio else text]]


def _memory_rows(cases: dict[str, Any]) -> Iterator[list[str]]:
    counts = sorted({int(n) for name in cases for n in cases[name]})
    for found in (c for c in CASES.values() if c.family in MEMORY_FAMILIES):
        pairs = [cases.get(found.name, {}).get(str(n), {}) for n in counts]
        known = [{k: f for k, f in p.items() if f.get("peak", 0) >= 0 and "peak" in f} for p in pairs]
        if not any(f["peak"] > 100 for p in known for f in p.values()):
            continue
        cells = []
        for p in known:
            shown = " / ".join(f"{p[k]['peak']:.0f} MB" if k in p else "-" for k in ("shardwise", "jax"))
            ratio = compared(p.get("shardwise"), p.get("jax"), "peak")
            cells.append((f"{shown} ({ratio})" if ratio else shown) if p else "")
        yield [found.title, *cells]


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = 200
    for title, columns, body in tables(results):
        table = Table(title=f"{title}: shardwise / JAX", title_justify="left")
        for i, name in enumerate(columns):
            table.add_column(name, justify="right" if i else "left")
        for row in body:
            table.add_row(*map(escape, row))
        console.print(table)
    for name, figures in errors(results):
        console.print(f"{name}: {figures}", style="yellow")


def errors(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What failed, and why."""
    for name, by_count in results["cases"].items():
        for count, pair in by_count.items():
            for library, figures in pair.items():
                if "error" in figures:
                    yield f"{name}, {count} devices, {library}", figures["error"]


def write(results: dict[str, Any], path: Path) -> None:
    """The page with the results."""
    parts = [
        HEAD,
        "\n".join(f"- {k}: {v}" for k, v in results["machine"].items())
        + f"\n- a copy moves {results['rates']['copy'] / 1e9:.1f} GB/s, NumPy multiplies at "
        f'{results["rates"]["flops"] / 1e9:.0f} GFLOP/s; "of the limit" compares shardwise\'s best call on one device with '
        "them\n- a case that took too long is shown with its limit\n",
    ]
    for title, columns, body in tables(results):
        parts.append(f"## {title}\n")
        if title == "Peak memory":
            parts.append(MEMORY_HEAD)
        parts.append(_markdown(columns, body))
    failures = [f"- {name}: {text}" for name, text in errors(results) if not text.startswith("over")]
    if failures:
        parts.append("## Failures\n\n" + "\n".join(failures) + "\n")
    path.write_text("\n".join(parts))


def _markdown(columns: list[str], body: list[list[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in body]
    return "\n".join(lines) + "\n"
