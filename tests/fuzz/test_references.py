"""Random programs with Refs give what they give in JAX (`python -m tests.fuzz.references FIRST LAST` runs more)."""

from __future__ import annotations

import pytest

import shardwise as sw
from tests.fuzz.references import Grow, difference, outcome

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("seed", [3, 12, 105, 152, 197, 664])
def test_programs_with_refs_give_what_jax_gives(seed: int) -> None:
    program, jit = Grow(seed, seed % 2 == 0).program(), seed % 2 == 0
    assert difference(outcome(sw, program, jit), outcome(jax, program, jit)) is None
