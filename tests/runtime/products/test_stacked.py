"""Products of many small matrices, plain, turned and shared ones."""

import itertools

import numpy as np
import pytest

from shardwise.runtime import costs
from shardwise.runtime.machine import available
from shardwise.runtime.products.product import matmul
from shardwise.runtime.products.stacked import stacked_product

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
COUNT = costs.STACKED_FEWEST + 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, k, n", [(3, 3, 3), (2, 2, 1), (1, 4, 1), (4, 3, 5), (7, 2, 13)])
def test_products(dtype, m, k, n):
    rng = np.random.default_rng(0)
    ways = [(0, 0, None), (1, 0, None), (0, 1, None), (1, 1, 0), (0, 0, 1)] if m > 2 else [(0, 0, None)]
    for left, right, shared in ways:
        shapes = (k, m) if left else (m, k), (n, k) if right else (k, n)
        a, b = (rng.normal(size=(1 if shared == i else COUNT, *s)).astype(dtype) for i, s in enumerate(shapes))
        a, b = a.swapaxes(-1, -2) if left else a, b.swapaxes(-1, -2) if right else b
        for turned in (False, True) if m > 2 else (False,):
            out = np.full((COUNT, n, m) if turned else (COUNT, m, n), np.nan, dtype)
            out = out.swapaxes(-1, -2) if turned else out
            rows = right if not turned else not left  # the matrix whose rows would be read has them as columns
            assert (stacked_product(a, b, out) is None) == (rows and max(m, k, n) > costs.STACKED_LARGEST)
            matmul(a, b, out)
            np.testing.assert_allclose(out, np.matmul(a, b, dtype=np.float64), rtol=3e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, k", [(16, 16), (21, 9), (3, 8), (7, 31), (32, 12), (1, 17)])
def test_lines(dtype, m, k):
    """Matrices times vectors, from either side, the matrices plain or turned: by rows of theirs; NaN stays in its row."""
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(COUNT, m, k)).astype(dtype), rng.normal(size=(COUNT, k, 1)).astype(dtype)
    x[3, 0, k - 1], v[4, k - 1], v[5] = np.nan, np.inf, -0.0
    wanted = np.matmul(x, v, dtype=np.float64)
    for matrices in (x, np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)):
        pairs = [(matrices, v), (v.swapaxes(1, 2), matrices.swapaxes(1, 2))]
        for a, b in pairs:
            out = np.full((COUNT, a.shape[1], b.shape[2]), -7, dtype)
            assert stacked_product(a, b, out) is not None or (matrices is not x and m < costs.STACKED_ROWS)
            matmul(a, b, out)
            np.testing.assert_allclose(out.reshape(COUNT, m), wanted[..., 0], rtol=3e-5, atol=1e-5)


SPACED = {
    "columns": lambda x: x[:, :3, :1],
    "squares": lambda x: x[:, 1:4, 2:5],
    "apart": lambda x: x[:, ::3, 1::2],
    "backwards": lambda x: x[::-1, 3::-1, 3::-1],
    "along the last dim": lambda x: np.moveaxis(np.ascontiguousarray(np.moveaxis(x[:, :3, :3], 0, -1)), -1, 0),
    "every second": lambda x: np.repeat(x, 2, 0)[::2, :4, :4],
    "equal rows": lambda x: np.broadcast_to(x[:, :1, :5], (COUNT, 3, 5)),
    "one for all": lambda x: np.broadcast_to(x[:1, 1:3, 1:6], (COUNT, 2, 5)),
    "in two dims": lambda x: x[: COUNT // 3 * 3, :2, :4].reshape(-1, 3, 2, 4),
}


@pytest.mark.parametrize("name", SPACED)
def test_parts_of_larger_matrices(name):
    x = np.random.default_rng(0).normal(size=(COUNT, 8, 8)).astype(np.float32)
    part = SPACED[name](x)
    for a, b in ((part, part.swapaxes(-1, -2)), (part.swapaxes(-1, -2), part)):
        out = np.full((*a.shape[:-1], b.shape[-1]), np.nan, np.float32)
        assert stacked_product(a, b, out) is not None
        matmul(a, b, out)
        np.testing.assert_allclose(out, np.matmul(a, b, dtype=np.float64), rtol=3e-5, atol=1e-5)


UNEVEN = {
    "some of each four": lambda x: x[: 2 * COUNT // 4 * 4].reshape(-1, 4, 8, 8)[:, :3, :3, :3],
    "in the other order": lambda x: x[: COUNT // 5 * 5, :3, :1].reshape(5, -1, 3, 1).swapaxes(0, 1),
    "rows": lambda x: x[: COUNT // 2 * 2, :1, 2:5].reshape(2, -1, 1, 3).swapaxes(0, 1),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_matrices_that_are_not_evenly_spaced_are_copied(name):
    x = np.random.default_rng(0).normal(size=(2 * COUNT, 8, 8)).astype(np.float32)
    part = UNEVEN[name](x)
    dense = np.ascontiguousarray(part)
    for a, b in ((part, dense.swapaxes(-1, -2)), (dense.swapaxes(-1, -2), part), (part, part.swapaxes(-1, -2))):
        out = np.full((*a.shape[:-1], b.shape[-1]), np.nan, np.float32)
        assert stacked_product(a, b, out) is not None
        matmul(a, b, out)
        np.testing.assert_allclose(out, np.matmul(a, b, dtype=np.float64), rtol=3e-5, atol=1e-5)


def test_what_is_left_to_others():
    x = np.ones((COUNT, 3, 3), np.float32)
    many = np.ones((COUNT, 4, 9, 9), np.float32)[:, :3]  # too large to be copied
    assert stacked_product(many, many, np.empty((COUNT, 3, 9, 9), np.float32)) is None
    one = np.ones((1, 3, 3, 3), np.float32)  # for several products each
    assert stacked_product(one, np.ones((COUNT, 3, 3, 3), np.float32), np.empty((COUNT, 3, 3, 3), np.float32)) is None
    for out in (np.empty((COUNT, 4, 3, 3), np.float32)[:, :3], np.empty((3, COUNT, 3, 3), np.float32).swapaxes(0, 1)):
        assert stacked_product(many[..., :3, :3], many[..., :3, :3], out) is None
    for a, b in itertools.product(
        (x[:10], x.astype(np.complex64), np.ones((COUNT, 3, costs.STACKED_MOST + 1), np.float32)), (x,)
    ):
        out = np.empty((len(a), 3, 3), a.dtype)
        if a.shape[-1] == b.shape[-2]:
            assert stacked_product(a, b[: len(a)].astype(a.dtype), out) is None
