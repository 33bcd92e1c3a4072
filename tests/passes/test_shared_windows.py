"""Windows of one value are exchanged once, whatever each op wants beyond the ends."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def pool(x, start, op):
    return lax.reduce_window(x, start, op, (3,) * x.ndim, (1,) * x.ndim, "SAME")


@pytest.mark.parametrize("spec", [P("x"), P("y", "x"), P(None, "x")])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: (pool(x, 0.0, lax.add), pool(x, -jnp.inf, lax.max), pool(x, jnp.inf, lax.min)),
        lambda x: pool(x, x.min(), lax.max) - pool(x, x.max(), lax.min),
        lambda x: jnp.pad(x, 1, constant_values=2.0)[2:, 1:-1] - jnp.pad(x, 1)[2:, 1:-1],
    ],
)
def test_windows_with_different_values_beyond_the_ends(f, spec):
    split = sw.device_put(X, NamedSharding(MESH, spec))
    for got, want in zip(sw.tree.leaves(sw.jit(f)(split)), sw.tree.leaves(f(jnp.asarray(X))), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_one_exchange():
    split = sw.device_put(X, NamedSharding(MESH, P("x")))
    f = lambda x: (pool(x, 0.0, lax.add), pool(x, -jnp.inf, lax.max), pool(x, jnp.inf, lax.min))  # noqa: E731
    assert len(sw.jit(f).lower(split).compile().runtime_executable().transfers) == 1


@pytest.mark.parametrize("rows, step", [(20, 2), (28, 3)])
def test_windows_that_overlap_known_ones_fetch_what_these_lack(rows, step):
    f = lambda x: [x[k : k + rows - step : step] * 2 for k in range(step)]  # noqa: E731
    x = np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)
    split = sw.device_put(x, NamedSharding(Mesh(MESH.devices[:, 0], ("x",)), P("x")))
    made = sw.jit(f).lower(split).compile()
    for got, want in zip(made(split), f(x), strict=True):
        np.testing.assert_array_equal(got, want)
    first = sw.jit(lambda x: f(x)[0]).lower(split).compile()
    sent = [sum(t.total for t in c.runtime_executable().transfers) for c in (made, first)]
    assert sent[0] < step * sent[1]
