"""Products cut into tasks: every layout, batch and type, whoever computes them and with any number of threads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from shardwise.runtime import costs
from shardwise.runtime.machine.threads import thread_count
from shardwise.runtime.products import blas, product
from tests.rounding import assert_einsum

RNG = np.random.default_rng(0)
SHAPES = [
    ((), (), 100, 90, 80),
    ((), (), 130, 100, 213),
    ((), (), 600, 300, 1),
    ((), (), 1, 300, 600),
    ((5,), (5,), 70, 66, 71),
    ((4, 1), (1, 3), 80, 64, 70),
    ((20,), (20,), 64, 70, 64),
    ((3,), (), 200, 200, 1),
    ((), (3,), 1, 200, 200),
    ((70, 2), (70, 1), 8, 8, 8),
    ((2,), (2,), 1, 20000, 1),
]


def laid(x: np.ndarray, how: str) -> np.ndarray:
    """`x` as it is, stored transposed, or with gaps between its rows."""
    if how == "transposed":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if how == "gaps":
        wide = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
        wide[..., : x.shape[-1]] = x
        return wide[..., : x.shape[-1]]
    return x


def values(shape: tuple[int, ...], char: str) -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x * (1 + 2j) if char in "FD" else x).astype(char)


def check(char: str, shapes: Any, layouts: Any) -> None:
    ba, bb, m, k, n = shapes
    a, b = values((*ba, m, k), char), values((*bb, k, n), char)
    out_shape = np.matmul(a, b).shape
    for left, right, result in layouts:
        x, y = laid(a, left), laid(b, right)
        out = laid(np.full(out_shape, 9, char), result)
        product.product_for(x, y, out)(x, y, out)
        assert_einsum(out, "...ij,...jk->...ik", a, b)


@pytest.fixture(params=["one", "three", "three without a compiler"])
def threads(request, monkeypatch):
    """Plans are made for so many threads, from little work on."""
    monkeypatch.setattr(product, "product_threads", lambda: 1 if request.param == "one" else 3)
    for name in ("PRODUCT_SHARED", "LINE_SHARED", "PRODUCT_TASK"):
        monkeypatch.setattr(costs, name, 1 << 14)
    if "without" in request.param:
        monkeypatch.setattr(product, "task_walker", lambda *what: None)


@pytest.mark.parametrize("char", "fdFD")
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_layouts(threads, char, shapes):
    pairs = itertools.product(["plain", "transposed", "gaps"], repeat=2)
    check(char, shapes, [(*pair, ["plain", "transposed"][i % 2]) for i, pair in enumerate(pairs)])


def test_without_a_library_of_our_own(monkeypatch):
    monkeypatch.setattr(blas, "library", lambda: None)
    for shapes in SHAPES:
        check("f", shapes, [("plain", "transposed", "plain")])


def test_odd_arrays_are_numpys():
    a = np.asarray(RNG.normal(size=(200, 200)), ">f4")
    out = np.empty((200, 200), ">f4")
    product.product_for(a, a, out)(a, a, out)
    assert_einsum(out, "ij,jk->ik", a, a)
    strided = values((200, 400), "f")[:, ::2]
    out = np.empty((200, 200), "f")
    product.product_for(strided, strided, out)(strided, strided, out)
    assert_einsum(out, "ij,jk->ik", strided, strided)
    backwards = values((300,), "f")[::-1, None]
    out, a = np.empty((300, 1), "f"), values((300, 300), "f")
    product.product_for(a, backwards, out)(a, backwards, out)
    assert_einsum(out, "ij,jk->ik", a, backwards)
    for m, k, n in ((0, 5, 5), (5, 0, 5), (5, 5, 0)):
        out = np.full((m, n), 3.0, "f")
        product.product_for(np.ones((m, k), "f"), np.ones((k, n), "f"), out)(
            np.ones((m, k), "f"), np.ones((k, n), "f"), out
        )
        assert not out.size or (out == 0).all()


def test_integers_are_numpys():
    a = RNG.integers(-9, 9, (100, 100))
    out = np.empty_like(a)
    product.product_for(a, a, out)(a, a, out)
    np.testing.assert_array_equal(out, a @ a)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (100, 3), (16, 4), (17, 2), (1000, 7)])
def test_parts_cover_all(size, count):
    parts = product._parts(size, count)
    assert [i for part in parts for i in part] == list(range(size))
    assert len(parts) <= count


@pytest.mark.parametrize("pieces", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("shape", [(64, 64), (2048, 2048), (100000, 16), (16, 100000), (300, 300)])
def test_cuts_are_not_too_fine(shape, pieces):
    down, across = product._cuts(shape[0], shape[1], pieces)
    assert 1 <= down * across <= 2 * pieces
    assert down == 1 or shape[0] // down >= 64
    assert across == 1 or shape[1] // across >= 64


@pytest.mark.parametrize(
    ("shape", "cuts"),
    [((512, 256), (2, 1)), ((512, 512), (2, 1)), ((256, 512), (1, 2)), ((64, 4096), (1, 2)), ((4096, 64), (2, 1))],
)
def test_the_longer_side_is_cut(shape, cuts):
    assert product._cuts(shape[0], shape[1], 2) == cuts


def test_threads_as_the_environment_says(monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    most = thread_count()
    assert product.product_threads() == most
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert product.product_threads() == 1
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4096")
    assert product.product_threads() == most
    assert thread_count() == 1
