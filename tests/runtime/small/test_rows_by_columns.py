"""Products of rows by a column, in small programs: vectors run along the rows, which are never read element by element."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.runtime.loops import lanes_of
from shardwise.runtime.machine import available, lanes

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for small programs")


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("more", [0, 5, 24, 100])
def test_they_are_what_numpy_gives(monkeypatch, more, dtype):
    k = lanes_of(dtype) + more
    random = np.random.default_rng(k)
    x, w = ((random.normal(size=s) * 8).astype(dtype) for s in ((24, k), (k, 1)))
    calls = []
    monkeypatch.setattr(lanes.Lanes, "gather_strided", lambda *args: calls.append(args))
    f = jax.jit(lambda x, w: jnp.sign((x + 1) @ w) * jnp.abs((x - 1) @ w + 2))
    got = f(x, w)
    assert not calls
    wide = x.astype(np.float64)
    want = np.sign((wide + 1) @ w) * np.abs((wide - 1) @ w + 2)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
