"""Positions and counts of 2 and 4 bits, whose kind is none of NumPy's, say what those of 32 bits say."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax

X = np.arange(12.0, dtype=np.float32).reshape(4, 3)
WAYS = {
    "dynamic_slice": lambda x, i: lax.dynamic_slice(x, (i, i), (2, 1)),
    "dynamic_update_slice": lambda x, i: lax.dynamic_update_slice(x, -x[:1, :1], (i, i)),
    "dynamic_index_in_dim": lambda x, i: lax.dynamic_index_in_dim(x, i),
    "dynamic_slice_in_dim": lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, axis=1),
    "dynamic_update_index_in_dim": lambda x, i: lax.dynamic_update_index_in_dim(x, x[0] * 9, i, 0),
    "index": lambda x, i: x[i],
    "set": lambda x, i: x.at[i].set(9.0),
    "vmap": lambda x, i: jax.vmap(lambda r: lax.dynamic_slice(r, (i,), (2,)))(x),
}


@pytest.mark.parametrize("dtype", ["int2", "uint2", "int4", "uint4", "int8"])
@pytest.mark.parametrize("name", WAYS)
def test_starts(name, dtype):
    for at in (0, 1) if dtype.startswith("u") else (0, 1, -1):
        want = np.asarray(WAYS[name](jnp.asarray(X), jnp.int32(at)))
        i = jnp.asarray(np.array(at).astype(jnp.dtype(dtype)))
        for f in (WAYS[name], jax.jit(WAYS[name])):
            np.testing.assert_array_equal(np.asarray(f(jnp.asarray(X), i)), want)


def test_repeats():
    counts = jnp.asarray(np.array([1, 0, 1, 1]).astype(jnp.dtype("int4")))
    assert jnp.repeat(jnp.arange(4), counts).tolist() == [0, 2, 3]
    assert jnp.repeat(jnp.arange(2), jnp.asarray(np.array(3).astype(jnp.dtype("uint4")))).tolist() == [0, 0, 0, 1, 1, 1]
