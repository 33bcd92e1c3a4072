"""What is built from the checkout: the sdist has what a wheel is made from, and the wheel all that the package reads."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "shardwise"


def built(folder: Path, target: str, place: Path) -> Path:
    """The file that hatchling makes of the project in `folder`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(place)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    (file,) = place.iterdir()
    return file


def test_the_sdist_makes_the_wheel_of_the_checkout(tmp_path):
    with tarfile.open(built(ROOT, "sdist", tmp_path / "sdist")) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheels = [zipfile.ZipFile(built(root, "wheel", tmp_path / name)) for name, root in (("a", ROOT), ("b", unpacked))]
    names = [{n for n in wheel.namelist() if not n.endswith("RECORD")} for wheel in wheels]
    assert names[0] == names[1]
    assert all(wheels[0].read(n) == wheels[1].read(n) for n in names[0])
    pages = {f"shardwise/cli/errors/{f.name}" for f in (ROOT / "docs" / "errors").iterdir()}
    package = {f"shardwise/{f.relative_to(SOURCE)}" for f in SOURCE.rglob("*") if f.is_file() and f.suffix != ".pyc"}
    assert {n for n in names[0] if n.startswith("shardwise/")} == package | pages
    assert {"shardwise/py.typed", "shardwise/planner/machines/v5p.toml", "shardwise/plan/report/page.html"} <= package
    (entries,) = (n for n in names[0] if n.endswith("entry_points.txt"))
    assert b"shardwise = shardwise.cli:main" in wheels[0].read(entries)
    for part in ("README.md", "LICENSE", "tests/conftest.py", "examples/data/digits.npz", "docs/index.md", ".ci/run"):
        assert (unpacked / part).is_file()
