"""Segment reductions in buckets, beside JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("reduction", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("ids", [np.array([0, 0, 1, 1, 2, 2, 2]), np.array([3, -1, 0, 9, 3, 1, 0], np.int8)])
def test_rows_in_buckets(reduction: str, size: int, ids: Any) -> None:
    data = np.arange(14, dtype=np.float32).reshape(7, 2) + 1
    calls = [getattr(lib.ops, f"segment_{reduction}") for lib in (sw, jax)]
    ours, theirs = (call(data, ids, 4, bucket_size=size) for call in calls)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(sw.jit(lambda d, i: calls[0](d, i, 4, bucket_size=size))(data, ids), theirs)


def test_many_buckets_of_small_ids() -> None:
    found = sw.ops.segment_sum(np.ones(1000, np.float32), np.zeros(1000, np.int8), 2, bucket_size=2)
    np.testing.assert_array_equal(found, [1000, 0])


def test_no_bucket() -> None:
    with pytest.raises(ValueError, match="bucket_size must be positive"):
        sw.ops.segment_sum(np.ones(3), np.zeros(3, int), 2, bucket_size=0)
