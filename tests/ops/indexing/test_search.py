"""Looking values up in a sorted array: machine code finds what NumPy finds."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise.numpy as jnp
from shardwise import jit, lax
from shardwise.ops.indexing import search, search_loop
from shardwise.runtime.machine.llvm import available


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint32, np.int64])
def test_many_values(monkeypatch, dtype, right):
    monkeypatch.setattr(search_loop, "_CHUNK", 100)
    monkeypatch.setattr(search_loop, "_THREADS_FROM", 1)
    monkeypatch.setattr(search_loop, "thread_count", lambda: 3)
    rng = np.random.default_rng(0)
    values = rng.integers(0, 40, 1503).astype(dtype)
    if values.dtype.kind == "f":
        values[::7], values[1::50], values[2::60], values[3::9] = np.nan, np.inf, -np.inf, -0.0
    for size in (1, 2, 3, 7, 8, 9, 64, 1000):
        a = np.sort(rng.choice(values, size))
        got = search_loop.search_sorted(0, a, values, right)
        assert (got is not None) == available()
        if got is not None:
            assert got.dtype == np.int32
            np.testing.assert_array_equal(got, np.searchsorted(a, values, side="right" if right else "left"))


@pytest.mark.parametrize("right", [False, True])
def test_rows_of_several_loop_dims(monkeypatch, right):
    """Rows, and values, that differ along some loop dims or all: one call for all of them."""
    monkeypatch.setattr(search_loop, "_CHUNK", 7)
    rng = np.random.default_rng(1)
    for rows, runs in (((3, 2), (3, 2)), ((3, 1), (1, 2)), ((1, 2), (3, 1)), ((3, 2), (1, 1)), ((1, 1), (3, 2))):
        a = np.sort(rng.integers(0, 9, (*rows, 17)).astype(np.float32))
        v = rng.integers(-1, 11, (*runs, 4, 67)).astype(np.float32)
        a[..., -2:], v[..., ::9] = np.nan, np.nan
        got = search_loop.search_sorted(2, a, v, right)
        assert (got is not None) == available()
        want = search._bisect(2, a, v, right)
        single = np.vectorize(
            lambda a, v: np.searchsorted(a, v, "right" if right else "left"), signature="(n),(m,k)->(m,k)"
        )
        np.testing.assert_array_equal(single(a, v), want)
        if got is not None:
            np.testing.assert_array_equal(got, want)


def test_complex_values_are_looked_up_within_programs_too():
    a = jnp.sort(jnp.array([1 + 2j, 3 - 1j, 1 + 1j, jnp.nan]))
    found = jit(lambda v: lax.fori_loop(0, 2, lambda _, n: n + jnp.searchsorted(a, v), jnp.zeros(3, int)))(a[:3])
    assert found.tolist() == [0, 2, 4]
