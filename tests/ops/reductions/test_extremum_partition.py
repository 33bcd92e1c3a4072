"""Positions of extrema along split dims: devices exchange their candidates alone, also where the axes do not divide the dim."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

P = PartitionSpec
RNG = np.random.default_rng(0)


def cases():
    yield "random", RNG.standard_normal((32, 16)).astype(np.float32)
    yield "equal", np.zeros((32, 16), np.float32)
    yield "infinite", np.full((32, 16), -np.inf, np.float32)
    yield "least", np.full((32, 16), np.iinfo(np.int32).min)
    yield "greatest", np.full((32, 16), 255, np.uint8)
    yield "undefined", np.where(RNG.random((32, 16)) < 0.1, np.nan, 1).astype(np.float32)
    yield "truth", RNG.random((32, 16)) < 0.1


@pytest.mark.parametrize("cut", [(0, 32), (1, 32), (0, 31), (2, 31), (3, 32)])
@pytest.mark.parametrize("name, x", list(cases()))
def test_first_positions_are_those_of_one_device(name, x, cut):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))

    def f(x):
        x = x[slice(*cut)]
        return jnp.argmax(x, 0), jnp.argmin(x, 0), jnp.argmax(x[:, 1:], 1)

    for spec in (P("x"), P("x", "y"), P(("y", "x"))):
        for got, expected in zip(sw.jit(f)(sw.device_put(x, NamedSharding(mesh, spec))), f(x), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("f", [lambda x: x, lambda x: x[1:], lambda x: jnp.diff(x, axis=0)])
def test_only_candidates_are_sent(f):
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    x = sw.ShapeDtypeStruct((1024, 64), np.float32, sharding=NamedSharding(mesh, P("x")))
    transfers = sw.jit(lambda x: jnp.argmax(f(x), 0)).lower(x).compile().runtime_executable().transfers
    assert sum(t.bytes for t in transfers) <= 64 * 4 * (1 + 2 * 2 * 7 / 8)
