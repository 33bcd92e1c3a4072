"""Choices between values: `select_n` and `clamp`."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.ir import ShapedArray
from shardwise.ops.elementwise import selection as select
from tests.ops.elementwise.blocks import BF16, RNG, run

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the executor runs kernels with these off


def test_select_and_clamp_values():
    lax = pytest.importorskip("jax").lax
    f = np.arange(3, dtype=np.float32)
    which = np.array([1, 5, -1], np.int32)
    np.testing.assert_array_equal(
        run(select.select_n_p, which, f, f * 10, f * 100), lax.select_n(which, f, f * 10, f * 100)
    )
    pred = np.array([True, False, True])
    np.testing.assert_array_equal(run(select.select_n_p, pred, f, -f), lax.select_n(pred, f, -f))
    for low, high in ((0.5, 1.5), (2.0, 1.0), (np.nan, 1.0)):
        low, high = np.float32(low), np.float32(high)
        got = run(select.clamp_p, np.asarray(low), f, np.asarray(high))
        np.testing.assert_array_equal(got, lax.clamp(low, f, high))
        assert got.dtype == np.float32


def test_select_broadcasts_more_than_its_function():
    x = np.ones((2, 3), np.float32)
    got = run(select.select_n_p, np.array([[True], [False]]), np.asarray(np.float32(7)), x)
    np.testing.assert_array_equal(got, [[1, 1, 1], [7, 7, 7]])
    t = ShapedArray((2, 3), np.dtype("float32"))
    assert select.select_n_p.type_rule(ShapedArray((2, 1), np.dtype(bool)), ShapedArray((), t.dtype), t) == t


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", BF16, "float32", "complex64", "complex128"], ids=str)
def test_big_blocks_choose_alike(dtype):
    n = 1 << 15
    a, b = RNG.normal(size=n).astype(dtype), RNG.normal(size=n).astype(dtype)
    which = RNG.random(n) < 0.5
    for no, yes in ((a, b), (a[:1], b), (a[0], b), (a[:1], b[:1])):
        got = run(select.select_n_p, which, np.asarray(no), np.asarray(yes))
        want = np.where(which, yes, no)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    wide = run(select.select_n_p, which.reshape(2, -1), a[: n // 2].reshape(1, -1), b.reshape(2, -1))
    np.testing.assert_array_equal(wide, np.where(which.reshape(2, -1), b.reshape(2, -1), a[: n // 2]))


def test_big_blocks_clamp_alike():
    x = RNG.normal(size=1 << 15).astype(np.float32)
    x[7] = np.nan
    for low, high in ((-0.5, 0.5), (0.5, -0.5), (np.nan, 1.0)):
        got = run(select.clamp_p, np.asarray(np.float32(low)), x, np.asarray(np.float32(high)))
        np.testing.assert_array_equal(got, np.minimum(np.maximum(x, np.float32(low)), np.float32(high)))
