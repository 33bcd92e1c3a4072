"""Products of little depth: every layout and size that they take, and nothing written beside the result."""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np
import pytest

from shardwise.runtime.machine.llvm import available
from shardwise.runtime.products import blas, product, shallow
from tests.rounding import assert_einsum

pytestmark = pytest.mark.skipif(not available(), reason="no compiler")

RNG = np.random.default_rng(0)
SIZES = [(100, 97, 40), (300, 64, 128), (2000, 65, 100), (4000, 70, 20)]


def _call(char, left, right, integer, columns=64):
    number = ctypes.c_float if char == "f" else ctypes.c_double
    i, n, p = ctypes.c_int, integer, ctypes.c_void_p
    address = shallow.function(char, left, right, columns, ctypes.sizeof(integer), math.inf)
    return ctypes.CFUNCTYPE(None, i, i, i, n, n, n, number, p, n, p, n, number, p, n)(address)


@pytest.mark.parametrize("integer", [ctypes.c_int32, ctypes.c_int64])
@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("other", [None, shallow.Registers(8, 4), shallow.Registers(2, 4)], ids=str)
def test_every_layout(char, integer, other, monkeypatch):
    """On this processor and as on others, with fewer registers."""
    if other is not None:
        monkeypatch.setattr(shallow, "registers", lambda char, n: other)
    held = shallow.registers(char, 64)
    least = held.rows, held.columns, held.lanes
    for left, right in itertools.product((blas.PLAIN, blas.TRANSPOSED), repeat=2):
        call = _call(char, left, right, integer)
        for m, n, k in (least, tuple(n + 1 for n in least), *SIZES):
            assert shallow.fits(char, left, m, n, k)
            a, b = RNG.normal(size=(m, k)), RNG.normal(size=(k, n))
            x = np.array(a if left == blas.PLAIN else a.T, char, order="C")
            y = np.array(b if right == blas.PLAIN else b.T, char, order="C")
            out = np.full((m + 2, n + 5), 7, char)
            steps = [x.shape[1], y.shape[1], n + 5]
            call(0, 0, 0, m, n, k, 1, x.ctypes.data, steps[0], y.ctypes.data, steps[1], 0, out.ctypes.data, steps[2])
            assert_einsum(out[:m, :n], "ij,jk->ik", a.astype(char), b.astype(char))
            assert (out[m:] == 7).all()
            assert (out[:, n:] == 7).all()


@pytest.mark.parametrize("char", "fd")
def test_fewer_columns_than_a_vector_has_lanes(char):
    """Vectors are as short; what is not finite stays in its row."""
    for left, right in itertools.product((blas.PLAIN, blas.TRANSPOSED), repeat=2):
        for n in (n for n in (4, 8, 10, 12, 15, 16) if shallow.fits(char, left, 37, n, 40)):
            m, k = 37, 40
            a, b = RNG.normal(size=(m, k)).astype(char), RNG.normal(size=(k, n)).astype(char)
            a[3, 5], a[7, 0] = np.nan, np.inf
            x = np.array(a if left == blas.PLAIN else a.T, order="C")
            y = np.array(b if right == blas.PLAIN else b.T, order="C")
            out = np.full((m + 2, n + 5), 7, char)
            call, at = _call(char, left, right, ctypes.c_int64, n), (x.ctypes.data, y.ctypes.data, out.ctypes.data)
            call(0, 0, 0, m, n, k, 1, at[0], x.shape[1], at[1], y.shape[1], 0, at[2], n + 5)
            finite = np.isfinite(a).all(1)
            assert_einsum(out[:m, :n][finite], "ij,jk->ik", a[finite], b)
            assert np.isnan(out[3, :n]).all()
            np.testing.assert_array_equal(out[7, :n], np.inf * np.sign(b[0]))
            assert (out[m:] == 7).all()
            assert (out[:, n:] == 7).all()
    assert not any(shallow.fits(char, blas.PLAIN, 64, n, 64) for n in (1, 2, 3, 5, 6, 7))


def test_sizes_that_do_not_fit():
    held = shallow.registers("f", 64)
    for m, n, k in ((held.rows - 1, 64, 64), (64, held.columns - 1, 64), (64, 64, held.lanes - 1), (64, 64, 5000)):
        assert not shallow.fits("f", blas.PLAIN, m, n, k)
    assert not shallow.fits("F", blas.PLAIN, 64, 64, 64)


@pytest.mark.parametrize("shape", [(200, 60, 130), (64, 128, 200)], ids=str)
def test_products_use_them(shape):
    """Plans of products give the same as NumPy, for whole matrices and batches of them."""
    m, k, n = shape
    a, b = RNG.normal(size=(3, m, k)).astype("f"), RNG.normal(size=(3, k, n)).astype("f")
    for x, y in ((a, b), (a[0], b[0]), (np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2), b)):
        out = np.empty((*x.shape[:-1], n), "f")
        product.product_for(x, y, out)(x, y, out)
        assert_einsum(out, "...ij,...jk->...ik", x, y)
