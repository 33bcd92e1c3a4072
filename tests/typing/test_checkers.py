"""What type checkers know of the public names: every one, no others, and the parameters of transformed functions."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import shardwise

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"
ROOMS = {
    "shardwise._src", "shardwise.alias", "shardwise.base", "shardwise.cli", "shardwise.engine", "shardwise.ir", "shardwise.ops",
    "shardwise.passes", "shardwise.planner", "shardwise.runtime", "shardwise.transforms",
}  # fmt: skip


def importable() -> list[str]:
    """The modules with no room and no private part in their paths."""
    found = [module.name for module in pkgutil.walk_packages(shardwise.__path__, "shardwise.")]
    rooms = tuple(f"{room}." for room in ROOMS)
    return [name for name in found if "._" not in name and not f"{name}.".startswith(rooms)]


@functools.cache
def public_modules() -> list[str]:
    """The modules that `dir` shows, from the root on, once all are imported: what other tests imported makes no difference."""
    for name in importable():
        importlib.import_module(name)
    found: list[str] = []
    waiting = ["shardwise"]
    while waiting:
        name = waiting.pop()
        found.append(name)
        for value in vars_shown(name).values():
            inner = getattr(value, "__name__", "") if inspect.ismodule(value) else ""
            if inner.startswith(name + ".") and inner not in ROOMS and inner not in found + waiting:
                waiting.append(inner)
    return sorted(found)


def vars_shown(module: str) -> dict[str, Any]:
    """The names that `dir` shows of a module, with their values; without those that raise, as they are refused."""
    owner = importlib.import_module(module)
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in dir(owner):
            if not name.startswith("_") and hasattr(owner, name):
                found[name] = getattr(owner, name)
    return found


def test_modules_show_their_public_names_alone():
    rooms = {name.rpartition(".")[2] for name in ROOMS}
    assert (rooms - {"alias", "ops"}).isdisjoint(vars_shown("shardwise"))
    assert "trends" not in vars_shown("shardwise.scipy")
    assert "kde" not in vars_shown("shardwise.scipy.stats")


def uses_of_all_names() -> str:
    modules = public_modules()
    lines = [f"import {name}" for name in modules]
    lines += [f"{module}.{name}" for module in modules for name in vars_shown(module)]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of this one, and one that uses every public name."""
    folder = tmp_path_factory.mktemp("typed")
    (folder / "all_names.py").write_text(uses_of_all_names())
    for name in ("right_uses", "misspellings", "signatures"):
        (folder / f"{name}.py").write_bytes((HERE / f"{name}.py").read_bytes())
    return folder


Errors = dict[str, dict[int, str]]  # by file and line, from 1


@pytest.fixture(scope="module")
def pyright(project: Path) -> Errors:
    settings = {"typeCheckingMode": "standard", "reportUnusedExpression": "none", "extraPaths": [str(SOURCE)]}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "-p", str(project), "--pythonpath", sys.executable, "--outputjson"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    found: Errors = {}
    for message in json.loads(result.stdout)["generalDiagnostics"]:
        line = message["range"]["start"]["line"] + 1
        found.setdefault(Path(message["file"]).stem, {})[line] = message["message"]
    return found


@pytest.fixture(scope="module")
def mypy(project: Path) -> Errors:
    pytest.importorskip("mypy")
    settings = f"[mypy]\nmypy_path = {SOURCE}\npython_executable = {sys.executable}\nfollow_imports = silent\ncheck_untyped_defs = True\n"
    (project / "mypy.ini").write_text(settings)
    files = [str(path) for path in project.glob("*.py")]
    command = [sys.executable, "-m", "mypy", "--config-file", str(project / "mypy.ini"), "--no-error-summary", *files]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=project)
    found: Errors = {}
    for line in result.stdout.splitlines():
        if match := re.match(r"(?:.*/)?(\w+)\.py:(\d+): error: (.*)", line):
            found.setdefault(match[1], {})[int(match[2])] = match[3]
    assert found, result.stdout + result.stderr
    return found


@pytest.fixture(params=["pyright", pytest.param("mypy", marks=pytest.mark.slow)])
def errors(request: pytest.FixtureRequest) -> Errors:
    return request.getfixturevalue(request.param)


def test_what_a_checker_finds(errors: Errors):
    """One test: each of pytest's own processes would run the checker anew."""
    assert errors.get("all_names", {}) == {}, "every public name is known"
    assert errors.get("right_uses", {}) == {}, "right uses have no errors"
    assert sorted(errors["misspellings"]) == sorted(misspelled())
    marked = [n for n, line in enumerate((HERE / "signatures.py").read_text().splitlines(), 1) if "# error:" in line]
    found = errors["signatures"]
    assert sorted(found) == marked, {n: text for n, text in found.items() if n not in marked}


def test_right_uses_run():
    count = len(ast.parse((HERE / "right_uses.py").read_text()).body)
    assert count >= 150
    runpy.run_path(str(HERE / "right_uses.py"))


def misspelled() -> dict[int, str]:
    lines = (HERE / "misspellings.py").read_text().splitlines()
    start = lines.index("x = jnp.ones((2, 3))") + 1
    return {n: line for n, line in enumerate(lines, 1) if n > start and line}


def test_each_misspelling_raises():
    assert len(misspelled()) == 41
    names: dict[str, Any] = {}
    lines = (HERE / "misspellings.py").read_text().splitlines()
    exec("\n".join(lines[: min(misspelled()) - 1]), names)
    for line in misspelled().values():
        with pytest.raises(AttributeError):
            eval(line, names)


def declared(path: Path, inside: str | None = None) -> set[str]:
    """The public names that a file defines for checkers, or a class of it."""
    body = ast.parse(path.read_text()).body
    if inside is not None:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == inside)
    names: set[str] = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case _:
                pass
    return {name for name in names if not name.startswith("_")}


def test_checkers_know_the_methods_that_arrays_have():
    import shardwise as jax
    from shardwise.engine.array import ArrayImpl

    assert jax.numpy.ones(1).sum() == 1  # methods are installed when they are first used
    has = {name for name in (*dir(jax.Array), *dir(ArrayImpl)) if not name.startswith("_")}
    told = declared(SOURCE / "shardwise/numpy/_array_methods.py", "ArrayMethods")
    told |= declared(SOURCE / "shardwise/ir/value.py", "Array")
    internal = {"aval", "block", "dense"}
    older = {"local_data", "local_shards"}  # they warn
    gone = {"device_buffer", "device_buffers"}  # they raise, and say what to use
    assert told - internal == has - internal - older - gone


@pytest.mark.parametrize(
    ("stub", "module"),
    [("lax/primitives", "lax"), ("lax/linalg_primitives", "lax.linalg"), ("numpy/scalar_types", "numpy")],
)
def test_stubs_name_what_there_is(stub: str, module: str):
    owner = importlib.import_module(f"shardwise.{module}")
    tree = ast.parse((SOURCE / f"shardwise/{stub}.py").read_text())
    names = {n.target.id for n in ast.walk(tree) if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    assert names
    assert [name for name in names if not hasattr(owner, name)] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_imports_for_checkers_name_what_there_is():
    """`if TYPE_CHECKING:` in public packages stands for what their `__getattr__` imports."""
    for module in public_modules():
        owner = importlib.import_module(module)
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        for node in ast.parse(Path(spec.origin).read_text()).body:
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                shown = {a.asname for n in node.body if isinstance(n, ast.ImportFrom) for a in n.names if a.asname}
                assert [name for name in shown if not hasattr(owner, name)] == []
