"""Section 'commands': what `shardwise plan` of a 70-billion-weight training step takes: the page, a search, traces of 1,024 devices."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from separate import environment

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/plan_llama.py"


@dataclass(frozen=True)
class Command:
    """A command behind `shardwise plan examples/plan_llama.py`: what it does, its options, and the seconds that it may take.

    `{}` in an option is an empty folder.
    """

    title: str
    options: tuple[str, ...]
    goal: float


COMMANDS = (
    Command("the page of the terminal and of the browser", ("--on", "v5p-256", "--html", "{}/plan.html"), 3),
    Command("the same, layers written out", ("--on", "v5p-256", "--html", "{}/plan.html", "--", "--unrolled"), 3),
    Command("a search of 500 layouts", ("--on", "v5p-256", "--search", "--layouts", "500"), 180),
    Command("Chakra traces of 1,024 devices", ("--on", "v5p-2048", "--chakra", "{}/chakra"), 10),
)


def page() -> str:
    """The section as Markdown."""
    rows = [_row(command) for command in COMMANDS]
    return f"""## What commands take

`shardwise plan` of `{EXAMPLE}`: a training step of 70 billion weights and 80 layers, in a fresh process each, start-up included. Seconds
are those of the clock on a machine of {len(os.sched_getaffinity(0))} cores and, where other processes use it as well, of the
processors; memory is that of the largest process.

| what | options | goal, s | seconds | of the processors | MB | |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def _row(command: Command) -> str:
    with tempfile.TemporaryDirectory() as folder:
        options = [option.format(folder) for option in command.options]
        begin = time.perf_counter()
        output = Path(folder) / "output"
        with output.open("wb") as file:
            child = subprocess.Popen(
                [sys.executable, "-m", "shardwise", "plan", EXAMPLE, *options],
                cwd=ROOT,
                env=environment(1),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        took = time.perf_counter() - begin
        text = output.read_text()
        if child.returncode:
            raise RuntimeError(text)
        note = _made(text, Path(folder))
    cells = (
        command.title,
        f"`{' '.join(command.options).format('.')}`",
        f"{command.goal:g}",
        f"{took:.1f}",
        f"{used.ru_utime + used.ru_stime:.1f}",
        f"{used.ru_maxrss / 1024:.0f}",
        note,
    )
    return f"| {' | '.join(cells)} |"


def _made(text: str, folder: Path) -> str:
    """What came out."""
    searched = re.search(r"search: (\d+) layouts planned(?: in [\d.]+ s)?(?:, (\d+) impossible)?", text)
    if searched:
        return f"{searched[1]} layouts planned, {searched[2] or 0} impossible"
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "output"]
    size = sum(p.stat().st_size for p in files)
    return f"{len(files)} file{'s' * (len(files) != 1)}, {size / 1e6:.1f} MB"
