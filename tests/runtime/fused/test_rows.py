"""Groups along rows that reduce nothing."""

import numpy as np
import pytest

from shardwise import lax
from shardwise.ir import ShapedArray, trace_program
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import GroupKernel, IterationSpace

SHAPE = (40, 64, 64)


@pytest.mark.parametrize("piece", [costs.FUSED_PIECE, 1 << 9])
def test_values_of_rows_are_written(monkeypatch, piece):
    """What is made of a row alone is a result too where the loops are cut into pieces, each of which has all of the row."""
    monkeypatch.setattr(costs, "FUSED_PIECE", piece)
    x = np.random.default_rng(0).normal(size=64).astype(np.float32)
    y = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)

    def f(x, y):
        row = lax.exp(x)
        return [row, y * lax.broadcast_in_dim(row, SHAPE, (2,))]

    program = trace_program(f, [ShapedArray(v.shape, v.dtype) for v in (x, y)])[0]
    run = GroupKernel(Env(), program, IterationSpace(SHAPE, (0, 1), frozenset()))
    for _ in range(2):
        row, product = run(x, y)
        np.testing.assert_allclose(row, np.exp(x), rtol=1e-6)
        np.testing.assert_allclose(product, y * np.exp(x), rtol=1e-6)
