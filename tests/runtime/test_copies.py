"""Copies into the pool's memory hold what NumPy's own would."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.runtime.copies import chosen, copied
from shardwise.runtime.memory import alone


@pytest.mark.parametrize("shape", [(3, 5), (1000, 777), (1 << 20,), (3, 1 << 19), (0, 4), (17, 33, 4097)])
@pytest.mark.parametrize("target", [None, np.float32])
def test_copied(shape, target):
    whole = (np.random.default_rng(0).normal(size=shape) * 9).astype(np.float64)
    for x in (whole, whole.T, whole[::-1], whole[..., ::2], np.broadcast_to(whole, (2, *shape))):
        out, want = copied(x, target), x.astype(target or x.dtype)
        assert out.dtype == want.dtype
        assert out.flags.writeable
        assert not np.shares_memory(out, x)
        np.testing.assert_array_equal(out, want)


def test_copies_are_in_the_pool_and_keep_the_order_of_memory():
    x = np.ones((512, 1024), np.float32)
    holder = [copied(x.T)]
    assert holder[0].strides == x.T.strides
    assert alone(holder, 0)


def test_chosen():
    rng = np.random.default_rng(0)
    for x in (rng.normal(size=(8, 3)), rng.normal(size=(64, 300, 77)), rng.normal(size=(300, 64, 77)).swapaxes(0, 1)):
        positions = [int(i) for i in rng.permutation(len(x))]
        np.testing.assert_array_equal(chosen(x, positions), x[positions])
