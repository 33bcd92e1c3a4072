"""ARCHITECTURE.md is true of the tree: its files are there, its names are ours, and its programs are those of its example."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, P

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "shardwise"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
QUOTED = set(re.findall(r"`([^`\n]+)`", TEXT))


def test_files_are_there() -> None:
    """A path begins in the checkout or in the package; a name alone is that of a file somewhere in it."""
    names = {path.name for path in PACKAGE.rglob("*.py")}
    paths = [q for q in QUOTED if re.fullmatch(r"[\w./]+", q) and ("/" in q or q.endswith(".py"))]
    assert len(paths) > 30
    assert [p for p in paths if p not in names and not (ROOT / p).exists() and not (PACKAGE / p).exists()] == []


def test_names_are_ours() -> None:
    known = set()
    for path in PACKAGE.rglob("*.py"):
        known.update(path.relative_to(PACKAGE).with_suffix("").parts)
        known.update(re.findall(r"[A-Za-z_]\w+", path.read_text()))
    words = {w for q in QUOTED if "/" not in q and "import-linter" not in q for w in re.findall(r"[A-Za-z_]\w+", q)}
    assert words - known - {"lint"} == set()


def programs() -> list[str]:
    """The programs that the page prints, with the names and spaces of the page."""
    blocks = re.findall(r"^ +\{ lambda ;.*?in \(.*?\) \}$", TEXT, re.MULTILINE | re.DOTALL)
    return [dedent(block) for block in blocks]


def test_programs_are_those_of_the_example() -> None:
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    a = sw.device_put(np.ones((8, 6), np.float32), NamedSharding(mesh, P("x", "y")))
    w = sw.device_put(np.ones((6, 4), np.float32), NamedSharding(mesh, P("y", None)))
    executable = sw.jit(lambda a, w: jnp.tanh(a @ w)).lower(a, w).compile().runtime_executable()
    steps = executable.program, executable.device_program, executable.plan.program
    assert programs() == [str(program) for program in steps]
