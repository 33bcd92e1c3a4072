"""Convolutions with a kernel at each place, beside one sum per place."""

from __future__ import annotations

import numpy as np

import shardwise as sw
from shardwise import lax

RNG = np.random.default_rng(0)


def test_each_place_has_its_kernel() -> None:
    x, w = RNG.standard_normal((2, 3, 6, 5)), RNG.standard_normal((4, 3 * 6, 3, 2))
    expected = np.zeros((2, 4, 3, 2))
    for i in range(3):
        for j in range(2):
            window = x[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 3].reshape(2, 18)
            expected[:, :, i, j] = window @ w[:, :, i, j].T
    conv = lambda x, w: lax.conv_general_dilated_local(x, w, (2, 2), "VALID", (2, 3))  # noqa: E731
    np.testing.assert_allclose(np.asarray(conv(x, w)), expected, rtol=1e-4, atol=1e-5)
    many = sw.vmap(conv, (0, None))(np.stack([x, -x]), w)
    np.testing.assert_allclose(np.asarray(many), np.stack([expected, -expected]), rtol=1e-4, atol=1e-5)
    last = ("NHWC", "HWIO", "NHWC")
    by_channels = lambda x, w: lax.conv_general_dilated_local(x, w, (2, 2), "VALID", (2, 3), dimension_numbers=last)  # noqa: E731
    got = sw.jit(by_channels)(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0))
    np.testing.assert_allclose(np.asarray(got), expected.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)
    slope = sw.grad(lambda w: (conv(x, w) * expected).sum())(w)
    np.testing.assert_allclose(float((slope * w).sum()), (expected**2).sum(), rtol=1e-4)
