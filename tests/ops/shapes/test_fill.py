"""Arrays of one value in shard_map."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import AxisType
from shardwise.sharding import PartitionSpec as P


@pytest.mark.parametrize("dialect", ["seed", "latest"])
def test_arrays_like_another_vary_as_it_does(dialect):
    seen = []

    def f(x):
        like = jax.eval_shape(lambda x: x * 2, x)
        for a in (x, like):
            made = (
                jnp.zeros_like(a), jnp.ones_like(a), jnp.full_like(a, 3), jnp.empty_like(a), lax.full_like(a, 3),
                jnp.zeros_like(a, dtype=int), jnp.full_like(a, 2, shape=(1,)), lax.full_like(a, 2, shape=(1,)),
            )  # fmt: skip
            seen.append({v.aval.vma for v in made})
            steps = [lax.scan(lambda c, _: (c + x, None), v, None, length=2)[0] for v in made[:3]]
        return steps[1] + made[0]

    with use_dialect(dialect):
        mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
        out = jax.jit(shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(jnp.arange(8.0))
    np.testing.assert_array_equal(out, 2 * np.arange(8.0) + 1)
    assert seen == [{frozenset({"x"} if dialect == "latest" else ())}] * 2
