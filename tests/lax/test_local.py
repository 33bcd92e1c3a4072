"""Convolutions with a kernel at each place, beside one sum per place."""

from __future__ import annotations

import numpy as np

import shardwise as sw
from shardwise import lax
from tests.rounding import assert_normwise

RNG = np.random.default_rng(0)


def test_each_place_has_its_kernel() -> None:
    x, w = RNG.standard_normal((2, 3, 6, 5)), RNG.standard_normal((4, 3 * 6, 3, 2))
    expected = np.zeros((2, 4, 3, 2))
    for i in range(3):
        for j in range(2):
            window = x[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 3].reshape(2, 18)
            expected[:, :, i, j] = window @ w[:, :, i, j].T
    conv = lambda x, w: lax.conv_general_dilated_local(x, w, (2, 2), "VALID", (2, 3))  # noqa: E731
    assert_normwise(conv(x, w), expected, 2e-6)
    many = sw.vmap(conv, (0, None))(np.stack([x, -x]), w)
    assert_normwise(many, np.stack([expected, -expected]), 2e-6)
    last = ("NHWC", "HWIO", "NHWC")
    by_channels = lambda x, w: lax.conv_general_dilated_local(x, w, (2, 2), "VALID", (2, 3), dimension_numbers=last)  # noqa: E731
    got = sw.jit(by_channels)(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0))
    assert_normwise(got, expected.transpose(0, 2, 3, 1), 2e-6)
    slope = sw.grad(lambda w: (conv(x, w) * expected).sum())(w)
    np.testing.assert_allclose(float((slope * w).sum()), (expected**2).sum(), rtol=2e-7)
