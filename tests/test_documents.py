"""A program in the documents that is followed by its output prints just that; `...` stands for what differs each time."""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import QUICK

ROOT = Path(__file__).parents[1]
PROGRAM_AND_OUTPUT = re.compile(r"^```python\n((?:(?!```).*\n)*)```\n+```text\n((?:(?!```).*\n)*)```$", re.MULTILINE)


OWN_TEST = "from-a-laptop-to-a-cluster.md"  # of several processes: tests/test_cluster_page.py


def _programs():
    for page in (ROOT / "README.md", *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.name != OWN_TEST)):
        for program, output in PROGRAM_AND_OUTPUT.findall(page.read_text(encoding="utf-8")):
            yield pytest.param(program, output, id=f"{page.name}: {program.splitlines()[-1]}")


@pytest.fixture(scope="module")
def forking():
    """The process that runs the programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SHARDWISE_"))}
    command, environment = [sys.executable, ROOT / "tests" / "forking.py"], kept | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.mark.parametrize("program, output", list(_programs()))
def test_program_prints_its_output(program, output, tmp_path, forking):
    file, out, err = (tmp_path / name for name in ("example.py", "out", "err"))
    file.write_text(program, encoding="utf-8")
    forking.stdin.write(json.dumps([str(file), str(out), str(err)]) + "\n")
    forking.stdin.flush()
    assert forking.stdout.readline() == "0\n", err.read_text(encoding="utf-8")
    printed = out.read_text(encoding="utf-8")
    assert doctest.OutputChecker().check_output(output, printed, doctest.ELLIPSIS), printed


def test_the_readme_has_one():
    assert PROGRAM_AND_OUTPUT.search((ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_readme_links_to_every_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", text))
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - {"docs/README.md", "docs/changelog.md"}
    assert linked == pages


def test_the_quick_tests_are_there():
    assert [place for place in QUICK if not place.exists()] == []


# Modules of JAX that have no page: packages without names of their own, the insides of others, and what is there to be imported alone.
UNDOCUMENTED = """api_util example_libraries experimental.colocated_python.func experimental.colocated_python.serialization
experimental.compilation_cache experimental.array_serialization experimental.mosaic experimental.pallas.ops experimental.pallas.ops.tpu
experimental.pallas.ops.tpu.megablox experimental.pallas.ops.tpu.megablox.ops experimental.pallas.ops.tpu.splash_attention
experimental.roofline.roofline
experimental.sparse.bcoo experimental.sparse.bcsr extend extend.core.primitives extend.ifrt_programs ffi interpreters interpreters.mlir
interpreters.pxla interpreters.xla lib scipy scipy.cluster scipy.sparse scipy.spatial version""".split()


def test_the_reference_has_every_module_of_jax_that_is_here():
    pytest.importorskip("jax")
    package = ROOT / "src" / "shardwise"
    files = [f.relative_to(package).with_suffix("") for f in package.rglob("*.py")]
    names = {".".join(f.parts[:-1] if f.name == "__init__" else f.parts) for f in files} - {""}
    public = {name for name in names if not re.search(r"(^|\.)_", name)}
    rooms = {"base", "engine", "ir", "ops", "passes", "runtime", "transforms", "planner", "cli"}
    shared = {n for n in public if n.partition(".")[0] not in rooms - {"ops"} and _is_of_jax(n)}
    folder = ROOT / "docs" / "api"
    pages = {page.stem: page.read_text(encoding="utf-8") for page in folder.glob("shardwise*.md")}
    documented = {
        n for text in pages.values() for n in re.findall(r"^\.\. public-names:: shardwise\.(\S+)", text, re.MULTILINE)
    }
    assert shared - documented == set(UNDOCUMENTED)
    index = (folder / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^shardwise\S*", index, re.MULTILINE)) == pages.keys()


def _is_of_jax(name: str) -> bool:
    try:
        return importlib.util.find_spec(f"jax.{name}") is not None
    except ModuleNotFoundError:  # nor what holds it
        return False
