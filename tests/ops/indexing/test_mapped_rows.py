"""Windows at positions that differ along loop dims are those that NumPy's indexing gives."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.ops.indexing import mapped_rows as rows
from shardwise.ops.indexing import row_loops, windows
from shardwise.runtime.machine import available

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for loops")
RNG = np.random.default_rng(0)


def starts(high, *shape):
    return RNG.integers(0, high, shape)


# Shape of the operand, its loop dims, starts by dim, sizes of windows, aligned dims, loops and batch.
CASES = {
    "elements of a row per loop": ((5, 7), 1, {0: starts(7, 5)}, (1,), (), (5,)),
    "a table that loops share": ((1, 7), 1, {0: starts(7, 5)}, (1,), (), (5,)),
    "starts that loops share": ((5, 7), 1, {0: starts(7, 1)}, (1,), (), (1,)),
    "two loops": ((3, 1, 7), 2, {0: starts(7, 1, 4)}, (1,), (), (1, 4)),
    "windows": ((5, 9), 1, {0: starts(6, 5)}, (4,), (), (5,)),
    "windows of two dims": ((1, 8, 9), 1, {0: starts(6, 5), 1: starts(5, 5)}, (3, 5), (), (5,)),
    "windows of whole dims": ((2, 4, 6, 3), 1, {1: starts(4, 2)}, (4, 3, 3), (), (2,)),
    "of one of two dims": ((2, 4, 6), 1, {0: starts(4, 2), 1: starts(6, 2)}, (1, 1), (), (2,)),
    "aligned dims": ((5, 7, 3), 0, {1: starts(7, 5, 6)}, (1, 1, 3), ((0, 0),), (5, 6)),
    "aligned dims behind": ((7, 5), 0, {0: starts(6, 5, 4)}, (2, 1), ((1, 0),), (5, 4)),
    "two aligned dims": ((2, 5, 7), 1, {1: starts(7, 2, 3, 5)}, (1, 1), ((0, 1),), (2, 3, 5)),
}


@pytest.fixture(autouse=True)
def of_few_elements(monkeypatch):
    for module in (rows, row_loops):
        monkeypatch.setattr(module, "FEWEST", 1)
        monkeypatch.setattr(module, "COMBINED_FEWEST", 1)


@pytest.mark.parametrize("name", CASES)
def test_windows(monkeypatch, name):
    shape, lead, at, sizes, pairs, index_shape = CASES[name]
    operand = RNG.normal(size=shape).astype(np.float32)
    got = rows.mapped_rows(operand, lead, at, sizes, index_shape, pairs)
    monkeypatch.setattr(windows, "mapped_rows", lambda *given: None)
    want = windows.read_windows(operand, lead, at, sizes, pairs, index_shape)
    if got is None:
        assert name == "aligned dims"  # rows, which NumPy takes as fast
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
@pytest.mark.parametrize("apart", [1, 2])
def test_windows_of_other_arrays_that_lie_alike(dtype, apart):
    """What is known of one call serves the next one, with its own operand and starts."""
    for _ in range(3):
        x = RNG.normal(size=(9, 20)).astype(np.float32)
        i = RNG.integers(-25, 25, 9 * apart).astype(dtype)[::apart]
        got = rows.mapped_rows(x, 1, {0: i}, (6,), (9,), wrap=True)
        first = np.clip(np.where(i < 0, i.astype(int) + 20, i), 0, 14)
        np.testing.assert_array_equal(got, [row[a : a + 6] for row, a in zip(x, first, strict=True)])


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (4, 2), (5, 3)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
def test_starts_out_of_bounds(dtype, sizes):
    x = RNG.normal(size=(6, 5, 4)).astype(np.float32)
    i = np.array([0, 3, 4, 100, 5, 2] if dtype[0] == "u" else [0, -1, -7, 100, 5, -128], dtype)
    with sw.enable_x64(dtype == "int64"):
        got = sw.vmap(lambda x, i: lax.dynamic_slice(x, (i, i), sizes))(x, i)
    for row, start, window in zip(x, i.tolist(), np.asarray(got), strict=True):
        a, b = (min(max(start + n if start < 0 else start, 0), n - k) for n, k in zip(row.shape, sizes, strict=True))
        np.testing.assert_array_equal(window, row[a : a + sizes[0], b : b + sizes[1]])


@pytest.mark.parametrize("how, ufunc", [("add", np.add), ("min", np.minimum), ("set", None)])
@pytest.mark.parametrize("axes", [(0, 0, 0), (None, 0, 0), (0, None, 0), (0, 0, None)])
def test_rows_put_and_combined(how, ufunc, axes):
    given = RNG.normal(size=(4, 7, 2)).astype(np.float32), RNG.integers(-7, 9, (4, 12)), RNG.normal(size=(4, 12, 2))
    given = [x if axis == 0 else x[0] for x, axis in zip(given, axes, strict=True)]
    got = sw.jit(sw.vmap(lambda x, i, v: getattr(x.at[i], how)(v.astype(x.dtype), mode="drop"), axes))(*given)
    for k in range(4):
        x, i, v = (np.array(x[k] if axis == 0 else x) for x, axis in zip(given, axes, strict=True))
        i = np.where(i < 0, i + 7, i)
        for at, row in zip(i, v.astype(np.float32), strict=True):
            if at < 7:
                x[at] = row if ufunc is None else ufunc(x[at], row)
        np.testing.assert_array_equal(got[k], x)


@pytest.mark.parametrize("how", ["add", "set", "max"])
@pytest.mark.parametrize("donated", [False, True])
def test_split_columns_are_columns(monkeypatch, how, donated):
    """Rows at the same positions on all devices, whose columns are split: one loop goes through whole rows."""
    seen = []
    combiner = rows.row_combiner
    monkeypatch.setattr(rows, "row_combiner", lambda table, *a, **k: seen.append(table) or combiner(table, *a, **k))
    x, v = (RNG.integers(0, 99, (n, 3, 160)).astype(np.float32) for n in (7, 50))
    mesh = sw.make_mesh((2, 4), ("y", "x"))
    at = RNG.integers(-7, 9, 50).astype(np.int32)
    split = sw.NamedSharding(mesh, sw.sharding.PartitionSpec(None, None, ("y", "x")))
    given = sw.device_put(np.array(x), split), sw.device_put(v, split)
    f = sw.jit(lambda x, v: getattr(x.at[at], how)(v, mode="drop"), donate_argnums=(0,) if donated else ())
    got = np.asarray(f(*given))
    assert seen == [(7, 480)]
    for i, row in zip(np.where(at < 0, at + 7, at), v, strict=True):
        if i < 7:
            x[i] = row if how == "set" else x[i] + row if how == "add" else np.maximum(x[i], row)
    np.testing.assert_array_equal(got, x)
