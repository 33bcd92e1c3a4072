"""What kernels allocate besides operands and results, held to what they do."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.lax import linalg
from shardwise.planner import HERE, device_program_of, make_plan
from shardwise.planner.machines import find
from shardwise.runtime.machine import settle_drafts
from shardwise.runtime.memory import pool

NUMBERS = np.random.default_rng(0).standard_normal((320, 320)).astype(np.float32)
SYMMETRIC = NUMBERS @ NUMBERS.T + 320 * np.eye(320, dtype=np.float32)
LONG = NUMBERS.reshape(-1)
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "cholesky in blocks": (lambda x: linalg.cholesky(x, symmetrize_input=False), [SYMMETRIC]),
    "cholesky": (lambda x: linalg.cholesky(x, symmetrize_input=False), [SYMMETRIC[:200, :200]]),
    "lu": (linalg.lu, [NUMBERS]),
    "qr": (jnp.linalg.qr, [NUMBERS[:, :160]]),
    "solve": (jnp.linalg.solve, [NUMBERS, NUMBERS]),
    "eigenvalues": (jnp.linalg.eigvals, [NUMBERS[:100, :100]]),
    "eigenvectors": (jnp.linalg.eig, [NUMBERS[:100, :100]]),
    "argsort": (lambda x: jnp.argsort(x), [LONG]),
    "sort of two": (lambda x, y: lax.sort((x, y)), [LONG, LONG[::-1].copy()]),
    "sort": (lambda x: jnp.sort(x), [LONG]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_peak_is_what_a_call_allocates(case):
    f, operands = CASES[case]
    arrays = [jnp.asarray(x) for x in operands]
    compiled = jax.jit(f).lower(*arrays).compile()
    plan = make_plan(device_program_of(compiled.runtime_executable(), HERE, together=True), find("cpu-1x16"))
    jax.block_until_ready(compiled(*arrays))
    settle_drafts()  # the thread that replaces them allocates, too
    pool.trim(0)
    tracemalloc.start()
    try:
        jax.block_until_ready(compiled(*arrays))
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert plan.peak == pytest.approx(held + plan.arguments, rel=0.05, abs=1 << 13)  # or Python's own objects
