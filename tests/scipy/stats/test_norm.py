"""The normal distribution, beside JAX, with derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
from shardwise.scipy.stats import norm

FUNCTIONS = ("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_jax(name):
    pytest.importorskip("jax")
    from jax import grad
    from jax.scipy.stats import norm as theirs

    inner = np.linspace(0.01, 0.99, 12) if name in ("ppf", "isf") else np.linspace(-9, 9, 12)
    x, loc, scale = inner.astype(np.float32).reshape(3, 4), np.float32(0.25), np.array([[0.5], [1], [2]], np.float32)
    np.testing.assert_allclose(
        getattr(norm, name)(x, loc, scale), getattr(theirs, name)(x, loc, scale), rtol=2e-5, atol=5e-7
    )
    np.testing.assert_allclose(getattr(norm, name)(x), getattr(theirs, name)(x), rtol=2e-5, atol=5e-7)
    ours = shardwise.grad(lambda x, s: getattr(norm, name)(x, loc, s).sum(), (0, 1))(x, scale)
    wanted = grad(lambda x, s: getattr(theirs, name)(x, loc, s).sum(), (0, 1))(x, scale)
    for got, want in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=5e-5, atol=1e-6)


def test_arguments():
    assert norm.pdf(0).dtype == np.float32
    assert norm.cdf(np.zeros(3), 1, np.ones((2, 1))).shape == (2, 3)
    with pytest.raises(TypeError, match="complex"):
        norm.pdf(1j)
