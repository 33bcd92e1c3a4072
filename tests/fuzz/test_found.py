"""What the fuzzer has found, each a small program whose results are JAX's.

A program runs as `tests/differential/worker.py` says and leaves its results in `result`. `# on a mesh` in its first line
says that JAX has to have eight devices for it; `# types` that types are compared, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.oracle import compare

PROGRAMS = sorted((Path(__file__).parent / "found").glob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_mended(path: Path) -> None:
    source = path.read_text()
    first = source.partition("\n")[0]
    compare(source, devices=8 if "on a mesh" in first else 1, types="types" in first, ulps=16)
