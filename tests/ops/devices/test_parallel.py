"""What collectives make of their operands before and after they meet."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import PartitionSpec as P


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2", "int8", "uint32", "bool"])
def test_means_of_integers_are_floats(dtype):
    """Of those of 2 and 4 bits, too, whose kind is none of NumPy's. The sum is taken in the dtype itself."""
    x = jnp.asarray(np.array([1, 0, 0, 0]).astype(jnp.dtype(dtype)))
    mesh = jax.make_mesh((4,), ("x",), devices=jax.devices()[:4])
    mapped = jax.vmap(lambda v: lax.pmean(v, "i"), axis_name="i")(x)
    split = jax.shard_map(lambda v: lax.pmean(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())(x)
    for got in (mapped, split):
        assert got.dtype == jnp.float32
        assert set(got.tolist()) == {0.25}
