"""The greatest elements of rows by machine code: the same as a full sort of the ranks, for every type and order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shardwise.ops.indexing import row_selection
from shardwise.ops.indexing.sorting import descending_ranks, top_k_p
from shardwise.runtime.env import SINGLE, Env
from shardwise.runtime.machine import llvm

pytestmark = pytest.mark.skipif(not llvm.available(), reason="nothing can be compiled here")

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32"]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def any_bits(rng, shape, dtype):
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8).view(dtype)[..., 0]


def least(rng, shape, dtype):
    return np.full(
        shape, np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf if dtype.kind != "b" else False
    ).astype(dtype)


MAKERS = {
    "any bits": any_bits,
    "ascending": lambda rng, shape, dtype: np.sort(rng.normal(size=shape) * 100, -1).astype(np.int32).astype(dtype),
    "few values": lambda rng, shape, dtype: rng.integers(0, 4, shape).astype(dtype),
    "the least of all": least,
}


def expected(x, k):
    order = descending_ranks(x).argsort(axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order


def test_rows_that_lie_apart():
    """As the parts of a split dim have them, and others."""
    whole = np.random.default_rng(0).normal(size=(6, 8, 5, 40)).astype(np.float32)
    views = {
        "parts of a split dim": whole.reshape(6, 1600).reshape(6, 8, 200).swapaxes(0, 1),
        "every other row": whole[:, ::2],
        "backwards": whole[::-1, 2:],
        "the same rows": np.broadcast_to(whole[0, 0], (7, 3, 5, 40)),
    }
    for x in views.values():
        assert row_selection.row_steps(x) is not None
        for got, want in zip(row_selection.greatest(x, 3), expected(x, 3), strict=True):
            np.testing.assert_array_equal(got, want)
    for x in (whole[..., ::2], whole[:, 1:7, 1:4], whole.swapaxes(2, 3)):
        assert row_selection.row_steps(x) is None


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("name", DTYPES)
def test_greatest(name, make):
    rng, dtype = np.random.default_rng(0), dtype_of(name)
    for n in (1, 9, 16, 100, 513):
        x = np.ascontiguousarray(MAKERS[make](rng, (3, n), dtype))
        for k in (1, 3, 16, 17, 128):
            if k <= n:
                got, at = row_selection.greatest(x, k)
                want, where = expected(x, k)
                np.testing.assert_array_equal(at, where)
                assert at.dtype == np.int32
                assert got.dtype == dtype
                assert got.tobytes() == want.tobytes()


def test_threads_share_the_rows():
    x = np.random.default_rng(0).normal(size=(500, 200)).astype(np.float32)
    alone, shared = (row_selection.greatest(x, 10, threads) for threads in (1, 3))
    for one, other, want in zip(alone, shared, expected(x, 10), strict=True):
        np.testing.assert_array_equal(one, want)
        np.testing.assert_array_equal(other, want)


@pytest.mark.parametrize("axis", [0, 1])
def test_top_k_takes_it_where_it_pays(axis, monkeypatch):
    calls = []
    greatest = row_selection.greatest
    monkeypatch.setattr(
        row_selection, "greatest", lambda *args, **named: calls.append(args) or greatest(*args, **named)
    )
    x = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32)
    values, places = top_k_p.block_kernel(SINGLE, x, k=5, axis=axis)
    want, where = (np.moveaxis(r, -1, axis) for r in expected(np.ascontiguousarray(np.moveaxis(x, axis, -1)), 5))
    np.testing.assert_array_equal(values, want)
    np.testing.assert_array_equal(places, where)
    assert calls
    calls.clear()
    top_k_p.block_kernel(SINGLE, x, k=150, axis=axis)  # of more elements the list would be too long
    top_k_p.block_kernel(SINGLE, x.astype(np.float64), k=5, axis=axis)
    top_k_p.block_kernel(SINGLE, x[:1, :50], k=5, axis=1)
    assert not calls


def test_blocks_of_devices():
    x = np.random.default_rng(0).normal(size=(2, 1, 60, 40)).astype(np.float32)
    values, places = top_k_p.block_kernel(Env(("x", "y"), (2, 3)), x, k=4, axis=1)
    want, where = expected(x, 4)
    np.testing.assert_array_equal(values, want)
    np.testing.assert_array_equal(places, where)
