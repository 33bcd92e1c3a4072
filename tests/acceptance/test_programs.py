"""Programs as users write them: what they print and leave in `result` is what JAX gives, placement included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.oracle import compare

PROGRAMS = sorted(Path(__file__).with_name("programs").glob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_gives_what_jax_gives(path: Path) -> None:
    compare(path.read_text(), types=True, indices=True, spec=True, committed=True, printed=True, ulps=64)
