"""`shardwise bench`: how long the calls of a JAX program's jitted functions take, by function and line; also beside JAX."""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shardwise.cli import clock
from shardwise.cli.clock import Clock, Row
from shardwise.cli.plan import check_file
from shardwise.cli.program import (
    UsageError,
    UserProgram,
    add_devices,
    add_program,
    clean_environment,
    own_words,
    positive,
    prepare,
    run_to_end,
)
from shardwise.runtime.processes import launched_rank

NAME = "bench"
_ROWS = 20
_JAXLIB_CHECK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('jaxlib') is None)"


def register(commands: Any) -> None:
    """Add the command `bench` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="how long the jitted calls of a JAX program take, also beside JAX",
        description="Run a JAX program and time each call of its jitted functions until the results are there: the first call, which "
        "compiles, and the others.",
        epilog="OPTIONS may also stand right behind PROGRAM; what follows them, or a `--`, goes to the program.",
        usage="shardwise bench [OPTIONS] (PROGRAM | -m MODULE | -c CODE | -) [ARGUMENTS ...]",
        allow_abbrev=False,
    )
    add_program(parser)
    add_devices(parser)
    parser.add_argument(
        "--repeat",
        type=functools.partial(positive, "calls"),
        default=1,
        metavar="N",
        help="make each call N times; those that donate arguments are made once",
    )
    parser.add_argument(
        "--beside",
        metavar="PYTHON",
        help="run the program again with JAX, by this Python (a file), or by the one of shardwise (jax), and compare",
    )
    parser.add_argument("--json", metavar="FILE", help="write the seconds of all calls as JSON")
    parser.set_defaults(carry_out=_carry_out, split_words=own_words, parser=parser)


def _carry_out(options: argparse.Namespace) -> int:
    program = UserProgram.of(options)
    if options.json is not None:
        check_file("json", options.json)
    rank = launched_rank()
    if rank is not None and options.beside is not None:
        raise UsageError("--beside: a launcher has started this process as one of several; compare one process")
    python = None if options.beside is None else _interpreter(options.beside, program)
    environment = clean_environment(options.devices)
    prepare(program, options.dialect, options.devices)
    import shardwise  # start-up time: it brings the whole engine

    timer = Clock(shardwise, options.repeat)
    status = run_to_end(program)
    if rank:  # the first process speaks for all
        return status
    rows = list(timer.rows.values())
    if not rows:
        if status:
            return status
        raise UsageError(
            f"{program.name} calls no jitted function; decorate what is to be timed with jax.jit, and call it."
        )
    beside, failure = None, ""
    if python is not None and not status:
        beside, failure = _beside(python, program, options.repeat, environment)
    sys.stdout.flush()
    print(text(program.name, rows, beside))
    if options.json:
        own = {"version": f"shardwise {shardwise.__version__}", "rows": [asdict(row) for row in rows]}
        Path(options.json).write_text(json.dumps([own] if beside is None else [own, beside], indent=1))
    if failure:
        print(f"shardwise bench: {failure}", file=sys.stderr)
    return status or bool(failure)


def _interpreter(given: str, program: UserProgram) -> str:
    """The Python that has JAX.

    Raises:
        UsageError: it is not there, or has no JAX, or the program cannot be run a second time by it.
    """
    if program.kind == "stdin" or program.text.endswith(".ipynb"):
        what = "standard input is read once" if program.kind == "stdin" else "it runs no notebooks"
        raise UsageError(f"--beside {given}: {what}; give the program as a .py file")
    python = sys.executable if given == "jax" else shutil.which(given)
    if python is None:
        raise UsageError(f"--beside {given}: there is no Python {given}; give the path of one that has JAX")
    if subprocess.run([python, "-c", _JAXLIB_CHECK], env=clean_environment(None), check=False).returncode:
        raise UsageError(f"--beside {given}: {python} has no JAX; give the path of a Python that has it")
    return python


def _beside(
    python: str, program: UserProgram, repeat: int, environment: Mapping[str, str]
) -> tuple[dict[str, Any] | None, str]:
    """JAX's version and the rows of the program under it, or why there are none. What the program prints there is not shown."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "rows.json")
        words = [python, str(clock.__file__), file, str(repeat), program.kind, program.text, *program.arguments]
        process = subprocess.run(words, env=environment, capture_output=True, text=True, errors="replace", check=False)
        if process.returncode:
            last = process.stderr.strip().splitlines()[-1:] or ["it gave no message"]
            return None, f"with JAX of {python} the program ends with status {process.returncode}: {last[0]}"
        with open(file, encoding="utf-8") as given:
            return json.load(given), ""


def text(name: str, rows: Sequence[Row], beside: Mapping[str, Any] | None = None) -> str:
    """The table of rows, the longest first, in lines of text. `beside`: what JAX took, as `clock.main` writes it."""
    from shardwise.planner import seconds_text  # start-up time: the report is made once

    theirs = {(r["function"], r["site"]): Row(**r) for r in beside["rows"]} if beside else {}
    count, total = sum(len(r.seconds) for r in rows), sum(sum(r.seconds) for r in rows)
    head = ["total", "calls", "compiled", "in", "first", "median", "least"]
    if beside:
        head += ["JAX first", "JAX median", "JAX/ours"]
    table = [[*head, "function", "called at"]]
    for row in sorted(rows, key=lambda r: -sum(r.seconds))[:_ROWS]:
        first, median, least = _figures(row)
        compile_seconds = [s for s in row.compiling if s]
        line = [
            seconds_text(sum(row.seconds)), str(len(row.seconds)), f"{len(compile_seconds)} x", seconds_text(sum(compile_seconds)),
            seconds_text(first), seconds_text(median) if median else "-", seconds_text(least) if least else "-",
        ]  # fmt: skip
        if beside:
            other = theirs.get((row.function, row.site))
            their_first, their_median, _ = _figures(other) if other else (0.0, 0.0, 0.0)
            line += [seconds_text(s) if s else "-" for s in (their_first, their_median)]
            line.append(f"{their_median / median:.2f}" if median and their_median else "-")
        table.append([*line, row.function, _short(row.site)])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    indent = len(head)  # names begin here, which stand to the left
    lines = [
        "  ".join(c.ljust(w) if i >= indent else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        for cells in table
    ]
    against = f"; JAX {beside['version']} beside it" if beside else ""
    title = f"{name}: {count} calls of jitted functions took {seconds_text(total)}{against}"
    more = [f"... and {len(rows) - _ROWS} more"] if len(rows) > _ROWS else []
    return "\n".join([title, "", *(line.rstrip() for line in lines), *more])


def _figures(row: Row) -> tuple[float, float, float]:
    """Seconds of the first call, and median and least of those that compiled nothing; zero where there are none."""
    repeats = [s for s, compiles in zip(row.seconds, row.compiling, strict=True) if not compiles]
    return row.seconds[0], statistics.median(repeats) if repeats else 0.0, min(repeats, default=0.0)


def _short(site: str) -> str:
    """A file and line as seen from the current folder."""
    file, _, line = site.rpartition(":")
    if os.path.isabs(file):
        file = min(file, os.path.relpath(file), key=len)
    return f"{file}:{line}"
