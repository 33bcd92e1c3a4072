"""Rows in order, whatever NumPy's sorts do with special values."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.ops.rules.order import sorted_rows


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("length", [9, 300])
@pytest.mark.parametrize(("dtype", "bits"), [("float16", "uint16"), ("float32", "uint32"), ("float64", "uint64")])
def test_nan_keep_their_bits(dtype, bits, length, stable):
    x = np.arange(length, 0, -1).astype(dtype)
    x[1], x[3] = np.nan, -np.nan
    x.view(bits)[5] = x.view(bits)[1] | 5
    (found,) = sorted_rows([x], 0, 0, stable, 1)
    assert sorted(found.view(bits).tolist()) == sorted(x.view(bits).tolist())
    assert np.isnan(found[-3:]).all() and (np.diff(found[:-3]) > 0).all()
