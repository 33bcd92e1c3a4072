"""Products of few rows or columns with a large matrix: every layout and size, and nothing written beside the result."""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import Any

import numpy as np
import pytest

from shardwise.runtime.machine.llvm import available
from shardwise.runtime.products import blas, layers, lines, product
from tests.rounding import assert_einsum

pytestmark = pytest.mark.skipif(not available(), reason="no compiler")

RNG = np.random.default_rng(0)
FLAGS = blas.PLAIN, blas.TRANSPOSED


def _check_call(make, char, integer, flags, sizes):
    """The function's result, which other numbers surround, and which holds what was there before in no way."""
    (left, right), (m, n, k) = flags, sizes
    number = ctypes.c_float if char == "f" else ctypes.c_double
    i, size, p = ctypes.c_int, integer, ctypes.c_void_p
    call = ctypes.CFUNCTYPE(None, i, i, i, size, size, size, number, p, size, p, size, number, p, size)(
        make(ctypes.sizeof(integer))
    )
    a, b = RNG.normal(size=(m, k)).astype(char), RNG.normal(size=(k, n)).astype(char)
    x, y = (_spaced(z if flag == blas.PLAIN else z.T) for z, flag in ((a, left), (b, right)))
    out = np.full((m + 2, n + 5), np.nan, char)
    out[m:] = out[:, n:] = 7
    call(101, left, right, m, n, k, 1, x.ctypes.data, x.shape[1], y.ctypes.data, y.shape[1], 0, out.ctypes.data, n + 5)
    assert_einsum(out[:m, :n], "ij,jk->ik", a, b)
    assert (out[m:] == 7).all()
    assert (out[:, n:] == 7).all()


def _spaced(x):
    """A copy, NaN between its lines."""
    out = np.full((x.shape[0], x.shape[1] + 3), np.nan, x.dtype)
    out[:, :-3] = x
    return out


@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("left", FLAGS)
@pytest.mark.parametrize("m", [1, 2, 3, 7, 12])
def test_layers(char, left, m):
    for n, k, integer in ((1, 1, ctypes.c_int32), (67, 9, ctypes.c_int64), (2100, 37, ctypes.c_int64)):
        make = lambda size: layers.function(char, left, m, size, math.inf)  # noqa: E731
        _check_call(make, char, integer, (left, blas.PLAIN), (m, n, k))


@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("other", FLAGS)
@pytest.mark.parametrize("few", [1, 2, 5, 7, 16])
def test_lines(char, other, few):
    """Depths of less than a vector, of no whole vectors, and of several pieces; few rows of one operand, and few columns of the other."""
    for many, k, integer in (
        (16, 3, ctypes.c_int32),
        (17, 8, ctypes.c_int64),
        (29, 2 * lines._DEEP + 5, ctypes.c_int64),
    ):
        for sizes, flags in (((many, few, k), (blas.PLAIN, other)), ((few, many, k), (other, blas.TRANSPOSED))):
            make = lambda size: lines.function(char, *flags, *sizes, size, math.inf)  # noqa: B023, E731
            _check_call(make, char, integer, flags, sizes)


@pytest.mark.parametrize(
    ("sizes", "module"), [((3, 70_000, 4), layers), ((3, 3000, 200), lines), ((2000, 5, 101), lines)], ids=str
)
@pytest.mark.parametrize("turned", [False, True])
def test_values_that_are_not_finite_stay_in_their_sums(sizes, module, turned):
    m, n, k = sizes
    a, b = RNG.normal(size=(m, k)).astype("f"), np.abs(RNG.normal(size=(k, n))).astype("f")
    a[1, k - 1], a[2, 0], b[1, 4] = np.inf, np.nan, np.nan
    if module is lines and n > m:
        b = np.asfortranarray(b)
    out = np.empty((n, m), "f").T if turned else np.empty((m, n), "f")
    product.product_for(a, b, out)(a, b, out)
    missing = np.zeros((m, n), bool)
    missing[2], missing[:, 4] = True, True
    np.testing.assert_array_equal(np.isnan(out), missing)
    np.testing.assert_array_equal(out[1, :4], np.inf)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("sizes", "lies", "module"),
    [
        ((2, 1000, 300), "nn", layers),
        ((8, 700, 100), "tn", layers),
        ((13, 700, 100), "nn", None),
        ((4, 63, 2000), "nn", None),  # columns fill no vectors
        ((2, 1000, 300), "nt", lines),
        ((16, 200, 1500), "tt", lines),
        ((1000, 3, 300), "nn", lines),
        ((1000, 3, 300), "nt", lines),
        ((1000, 3, 300), "tn", None),
        ((1000, 17, 300), "nn", None),
        ((1000, 8, 64), "nn", None),  # so short that lanes are added up as long as products are made
        ((8, 8, 5000), "nn", None),  # the few columns would take as long to lay out
        ((5000, 1, 9), "nn", lines),
        ((1, 5000, 9), "nt", lines),
        ((5000, 1, 200), "nn", None),  # the library reads as fast
    ],
    ids=str,
)
def test_which_products_use_them(sizes, lies, module, threads, monkeypatch):
    """Whole products and batches; the result is the same with any number of threads."""
    met = []
    for each in (layers, lines):
        before = each.function
        monkeypatch.setattr(each, "function", lambda *args, e=each, f=before: met.append(e) or f(*args))
    m, n, k = sizes
    rng = np.random.default_rng(3)
    shapes = ((m, k), (k, n))
    a, b = (
        rng.normal(size=(2, *s)) if how == "n" else rng.normal(size=(2, *s[::-1])).swapaxes(1, 2)
        for s, how in zip(shapes, lies, strict=True)
    )
    a, b = a.astype("f", order="K"), b.astype("f", order="K")
    for x, y in ((a[0], b[0]), (a, b), (a, b[0])):
        out, alone = np.empty((*x.shape[:-1], n), "f"), np.empty((*x.shape[:-1], n), "f")
        product.product_for(x, y, out, threads)(x, y, out)
        assert_einsum(out, "...ij,...jk->...ik", x, y)
        product.product_for(x, y, alone, 1)(x, y, alone)
        assert module is None or (out == alone).all()
    assert set(met) == ({module} if module else set())


def test_results_of_all_layouts():
    for m, n, k in ((2, 65, 2049), (65, 2, 2049), (7, 300, 130), (300, 7, 130)):
        a, b = RNG.normal(size=(m, k)), RNG.normal(size=(k, n))
        for x, y, out in itertools.product(
            (a, np.asfortranarray(a)), (b, np.asfortranarray(b)), (np.empty((m, n)), np.empty((n, m)).T)
        ):
            product.product_for(x, y, out)(x, y, out)
            assert_einsum(out, "ij,jk->ik", a, b)


def test_small_products_by_several_threads():
    a, b, out = np.ones((3, 4), "f"), np.ones((4, 5), "f"), np.empty((3, 5), "f")
    product.product_for(a, b, out, 2)(a, b, out)
    np.testing.assert_array_equal(out, 4)


@pytest.mark.parametrize(("turned", "sizes"), [((False, False), (4, 8192, 4096)), ((False, True), (16, 4096, 4096))])
def test_large_products_are_prepared(turned, sizes, monkeypatch):
    if blas.convention() is None:
        pytest.skip("NumPy's products serve")
    met = []
    for each in (layers, lines):
        monkeypatch.setattr(each, "function", lambda *args, e=each: met.append(e) or 0)
    monkeypatch.setattr(product, "start_thread", lambda work: work())
    prepare: Any = product._prepare_few
    prepare.cache_clear()
    product.expect("f", turned, *sizes)
    product.expect("f", turned, 4, 512, 1024)  # so little that a draft may do
    prepare.cache_clear()
    assert met == [lines if turned[1] else layers]
