"""Rows taken from tables and combined with them in machine code, at positions of any type."""

import itertools

import numpy as np
import pytest

import shardwise as sw
from shardwise.ops.indexing import row_loops, row_places
from shardwise.runtime.machine.llvm import available

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.uint8, np.complex128])
@pytest.mark.parametrize("position", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("order", [(0, 1), (2, 0, 1)])
def test_positions_of_several_numbers(monkeypatch, dtype, position, order):
    """Each number has its own bounds, and the numbers may be for dims in any order."""
    monkeypatch.setattr(row_loops, "FEWEST", 1)
    monkeypatch.setattr(row_loops, "COMBINED_FEWEST", 1)
    monkeypatch.setattr(row_loops, "CHUNK", 64)
    rng = np.random.default_rng(0)
    shape = (5, 7, 3)[: len(order)]
    grid = row_places.PositionDims.of(shape, order)
    for columns, wrap, fill in itertools.product((1, 6), (True, False), (None, 7)):
        array = rng.integers(0, 99, (*shape, columns)).astype(dtype)
        at = rng.integers(0 if np.iinfo(position).min == 0 else -9, 10, (301, len(order))).astype(position)
        at[:2] = [[np.iinfo(position).max], [np.iinfo(position).min]]
        wide = at.astype(np.int64)
        sizes = np.array([shape[d] for d in order])
        wide = np.where(wrap & (wide < 0), wide + sizes, wide)
        inside = np.all((wide >= 0) & (wide < sizes), axis=1)
        near = np.clip(wide, 0, sizes - 1)
        places = tuple(near[:, order.index(d)] for d in range(len(order)))
        table = array.reshape(-1, columns)
        got = row_loops.taken_rows(table, at, fill, grid=grid, wrap=wrap)
        want = array[places]
        if fill is not None:
            want = np.where(inside[:, None], want, np.asarray(fill, dtype))
        assert got is not None
        np.testing.assert_array_equal(got, want)
        if dtype == np.complex128:
            continue
        into, rows = np.zeros_like(table), rng.integers(0, 9, (301, columns)).astype(dtype)
        assert row_loops.combined_rows(into, at, rows, np.add, grid=grid, wrap=wrap, clip=fill is None)
        sums = np.zeros_like(array)
        for i in range(301):
            if fill is None or inside[i]:
                sums[tuple(p[i] for p in places)] += rows[i]
        np.testing.assert_array_equal(into.reshape(array.shape), sums)


@pytest.mark.parametrize("dims", [(0, 1), (0, 1, 2)])
def test_whole_rows_at_positions_of_several_numbers(dims):
    """Steps are counted in rows of the table, however many columns these have."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((4, 8, 4, 64)).astype(np.float32)
    position = tuple(rng.integers(0, table.shape[d], 128).astype(np.int32) for d in dims)
    rows = rng.standard_normal((128, *table.shape[len(dims) :])).astype(np.float32)
    expected = table.copy()
    np.add.at(expected, position, rows)
    np.testing.assert_allclose(sw.numpy.asarray(table).at[position].add(rows), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(sw.numpy.asarray(table)[position], table[position])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("columns", [1, 7, 130, 300])
def test_rows_however_they_lie_by_any_threads(monkeypatch, threads, columns):
    """Threads divide the rows of the table, or the columns of few rows, or many short rows; no element is combined twice."""
    monkeypatch.setattr(row_loops, "FEWEST", 1)
    monkeypatch.setattr(row_loops, "COMBINED_FEWEST", 1)
    monkeypatch.setattr(row_loops, "THREADS_FROM", 1)
    monkeypatch.setattr(row_loops, "thread_count", lambda: threads)
    rng = np.random.default_rng(0)
    for count, ufunc in itertools.product((1, 5, 601), (np.add, np.maximum, None)):
        wide = rng.integers(-9, 9, (count, 2 * columns)).astype(np.float32)
        at = rng.integers(0, 9, count)  # 7 and 8 are not in the table
        for rows in (wide[:, columns:], wide[:, ::2], wide[::-1, :columns], wide[:1, :columns], wide[:1, :1]):
            rows = np.broadcast_to(rows, (count, columns))
            got = rng.integers(-9, 9, (7, columns)).astype(np.float32)
            want = got.copy()
            assert row_loops.combined_rows(got, at, rows, ufunc)
            for i in range(count):
                if at[i] < 7:
                    want[at[i]] = rows[i] if ufunc is None else ufunc(want[at[i]], rows[i])
            np.testing.assert_array_equal(got, want)
