"""`extend.backend`: what the backend tells of what is kept."""

import shardwise as jax
import shardwise.extend.backend
import shardwise.numpy as jnp


def test_the_backend_lists_what_is_kept():
    x = jnp.arange(3.0)
    f = jax.jit(lambda v: v * 3)
    f(x)
    client = jax.extend.backend.get_backend()
    assert any(y is x for y in client.live_arrays())
    assert any("lambda" in program.name for program in client.live_executables())
