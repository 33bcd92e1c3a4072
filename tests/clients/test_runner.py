"""The runner of libraries' tests: what it takes, what it says of a suite, and its page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.clients.__main__ import Library, compare, libraries, page, read_results, rows_with

SUITE = """
import jax, pytest

def test_both():
    assert jax.numpy.arange(3).sum() == 3

def test_only_jax():
    assert jax.__name__ == "jax"

def test_neither():
    raise ValueError("first line\\nsecond")

@pytest.mark.skip(reason="not here")
def test_skipped(): ...
"""


def test_a_suite_is_counted_under_both(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "test_thing.py").write_text(SUITE)
    library = Library("thing", "", ("test_thing.py",), "", "thing", {})
    row = compare(library, Path(sys.executable), tmp_path, tmp_path, 100, False)
    assert (row["tried"], row["passed"], row["ours"]) == (4, 2, 1)
    assert list(row["lost"]) == ["test_thing.py::test_only_jax"]
    reasons = {r["id"].rpartition("::")[2]: r["reason"] for r in read_results(tmp_path / "thing.jax")}
    assert reasons["test_neither"] == "ValueError: first line" and reasons["test_both"] == ""
    assert reasons["test_skipped"] == "Skipped: not here"
    again = compare(library, Path(sys.executable), tmp_path, tmp_path, 100, True)
    assert (again["passed"], again["ours"]) == (2, 1)


def test_the_page_shows_what_passes_and_what_does_not(tmp_path: Path) -> None:
    row = {
        "version": "1.2",
        "tried": 9,
        "passed": 5,
        "ours": 4,
        "seconds": [3.0, 1.5],
        "memory": [20, 10],
        "lost": {"t::a": "no"},
    }
    (tmp_path / "chex.json").write_text(json.dumps(row))
    (tmp_path / "optax.json").write_text(json.dumps(row | {"passed": 0, "lost": {}}))
    before = row | {"version": "1.1", "time": 3.0}
    del before["seconds"]
    rows = rows_with({"einops": before, "chex": before}, tmp_path)
    text = page(rows)
    assert "| chex | 1.2 | 9 | 5 | 4 | 2.0x | 20 / 10 |" in text and "- chex: `t::a`: no" in text
    assert "| einops | 1.1 | 9 | 5 | 4 | 3.0x | 20 / 10 |" in text
    assert "optax" not in text


def test_the_page_is_of_the_rows_kept() -> None:
    kept = json.loads((Path(__file__).parent / "rows.json").read_text())
    assert page(kept) == (Path(__file__).parents[2] / "docs" / "clients.md").read_text()


def test_every_library_names_its_tests() -> None:
    assert all(library.tests for library in libraries().values())
