"""The notebooks of examples/ run by the command, and print what they show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def shown(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "".join("".join(output["text"]) for cell in cells for output in cell.get("outputs", []))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(notebook: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SHARDWISE_"))}
    done = subprocess.run(
        [sys.executable, "-m", "shardwise", "run", notebook.name],
        cwd=notebook.parent,
        env=kept | {"PYTHONPATH": str(ROOT / "src")},
        encoding="utf-8",
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert shown(notebook), "a notebook without outputs"
    assert done.stdout == shown(notebook)


def test_the_page_names_them_all() -> None:
    table = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert NOTEBOOKS
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == [path.stem for path in NOTEBOOKS]
