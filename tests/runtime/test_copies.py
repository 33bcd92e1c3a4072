"""Copies into the pool's memory hold what NumPy's own would."""

from __future__ import annotations

import itertools
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from shardwise.runtime import copies, costs, loops
from shardwise.runtime.address import address
from shardwise.runtime.copies import copy_dense, row_major, rows_in_runs, runs_of, take_positions
from shardwise.runtime.machine import available
from shardwise.runtime.memory import alone

MIDDLE = {
    "turned": (lambda x: x.T, (-1,)),
    "repeated": (lambda x: np.broadcast_to(x.ravel()[:, None], (x.size, 3)), (3 * 144, -1)),
    "blocks": (lambda x: x.reshape(9, 16, 9, 16).swapaxes(1, 2), (81, 256)),
    "backwards": (lambda x: x[::-1, ::-1], (-1,)),
}


@pytest.mark.parametrize("dtype", ["float32", "int8", "int16"])
@pytest.mark.parametrize("name", MIDDLE)
def test_copies_of_middle_size_have_code(monkeypatch, name, dtype):
    """Smaller than what comes from the pool; NumPy begins each short row anew."""
    monkeypatch.setattr(costs, "COPY_CODE_FROM", 0)
    monkeypatch.setattr(costs, "COPY_ROWS_FROM", 1 << 14)
    seen = []
    monkeypatch.setattr(
        copies, "_copied_by_rows", lambda *a, before=copies._copied_by_rows: seen.append(1) or before(*a)
    )
    view, shape = MIDDLE[name]
    x = view(np.arange(144 * 144).reshape(144, 144).astype(dtype))
    np.testing.assert_array_equal(copies.reshape_block(x, shape), x.reshape(shape))
    np.testing.assert_array_equal(copies.row_major(x, np.dtype("float64")), x.astype("float64"))
    assert x.nbytes < costs.POOLED_FROM
    assert len(seen) == 2


@pytest.mark.parametrize("shape", [(3, 5), (1000, 777), (1 << 20,), (3, 1 << 19), (0, 4), (17, 33, 4097)])
@pytest.mark.parametrize("target", [None, np.float32])
def test_copied(shape, target):
    whole = (np.random.default_rng(0).normal(size=shape) * 9).astype(np.float64)
    for x in (whole, whole.T, whole[::-1], whole[..., ::2], np.broadcast_to(whole, (2, *shape))):
        out, want = copy_dense(x, target), x.astype(target or x.dtype)
        assert out.dtype == want.dtype
        assert out.flags.writeable
        assert not np.shares_memory(out, x)
        np.testing.assert_array_equal(out, want)


def test_copies_are_in_the_pool_and_keep_the_order_of_memory():
    x = np.ones((512, 1024), np.float32)
    holder = [copy_dense(x.T)]
    assert holder[0].strides == x.T.strides
    assert alone(holder, 0)


def test_rows_in_runs():
    rng = np.random.default_rng(0)
    for x in (rng.normal(size=(8, 3)), rng.normal(size=(64, 300, 77)), rng.normal(size=(300, 64, 77)).swapaxes(0, 1)):
        n = len(x)
        ring, shift, shuffle = [*range(1, n), 0], [None, None, *range(n - 2)], [int(i) for i in rng.permutation(n)]
        for positions, most in ((ring, 2), (shift, 2), (shuffle, n), ([3, 3, 2, None], 4), ([], 0)):
            runs = runs_of(positions)
            assert len(runs) <= most
            want = [np.zeros_like(x[0]) if p is None else x[p] for p in positions]
            np.testing.assert_array_equal(rows_in_runs(x, runs), np.array(want).reshape(-1, *x.shape[1:]))


def test_row_major():
    whole = np.random.default_rng(0).normal(size=(600, 777)).astype(np.float32)
    for x in (whole, whole.T, whole[:9, ::3], whole[:1, 0], np.broadcast_to(whole, (3, 600, 777))):
        out = row_major(x)
        assert out.flags.c_contiguous
        assert out.flags.writeable
        assert not np.shares_memory(out, x)
        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int8, np.int64, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", [0, -0.0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 50_000), (3_000_000,)])
def test_one_value_for_all(dtype, value, shape):
    """Also where it consists of one byte, of which -0.0 does not."""
    one = np.asarray(value).astype(dtype)
    out = row_major(np.broadcast_to(one, shape))
    assert out.dtype == dtype
    assert out.shape == shape
    assert out.tobytes() == one.tobytes() * out.size


@pytest.fixture
def streams(monkeypatch):
    """Copies past the cache from a few bytes on; the sizes of those that were."""
    monkeypatch.setattr(costs, "STREAMED_FROM", 1 << 10)
    monkeypatch.setattr(costs, "COPY_PART", 1 << 9)
    monkeypatch.setattr(costs, "COPY_CODE_FROM", 0)
    found, call = [], cast(Any, loops.streamed_call).__wrapped__

    def noted(nbytes):
        found.append(nbytes)
        return call(nbytes)

    monkeypatch.setattr(loops, "streamed_call", noted)
    return found


@pytest.mark.skipif(not available(), reason="no compiler for loops")
@pytest.mark.parametrize("size", [1024, 1025, 1279, 4096, 70001])
def test_what_is_written_past_the_cache_stays_within(streams, size):
    source = np.random.default_rng(0).integers(0, 255, size + 3).astype(np.uint8)
    for begin, given in ((0, source[:size]), (0, source[3:]), (4, source[:size])):  # 4: not at a line of the cache
        whole = np.full(size + 8192, 0xAB, np.uint8)
        start = 4096 - address(whole) % 64 + begin
        copies.fill(whole[start : start + size], given)
        np.testing.assert_array_equal(whole[start : start + size], given)
        assert (whole[:start] == 0xAB).all() and (whole[start + size :] == 0xAB).all()
    assert streams == [size, size]


@pytest.mark.skipif(not available(), reason="no compiler for loops")
def test_rows_in_runs_past_the_cache(streams, monkeypatch):
    monkeypatch.setattr(costs, "COPY_SHARED", 0)
    monkeypatch.setattr(copies, "thread_count", lambda: 2)
    x = np.random.default_rng(0).normal(size=(16, 33, 128))  # from the pool, whose memory begins at a line of the cache
    np.testing.assert_array_equal(rows_in_runs(x, runs_of([*range(8, 16), *range(8)])), np.roll(x, 8, 0))
    assert streams == [x.nbytes // 2] * 2
    np.testing.assert_array_equal(rows_in_runs(x, runs_of([*range(1, 16), None])), np.concatenate([x[1:], 0 * x[:1]]))


@pytest.mark.parametrize("shape", [(50, 4), (1, 300, 50), (3, 200, 9), (9000,), (70, 0)])
def test_taken(shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    for axis, size in enumerate(shape):
        many = 700_000 * size // x.size if x.size else 5  # results of more than 4 MB
        for count in ((), (7,), (0, 3), (2, many // 2)):
            positions = rng.integers(0, max(size, 1), count if size else (0,))
            np.testing.assert_array_equal(take_positions(x, positions, axis), x.take(positions, axis))


def test_taken_several_times_each(monkeypatch):
    """In even steps, up, down or none, and in steps that are even at first."""
    monkeypatch.setattr(costs, "POOLED_FROM", 0)
    x = np.random.default_rng(0).normal(size=(4, 12, 6))
    rows = np.arange(12)
    for places in (rows, rows[::-1], rows[10::-3], rows[4:5], [0, 1, 3], [2, 0, 1]):
        for positions in (np.repeat(places, 3), np.repeat(places, 2)[:-1], np.repeat(places, 2)[1:]):
            np.testing.assert_array_equal(take_positions(x, positions, 1), x.take(positions, 1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joined(monkeypatch, axis):
    """As NumPy has it, whatever the order of dims in memory, and by threads."""
    monkeypatch.setattr(costs, "COPY_SHARED", 1)
    monkeypatch.setattr(costs, "COPY_PART", 1 << 12)
    monkeypatch.setattr(copies, "thread_count", lambda: 3)
    x = np.arange(40 * 50 * 60, dtype=np.float32).reshape(40, 50, 60)
    for order in itertools.permutations(range(3)):
        y = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        parts = [y, y[(slice(None),) * axis + (slice(3, 9),)], y[(slice(None),) * axis + (slice(0, 0),)], x]
        got = copies.concatenate_blocks(parts, axis)
        np.testing.assert_array_equal(got, np.concatenate(parts, axis))
        assert got.strides.index(4) == y.strides.index(4), "lies as the first does"
