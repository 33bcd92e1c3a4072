"""Memory spaces as targets of device_put: values stay on their devices, under another memory's name."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.memory import Space
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P


def test_device_put():
    with use_dialect("latest"):
        assert repr(list(Space)) == "[MemorySpace.Device, MemorySpace.Host, MemorySpace.Any]"
        sharding = NamedSharding(Mesh(np.array(jax.devices()[:8]), ("x",)), P("x"))
        x = jax.device_put(np.arange(8.0), sharding)
        away = jax.device_put(x, Space.Host)
        assert (away.sharding, away.tolist()) == (sharding.with_memory_kind("pinned_host"), x.tolist())
        assert jax.device_put(away, Space.Device).sharding == sharding
        assert jax.device_put(away, Space.Any).sharding == away.sharding
        for value in (np.ones(3), jnp.ones(3), 1.0):
            assert jax.device_put(value, Space.Host).sharding.memory_kind == "pinned_host"
            assert jax.device_put(value, Space.Device).sharding.memory_kind == "device"
        a, b = jax.device_put((np.ones(3), jnp.ones(2)), (Space.Host, jax.devices()[1]))
        assert (a.sharding.memory_kind, b.devices()) == ("pinned_host", {jax.devices()[1]})


@pytest.mark.parametrize("space", Space)
def test_traced(space):
    f = lambda x: (jax.device_put(jnp.sin(x), space) ** 2).sum()  # noqa: E731
    x = jnp.arange(3.0)
    assert jax.jit(f)(x) == jax.jit(lambda x: (jnp.sin(x) ** 2).sum())(x)
    np.testing.assert_allclose(jax.grad(f)(x), np.sin(2 * x), rtol=1e-6)
    assert jax.vmap(lambda x: jax.device_put(x, space))(x).tolist() == [0, 1, 2]
