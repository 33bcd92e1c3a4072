"""Products of a few rows by matrices beyond the nearest cache, within loops: all rows and columns, whatever divides them."""

import numpy as np
import pytest

import shardwise as jax
from shardwise import lax
from shardwise.runtime import costs


@pytest.mark.parametrize("m", [1, 3, 4, 5, 8])
@pytest.mark.parametrize(("k", "n"), [(192, 64), (37, 250), (64, 321)])
def test_they_are_what_numpy_gives(m, k, n):
    assert 4 * k * n > costs.NEAREST_CACHE
    random = np.random.default_rng(m * n)
    x, there, back = (random.normal(size=s).astype(np.float32) / 8 for s in ((m, k), (k, n), (n, k)))
    got = jax.jit(lambda x, a, b: lax.fori_loop(0, 3, lambda _, x: (x @ a) @ b, x))(x, there, back)
    want = x.astype(np.float64)
    for _ in range(3):
        want = want @ there @ back
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
