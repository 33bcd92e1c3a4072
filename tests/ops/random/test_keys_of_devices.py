"""Random numbers by keys that differ between the devices of a `shard_map`: as many as each key gives by itself, however they are made."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
from shardwise import random

P = jax.sharding.PartitionSpec


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("size", [3, 1000, 1 << 12, 1 << 13, 1 << 15])
@pytest.mark.parametrize("sample", [random.normal, random.bits, random.uniform])
def test_each_device_draws_by_its_key(impl, size, sample):
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    keys = random.split(random.key(7, impl=impl), 4)

    def draw(keys):
        return sample(keys[0], (size,))[None]

    drawn = jax.jit(jax.shard_map(draw, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(keys)
    each = jax.jit(lambda key: sample(key, (size,)))
    np.testing.assert_array_equal(np.asarray(drawn), np.stack([np.asarray(each(k)) for k in keys]))
