"""A short run of the fuzzer, always on the same programs, and a long one on others each day."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.grow import Grower
from tests.fuzz.laws import compare_leaf
from tests.fuzz.program import Operand, Program, Statement
from tests.fuzz.shrink import shrunk

ROOT = Path(__file__).parent.parent.parent


def fuzz(*arguments: str, timeout: float) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout


def test_a_few_programs_in_all_our_ways() -> None:
    laws = "eager mesh stepped fallback repeated atomic donated".split()
    fuzz("--programs=14", "--seed=ci", "--no-shrink", "--laws", *laws, timeout=300)


def test_a_few_programs_beside_jax_and_on_two_processes() -> None:
    pytest.importorskip("jax")
    laws = "jax types traced refusals processes divergent".split()
    fuzz("--programs=6", "--first=100", "--seed=ci", "--no-shrink", "--laws", *laws, timeout=300)


@pytest.mark.slow
def test_many_programs() -> None:
    fuzz("--seconds=1800", f"--seed={datetime.date.today()}", timeout=3600)


def test_one_seed_grows_one_program() -> None:
    import shardwise

    before = shardwise.config.shardwise_dialect
    shardwise.config.update("shardwise_dialect", "latest")
    try:
        first, again, other = (Grower(shardwise, seed).program().text() for seed in ("1", "1", "2"))
    finally:
        shardwise.config.update("shardwise_dialect", before)
    assert first == again != other


def test_shrinking_leaves_what_matters() -> None:
    """Of a chain of statements the one that shows something stays, and what it needs becomes constant."""
    chain = [Statement(f"v{i}", f"v{i - 1} + 1", (4,), "float32") for i in range(2, 9)]
    chain[3].expression = "jnp.sin(v4)"
    operand = Operand("v1", (4,), "float32", "data((4,), 'float32', 0)", "P('x')")
    program = Program((2,), "Auto", [operand], chain, ["v8", "v3"], [0.0, 0.0], jit="donate_argnums=(0,)")
    small = shrunk(program, lambda p: "sin" in p.text())
    assert len(small.statements) < 4
    assert "donate" not in small.text() and "P('x')" not in small.text()


def test_differences_count_beyond_the_noise_only() -> None:
    x, y = ({"kind": "Array", "value": np.array([1, v], np.float32), "weak_type": False} for v in (2.0, 2.001))
    compare_leaf(x, y, "x", ["weak_type"], 0.001)
    for other in (
        y,
        {**x, "weak_type": True},
        {**x, "value": np.array([1.0, 2.0])},
        {**x, "value": np.ones(1, np.float32)},
    ):
        with pytest.raises(AssertionError):
            compare_leaf(x, other, "x", ["weak_type"], 0.00001)
