"""shard_alike: two values split alike, under jit and at once, in derivatives and under vmap."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.shard_alike import shard_alike
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

VALUES = np.arange(16.0, dtype=np.float32).reshape(8, 2)


@pytest.fixture(scope="module")
def placed():
    mesh = sw.make_mesh((2, 2), ("x", "y"), devices=sw.devices()[:4])
    return sw.device_put(VALUES, NamedSharding(mesh, P("x", "y")))


def test_the_second_lies_as_the_first(placed):
    made = lambda x: shard_alike({"a": x}, {"a": jnp.arange(16.0).reshape(8, 2)})[1]["a"]  # noqa: E731
    for function in (
        made,
        sw.jit(made),
        sw.jit(lambda x: sw.vmap(lambda a, b: shard_alike(a, b)[1])(x, jnp.ones((8, 2)))),
    ):
        assert function(placed).sharding == placed.sharding
    np.testing.assert_array_equal(np.asarray(sw.jit(made)(placed)), VALUES)


def test_derivatives(placed):
    def function(x):
        a, b = shard_alike(x, jnp.sin(x))
        return (a * b).sum()

    expected = np.sin(VALUES) + VALUES * np.cos(VALUES)
    np.testing.assert_allclose(np.asarray(sw.jit(sw.grad(function))(placed)), expected, rtol=2e-6, atol=2e-6)


def test_what_does_not_pair_is_refused(placed):
    with pytest.raises(ValueError, match="leaves shapes of `x` and `y` should match"):
        shard_alike(placed, placed.T)
    with pytest.raises(ValueError, match="Trees should match"):
        shard_alike(placed, (placed,))
