"""`dir` of public modules: what they offer, and nothing else."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import shardwise
from shardwise.base import listing

ROOT = Path(shardwise.__file__).parent
LISTED = sorted(
    ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    for file in ROOT.rglob("*.py")
    if "__dir__ = _listing(__name__)" in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", LISTED)
def test_modules_show_what_they_offer(name: str) -> None:
    module = importlib.import_module(name)
    shown = [n for n in dir(module) if not n.startswith("_")]
    assert shown
    assert not {"Any", "annotations", "Callable", "np", "jnp", "lax"} & set(shown)
    for n in shown:
        getattr(module, n)


@pytest.mark.parametrize(
    "name, modules",
    [
        ("numpy", {"fft", "linalg"}),
        ("lax", {"linalg"}),
        ("nn", {"initializers"}),
        ("sharding", set()),
        ("random", set()),
        ("debug", set()),
    ],
)
def test_packages_show_no_modules_of_their_own(name: str, modules: set[str]) -> None:
    package = importlib.import_module(f"shardwise.{name}")
    shown = [n for n in dir(package) if not n.startswith("_")]
    assert {n for n in shown if isinstance(getattr(package, n), ModuleType)} == modules


def test_the_root_shows_no_rooms_and_everything_before_first_use() -> None:
    code = (
        "import shardwise; names = dir(shardwise); print(*names); "
        "[getattr(shardwise, n) for n in names]; import shardwise.planner, shardwise.numpy; assert dir(shardwise) == names"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    names = set(done.stdout.split())
    assert {"jit", "grad", "numpy", "lax", "Array", "plan", "make_mesh", "NamedSharding"} <= names
    assert not {"engine", "passes", "runtime", "transforms", "ir", "base", "planner"} & names


def test_names_come_from_all_else_from_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "listed_one.py").write_text(
        "from os import path, sep as sep\nimport sys\na, b = 1, 2\n_c = 3\ndef f(): ...\n"
    )
    (tmp_path / "listed_two.py").write_text("import sys\n__all__ = ['x']\nx = y = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, names in {"listed_one": ["a", "b", "f", "sep"], "listed_two": ["x"]}.items():
        importlib.import_module(name)
        assert listing.listing(name)() == names
