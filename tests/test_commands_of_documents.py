"""Commands that the documents show run, each in a folder with a program, a module, a notebook and tests of the names that they use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PROGRAM = """import os, jax, jax.numpy as jnp
if "PMI_RANK" in os.environ:  # of several
    jax.distributed.initialize()
f = jax.jit(lambda x: jnp.tanh(x) @ x)
print(f(jnp.eye(8)).shape)
"""
PLACEHOLDERS = {
    "PROGRAM": "prog.py", "MODULE": "module", "package.module": "module", "NOTEBOOK": "notebook.ipynb", "MACHINE": "v5e-8",
    "[--devices N]": "--devices 8", "[--dialect 0.5|0.10]": "--dialect 0.10", "[ARGUMENTS ...]": "word",
    "[arguments of the program ...]": "word", "[arguments]": "word",
}  # fmt: skip
ELSEWHERE = {
    "examples/plan_llama.py --on 512x": "tests/test_plan_llama.py",
    "examples/plan_llama.py --on v5p-256 --search": "minutes: tests/plan/test_search.py searches smaller programs",
    "src/maxtext": "a checkout of MaxText with all that it needs",
}


def _commands() -> Iterator[str]:
    """Lines of indented blocks, and code between backticks, that call `shardwise`."""
    for page in PAGES:
        text = FENCED.sub("", page.read_text(encoding="utf-8"))
        lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
        for command in [*lines, *(" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text))]:
            command = command.partition("  #")[0].strip()
            if re.match(r"(mpiexec -n \d+ )?shardwise ([a-z-]+|--version)( |$)", command) or command.startswith(
                "eval "
            ):
                for name, value in PLACEHOLDERS.items():
                    command = command.replace(name, value)
                yield command


FOUND = sorted(set(_commands()))
NAMED = [
    c
    for c in FOUND
    if re.fullmatch(r"shardwise [a-z]+( --[a-z]+( latest)?)?", c)
    and not c.startswith(("shardwise info", "shardwise help"))
]
OTHERS = [c for c in FOUND if c not in NAMED and not any(part in c for part in ELSEWHERE)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("documents")
    for name in ("prog.py", "train.py", "module.py"):
        (place / name).write_text(PROGRAM)
    cell = {"cell_type": "code", "source": PROGRAM, "metadata": {}, "outputs": [], "execution_count": None}
    (place / "notebook.ipynb").write_text(
        json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    (place / "tests").mkdir()
    (place / "tests" / "test_it.py").write_text("import jax\ndef test_it():\n    assert 'shardwise' in jax.__file__\n")
    (place / "bin").mkdir()
    (place / "bin" / "shardwise").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shardwise "$@"\n')
    (place / "bin" / "shardwise").chmod(0o755)
    return place


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SHARDWISE_", "PYTEST_"))}
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), kept["PATH"]])
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=kept | {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


@pytest.mark.parametrize("command", OTHERS)
def test_it_runs(folder: Path, command: str) -> None:
    if "--beside jax" in command:
        pytest.importorskip("jax")
    if "mpiexec" in command or "--processes" in command:
        pytest.importorskip("mpi4py")
    done = run(folder, command)
    assert done.returncode == 0, done.stderr
    assert done.stdout or command.startswith("eval"), "it says nothing"
    written = re.search(r"(?:-o|--html) (\S+)", command)
    assert written is None or (folder / written[1]).stat().st_size


def test_commands_that_are_named_have_their_options(folder: Path) -> None:
    for command in {c.split()[1] for c in NAMED}:
        done = run(folder, f"shardwise {command} --help")
        assert done.returncode == 0, done.stderr
        for named in NAMED:
            if named.split()[1] == command:
                assert set(re.findall(r"--[a-z]+", named)) <= set(re.findall(r"--[a-z]+", done.stdout)), named


def test_there_are_commands_of_each_kind() -> None:
    words = {c.split()[1] for c in OTHERS if c.startswith("shardwise")}
    assert words >= {"run", "explain", "bench", "trace", "plan", "info", "help", "--version"}
    assert all(any(part in c for c in FOUND) for part in ELSEWHERE)


def test_what_is_installed_is_what_ci_installs() -> None:
    readme, script = (
        (ROOT / "README.md").read_text(encoding="utf-8"),
        (ROOT / ".ci" / "run").read_text(encoding="utf-8"),
    )
    extras = set(
        re.findall(r"pip install (?:-e )?'\.\[(\w+)\]'", "".join(p.read_text(encoding="utf-8") for p in PAGES))
    )
    assert extras == {"mpi", "test", "docs"} and all(f"'.[{extra}]'" in script for extra in extras)
    (example,) = re.findall(r"pip install '\.\[mpi\]' && \.venv/bin/(python examples/\w+\.py)", readme)
    assert example.replace("python ", 'python" ') in script
