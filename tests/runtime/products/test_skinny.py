"""Products of few rows: every layout and size that they take, and nothing written beside the result."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest

from shardwise.runtime import costs
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.products import blas, product, skinny
from tests.rounding import assert_einsum

pytestmark = pytest.mark.skipif(not available(), reason="no compiler")

RNG = np.random.default_rng(0)


def _call(char, left, m, integer):
    number = ctypes.c_float if char == "f" else ctypes.c_double
    i, n, p = ctypes.c_int, integer, ctypes.c_void_p
    address = skinny.function(char, left, m, ctypes.sizeof(integer), math.inf)
    return ctypes.CFUNCTYPE(None, i, i, i, n, n, n, number, p, n, p, n, number, p, n)(address)


@pytest.mark.parametrize("integer", [ctypes.c_int32, ctypes.c_int64])
@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("left", [blas.PLAIN, blas.TRANSPOSED])
@pytest.mark.parametrize("other", [None, skinny.Registers(8, 4, 2), skinny.Registers(2, 3, 3)], ids=str)
def test_every_layout(char, integer, left, other, monkeypatch):
    """On this processor and as on others, with fewer registers; depths that are no multiple of a piece, columns that fill no strip."""
    if other is not None:
        monkeypatch.setattr(skinny, "registers", lambda char: other)
    held = skinny.registers(char)
    strip = held.lanes * held.across
    for m in (1, 2, 5, 6, 7, 13, 64):
        call = _call(char, left, m, integer)
        for n, k in ((strip, 64), (strip + held.lanes, 65), (3 * strip - held.lanes, 300), (held.lanes, 1)):
            a, b = RNG.normal(size=(m, k)), RNG.normal(size=(k, n))
            x = np.array(a if left == blas.PLAIN else a.T, char, order="C")
            y = np.full((k, n + 3), np.nan, char)
            y[:, :n] = b
            out = np.full((m + 2, n + 5), np.nan, char)  # what was there before counts for nothing
            out[m:] = out[:, n:] = 7
            call(0, 0, 0, m, n, k, 1, x.ctypes.data, x.shape[1], y.ctypes.data, n + 3, 0, out.ctypes.data, n + 5)
            assert_einsum(out[:m, :n], "ij,jk->ik", a.astype(char), b.astype(char))
            assert (out[m:] == 7).all()
            assert (out[:, n:] == 7).all()


def test_infinite_and_missing_values_stay_in_their_rows():
    m, k, n = 7, 200, skinny.registers("f").lanes * skinny.registers("f").across
    a, b = RNG.normal(size=(m, k)).astype("f"), np.ones((k, n), "f")
    a[1, 150], a[3, 3], b[100, 5] = np.inf, np.nan, np.nan
    out = np.zeros((m, n), "f")
    call = _call("f", blas.PLAIN, m, ctypes.c_int64)
    call(0, 0, 0, m, n, k, 1, a.ctypes.data, k, b.ctypes.data, n, 0, out.ctypes.data, n)
    missing = np.zeros((m, n), bool)
    missing[3], missing[:, 5] = True, True
    np.testing.assert_array_equal(np.isnan(out), missing)
    np.testing.assert_array_equal(out[1, :5], np.inf)


def test_sizes_that_do_not_fit():
    held = skinny.registers("f")
    assert skinny.fits("f", blas.PLAIN, 16, 1024, 1024, 1024)
    assert not skinny.fits("f", blas.TRANSPOSED, 16, 1024, 1024, 1024)
    assert not skinny.fits("F", blas.PLAIN, 16, 1024, 1024, 1024)
    for m, n, k in (
        (1, 4096, 4096),
        (costs.SKINNY_MOST + 1, 1024, 1024),
        (16, 1024 + 1, 1024),
        (16, held.lanes, 1 << 14),
        (16, 1 << 12, costs.SKINNY_DEPTH - 1),
        (2, 512, 512),
        (64, 256, 256),
    ):
        assert not skinny.fits("f", blas.PLAIN, m, n, k, n), (m, n, k)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("m", "k", "n"), [(13, 1024, 1024), (16, 700, 512), (64, 512, 4096), (33, 1000, 192)])
def test_products_use_them(monkeypatch, m, k, n, threads):
    """Plans of products give the same with any number of threads, for whole matrices, batches of them, and transposed ones."""
    rng, met = np.random.default_rng(3), []
    before = skinny.function
    monkeypatch.setattr(skinny, "function", lambda *args: met.append(args) or before(*args))
    a, b = rng.normal(size=(2, m, k)).astype("f"), rng.normal(size=(2, k, n)).astype("f")
    turned = np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)
    for x, y in ((a[0], b[0]), (a, b), (a, b[0]), (turned, b)):
        out = np.empty((*x.shape[:-1], n), "f")
        product.product_for(x, y, out, threads)(x, y, out)
        assert_einsum(out, "...ij,...jk->...ik", x, y)
        alone = np.empty_like(out)
        product.product_for(x, y, alone, 1)(x, y, alone)
        np.testing.assert_array_equal(out, alone)
    assert len(met) == 8
    flipped = np.empty((n, m), "f").T  # the result lies transposed: few columns of the library's product
    product.product_for(a[0], b[0], flipped, threads)(a[0], b[0], flipped)
    assert_einsum(flipped, "ij,jk->ik", a[0], b[0])


@pytest.mark.parametrize(
    ("turned", "sizes", "made"),
    [
        ((False, False), (16, 4096, 4096), ["function"]),
        ((True, False), (64, 2048, 2048), ["function"]),
        ((False, False), (4, 512, 1024), []),  # so little that a draft may do
        ((False, False), (16, 4095, 4096), ["library"]),  # columns do not fill registers
        ((False, True), (17, 4096, 4096), ["library"]),
        ((False, False), (512, 4096, 4096), ["library"]),
    ],
)
def test_what_is_made_before_the_first_call(turned, sizes, made, monkeypatch):
    if blas.convention() is None:
        pytest.skip("NumPy's products serve")
    found = []
    monkeypatch.setattr(skinny, "start_thread", lambda work, *args: work(*args))
    monkeypatch.setattr(skinny, "function", lambda *args, ahead: found.append("function"))
    monkeypatch.setattr(blas, "prepare", lambda: found.append("library"))
    prepare: Any = skinny.prepare
    prepare.cache_clear()
    product.expect("f", turned, *sizes)
    prepare.cache_clear()
    assert found == made
