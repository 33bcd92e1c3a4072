"""Elements taken along rows in machine code, for every type of elements and positions."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.ops.indexing import taken_along
from shardwise.runtime.machine import available

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int16])
@pytest.mark.parametrize("position", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("fill", [None, 7])
def test_taken_along(dtype, position, wrap, fill):
    rng = np.random.default_rng(0)
    for columns in (1, 7, 100):
        table = rng.normal(size=(64, columns)).astype(dtype)
        at = rng.integers(-3, columns + 5, (64, 70)).astype(position)
        at[0, :2] = np.iinfo(position).max, np.iinfo(position).min
        got = taken_along.take_along(table, at, fill, wrap=wrap)
        assert got is not None
        wide = at.astype(np.int64)
        if wrap:
            wide = np.where(wide < 0, wide + columns, wide)
        want = np.take_along_axis(table, np.clip(wide, 0, columns - 1), 1)
        if fill is not None:
            want = np.where((wide >= 0) & (wide < columns), want, np.asarray(fill, dtype))
        np.testing.assert_array_equal(got, want)
