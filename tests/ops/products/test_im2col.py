"""How convolutions and windows lay out their operands."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.ops.products.im2col import spread_elements

X = np.random.default_rng(0).uniform(-1, 1, (3, 4, 5, 6)).astype(np.float32)


def spread(x: np.ndarray, first: int, pads: list[tuple[int, int]], gaps: list[int], fill: float) -> np.ndarray:
    """The same, element by element."""
    sizes = [
        max((n - 1) * g + 1 + low + high, 0) for n, g, (low, high) in zip(x.shape[first:], gaps, pads, strict=True)
    ]
    out = np.full((*x.shape[:first], *sizes), fill, x.dtype)
    for place in np.ndindex(*x.shape[first:]):
        at = [i * g + low for i, g, (low, _) in zip(place, gaps, pads, strict=True)]
        if all(0 <= a < n for a, n in zip(at, sizes, strict=True)):
            out[(..., *at)] = x[(..., *place)]
    return out


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2), (3, 2, 1, 0)])
@pytest.mark.parametrize(
    ("pads", "gaps"),
    [
        ([(1, 1), (2, 0), (0, 0)], [1, 1, 1]),
        ([(0, 3), (1, 2), (2, 1)], [1, 1, 1]),
        ([(-1, 2), (1, -2), (0, 0)], [1, 1, 1]),
        ([(-4, 1), (2, 2), (0, 0)], [1, 1, 1]),  # no element is left
        ([(9, -9), (0, 0), (1, 0)], [1, 1, 1]),
        ([(-9, 0), (0, 0), (1, 0)], [1, 1, 1]),  # no size is left
        ([(1, 1), (0, 1), (-1, 2)], [2, 1, 3]),
    ],
)
def test_elements_with_fill_around_and_between(
    pads: list[tuple[int, int]], gaps: list[int], order: tuple[int, ...], keep: bool
):
    x = X.transpose(order).copy().transpose(np.argsort(order))  # its dims in any order in memory
    got = spread_elements(x, 1, tuple(pads), tuple(gaps), -0.0, np.dtype(np.float64), keep)
    expected = spread(X, 1, pads, gaps, -0.0)
    assert got.dtype == np.float64 and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    assert np.signbit(got[got == 0]).all()


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("last", [1, 2])
def test_threads_share_what_lies_outermost(last: int, keep: bool):
    """Dims of one element in front, and enough elements for several threads."""
    x = np.random.default_rng(0).uniform(-1, 1, (1, 1, 7, 1, 300, 600, last)).astype(np.float32)
    x = x.transpose(0, 2, 1, 3, 4, 5, 6)
    got = spread_elements(x, 4, ((1, 2), (0, 1), (0, 0)), (1, 1, 1), np.inf, np.dtype(np.float32), keep)
    np.testing.assert_array_equal(got, np.pad(x, ((0, 0),) * 4 + ((1, 2), (0, 1), (0, 0)), constant_values=np.inf))
