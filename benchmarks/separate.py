"""One measurement in a process of its own: so many CPU devices, this checkout's sources, nothing else set."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent / "src"


def environment(devices: int) -> dict[str, str]:
    """The environment of a child."""
    dropped = ("JAX_", "SHARDWISE_", "PYTHONDONTWRITEBYTECODE")  # installed packages have their bytecode
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    paths = [str(SOURCE), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_PLATFORMS": "cpu",
        "SHARDWISE_DIALECT": "latest",
        "PYTHONPATH": os.pathsep.join(paths),
    }


Prepare = Callable[[Any, Any, Any], tuple[Any, tuple[Any, ...]]]


class Cases(dict[str, Prepare]):
    """Programs by name."""

    def register(self, prepare: Prepare) -> Prepare:
        """Add one: `prepare(jax, jnp, np)` gives a function and its arguments."""
        self[prepare.__name__] = prepare
        return prepare


def answer(script: str, *words: object, devices: int, limit: float) -> Any:
    """The JSON in the last line that `script` prints with ``--child WORDS``; None if it fails or takes over `limit` seconds."""
    command = [sys.executable, script, "--child", *map(str, words)]
    try:
        done = subprocess.run(command, env=environment(devices), capture_output=True, text=True, timeout=limit)
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return None


def cases_parser(doc: str | None, cases: Iterable[str]) -> argparse.ArgumentParser:
    """A parser of commands that name cases; `doc` is the module's docstring."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0] if doc else None)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(cases)}; all if none is given")
    return parser


def parse(parser: argparse.ArgumentParser, cases: Iterable[str]) -> Any:
    """The options of the command; it ends where one of its cases does not exist."""
    options = parser.parse_args()
    if unknown := set(options.cases) - set(cases):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    return options
