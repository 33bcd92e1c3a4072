"""What `cost_analysis` counts, by XLA's conventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax

N, M = 64, 8
X = jax.ShapeDtypeStruct((N, N), np.float32)
ROWS = jax.ShapeDtypeStruct((M, 1), np.int32)
U = jax.ShapeDtypeStruct((M, N), np.float32)
P = jax.ShapeDtypeStruct((), np.bool_)
PRODUCT = 2 * N**3
LOOKUP = lax.GatherDimensionNumbers((1,), (0,), (0,))
UPDATE = lax.ScatterDimensionNumbers((1,), (0,), (0,))

# Function, operands, FLOPs and transcendentals: those that XLA counts, but for sums, of which it counts one operation less.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int, int]] = {
    "product": (lambda x: x @ x, (X,), PRODUCT, 0),
    "batched product": (
        jax.vmap(lambda x, y: x @ y),
        (jax.ShapeDtypeStruct((3, N, N), np.float32),) * 2,
        3 * PRODUCT,
        0,
    ),
    "sum": (lambda x: x.sum(), (X,), N * N, 0),
    "elementwise": (lambda x: jnp.tanh(x) + x, (X,), N * N, N * N),
    "gather": (lambda x, i: lax.gather(x, i, LOOKUP, (1, N), mode="promise_in_bounds"), (X, ROWS), 0, 0),
    "scatter_add": (lambda x, i, u: lax.scatter_add(x, i, u, UPDATE, mode="promise_in_bounds"), (X, ROWS, U), M * N, 0),
    "scatter": (lambda x, i, u: lax.scatter(x, i, u, UPDATE, mode="promise_in_bounds"), (X, ROWS, U), 0, 0),
    "cond": (lambda p, x: lax.cond(p, lambda x: x @ x @ x, lambda x: jnp.sin(x) @ x, x), (P, X), 2 * PRODUCT, N * N),
    "a loop of no rounds": (lambda x: lax.fori_loop(0, 0, lambda i, c: c @ x, x), (X,), 0, 0),
    "a loop in a branch": (
        lambda p, x: lax.cond(p, lambda x: lax.fori_loop(0, 5, lambda i, c: c @ x, x), lambda x: x @ x, x),
        (P, X),
        5 * PRODUCT,
        0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_counts(name):
    fun, operands, flops, transcendentals = CASES[name]
    lowered = jax.jit(fun).lower(*operands)
    for cost in (lowered.cost_analysis(), lowered.compile().cost_analysis()):
        few = 2 * 5 + 1 if "loop" in name or name == "cond" else 0  # of the index and the test
        assert flops <= cost["flops"] <= flops + few
        assert cost["transcendentals"] == transcendentals
