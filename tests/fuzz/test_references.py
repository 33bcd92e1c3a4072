"""Random programs with Refs give what they give in JAX (`python -m tests.fuzz.references FIRST LAST` runs more)."""

from __future__ import annotations

import pytest

import shardwise as sw
from tests.fuzz.references import Grow, difference, outcome

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("seed", [560, 664, 1004, 1006, 1010, 1016, 1018])
def test_programs_with_refs_give_what_jax_gives(seed: int) -> None:
    program, jit = Grow(seed, seed % 2 == 0).program(), seed % 2 == 0
    assert difference(outcome(sw, program, jit), outcome(jax, program, jit)) is None
