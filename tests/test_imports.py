"""Imports: every module can be the first after the package itself; functions import our modules only for start-up time."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import pytest

import shardwise

ROOT = Path(shardwise.__file__).parent
MODULES = sorted(
    ".".join(p.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    for p in ROOT.rglob("*.py")
    if p.name != "__main__.py"
)
SHARE = 12  # the default run imports one module in so many, always the same ones

# Forks after `import shardwise` for each module that this has not imported: fresh, without the time of a start.
FORKS = """
import gc, importlib, os, sys, traceback
import numpy, scipy.special, ml_dtypes, opt_einsum  # what every module shares and nothing of ours
import shardwise
gc.freeze()
for name in sys.argv[1:]:
    if name in sys.modules:
        continue
    child = os.fork()
    if child == 0:
        status = 0
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(name, type(error).__name__, error, flush=True)
            status = 1
        os._exit(status)
    os.waitpid(child, 0)
"""


def failing(shell: Any, modules: list[str]) -> str:
    done = shell("-c", FORKS, *modules)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
def test_a_share_of_the_modules_imports_first(shell: Any) -> None:
    assert len(MODULES) > 400
    assert failing(shell, MODULES[::SHARE]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, SHARE))
def test_all_modules_import_first(shell: Any, part: int) -> None:
    assert failing(shell, MODULES[part::SHARE]) == ""


def test_rooms_that_only_some_programs_need_are_imported_by_these(shell: Any) -> None:
    def imported(script: str) -> set[str]:
        done = shell("-c", f"import sys, numpy, shardwise\n{script}\nprint(*sys.modules)")
        assert not done.returncode, done.stderr
        return set(done.stdout.split())

    some = {f"shardwise.{room}" for room in ("runtime.fused", "runtime.products", "runtime.small", "ops.indexing",
                                             "ops.linalg", "ops.products", "ops.random")}  # fmt: skip
    assert not some & imported("")
    large = imported("shardwise.jit(lambda x: 3 * x + x * x)(numpy.ones((512, 512), numpy.float32))")
    assert "shardwise.runtime.fused" in large
    assert "shardwise.runtime.small" not in large
    host = "[1, 2], numpy.ones(3, numpy.float32), numpy.float32(1)"
    arrays = imported(f"import shardwise.numpy as jnp\nfor x in ({host}): jnp.array(x), jnp.asarray(x, jnp.float16)")
    assert "numpy.ma" not in arrays  # takes 10 ms
    lowered = imported("shardwise.jit(lambda x: shardwise.nn.relu(x + 1)).lower(1.0).compile()")
    assert not lowered & {"shardwise.planner", "shardwise.random", "shardwise.transforms.programs.jaxpr_views"}


def test_a_module_that_fails_is_named(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "needs_more.py").write_text("raise KeyError('scatter')")
    done = shell("-c", FORKS, "needs_more", cwd=tmp_path)
    assert done.stdout == "needs_more KeyError 'scatter'\n"


def late_imports(text: str) -> list[int]:
    """The lines of functions that import our modules without saying that they do so for start-up time."""
    lines, found = text.splitlines(), set[int]()
    if not re.search(r"^ +(from|import) shardwise", text, re.MULTILINE):  # spares nearly all files the parser
        return []
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(name.partition(".")[0] == "shardwise" for name in names):
                first = node.lineno - 1
                while lines[first - 1].lstrip().startswith(("from ", "import ")):  # the first of a group speaks for it
                    first -= 1
                if "# start-up time" not in lines[first]:
                    found.add(node.lineno)
    return sorted(found)


def test_functions_import_our_modules_only_for_start_up_time() -> None:
    found = {str(p.relative_to(ROOT)): lines for p in ROOT.rglob("*.py") if (lines := late_imports(p.read_text()))}
    assert not found, f"move these imports to the top of the module, or say `# start-up time` there: {found}"


@pytest.mark.parametrize(("comment", "lines"), [("", [2, 3]), ("  # start-up time", [])])
def test_late_imports_are_found(comment: str, lines: list[int]) -> None:
    text = f"def f():\n    from shardwise.plan import on{comment}\n    from shardwise import plan\n    import numpy\n"
    assert late_imports(text) == lines
