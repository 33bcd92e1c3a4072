"""Padding between elements along a split dim: parts keep their elements, and those at borders come from neighbours."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("x", "y"))
ROWS = NamedSharding(MESH, P("y"))


def sent(compiled):
    return sum(t.bytes for t in compiled.runtime_executable().transfers)


@pytest.mark.parametrize(
    "config, rows",
    [
        ((0, 1, 1), 0),
        ((1, 0, 1), 0),
        ((0, 2, 2), 0),
        ((2, 0, 2), 0),
        ((-1, 2, 1), 1),
        ((3, -2, 1), 1),
        ((2, -1, 1), 1),
        ((-3, 5, 2), 1),
        ((12, -11, 1), 6),
    ],
)
def test_dilated_parts_stay(config, rows):
    x = np.arange(32 * 4, dtype=np.float32).reshape(32, 4) + 1
    f = sw.jit(lambda x: lax.pad(x, np.float32(-1), (config, (0, 0, 0))), in_shardings=ROWS, out_shardings=ROWS)
    compiled = f.lower(x).compile()
    np.testing.assert_array_equal(compiled(sw.device_put(x, ROWS)), lax.pad(x, np.float32(-1), (config, (0, 0, 0))))
    assert sent(compiled) == rows * 16


def test_what_strides_do_not_divide_is_right_too():
    x = np.arange(32 * 4, dtype=np.float32).reshape(32, 4)
    for config in ((0, 0, 1), (1, 2, 1), (3, 3, 2)):
        f = sw.jit(lambda x, c=config: lax.pad(x, np.float32(-1), (c, (0, 0, 0))), in_shardings=ROWS)
        np.testing.assert_array_equal(f(sw.device_put(x, ROWS)), lax.pad(x, np.float32(-1), (config, (0, 0, 0))))


def test_the_gradient_of_pooling_sends_nothing():
    def loss(x):
        pooled = lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (2, 1), "VALID")
        return (pooled**2).sum()

    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    compiled = sw.jit(sw.grad(loss), in_shardings=ROWS, out_shardings=ROWS).lower(x).compile()
    np.testing.assert_array_equal(compiled(sw.device_put(x, ROWS)), sw.grad(loss)(x))
    assert sent(compiled) == 0
