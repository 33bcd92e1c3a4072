"""`iota` along split dims: each device has its part of the one row."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax

P = jax.sharding.PartitionSpec
DTYPES = ("int8", "uint8", "int16", "uint32", "int32", "float16", "bfloat16", "float32", "complex64")


@pytest.mark.parametrize("shape", [(8, 1), (4, 2), (2, 4), (1, 8), (3, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_split_parts_are_those_of_the_whole(shape, dtype):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[: np.prod(shape)]).reshape(shape), ("x", "y"))
    for dim, size in ((0, 24 * 48), (1, 24 * 48)):
        sizes = (size, 3) if dim == 0 else (3, size)
        for axes in (mesh.axis_names, mesh.axis_names[-1]):
            spec = P(axes) if dim == 0 else P(None, axes)
            sharding = jax.sharding.NamedSharding(mesh, spec)
            made = jax.jit(lambda: lax.broadcasted_iota(dtype, sizes, dim), out_shardings=sharding)()  # noqa: B023
            # Integers that do not fit wrap around, floats are rounded.
            whole = np.arange(size, dtype=np.int64).astype(jnp.dtype(dtype))
            want = np.broadcast_to(whole[:, None] if dim == 0 else whole, sizes)
            np.testing.assert_array_equal(np.asarray(made), want)
            for shard in made.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), want[shard.index])
