"""Loops over rows of floats take what kernels have as blocks, NumPy's scalars too."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.ops.random.float_loops import compute
from shardwise.ops.random.random_floats import _mul_add_lanes
from shardwise.runtime.machine import available


@pytest.mark.skipif(not available(), reason="needs llvmlite")
@pytest.mark.parametrize("of", [np.float32, lambda x: np.asarray(x, np.float32), lambda x: np.full(1, x, np.float32)])
def test_scalars_may_be_numpys(of):
    row, out = np.arange(5, dtype=np.float32), np.empty(5, np.float32)
    compute(_mul_add_lanes, out, (row,), (of(2.5), of(0.5)))
    assert out.tolist() == [0.5, 3.0, 5.5, 8.0, 10.5]
