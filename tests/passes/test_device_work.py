"""What devices compute decides between programs that send as much: none computes what others compute, too, for want of a cut axis."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import trace_program
from shardwise.passes import device_work
from shardwise.runtime import costs
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(jax.devices()[:8]), ("data",))
X = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)


def in_blocks(x):
    """4 blocks over 8 devices: each block is two devices'."""
    return jnp.maximum(x.reshape(4, 16, 32), 0.0).reshape(64, 32)


def test_gradients_of_a_batch_in_blocks_are_summed():
    """To gather the batch would send as much, and all devices would multiply all of it."""
    f = jax.jit(jax.grad(lambda w, x: jnp.maximum(in_blocks(x) @ w, 0.0).sum()))
    x = jax.device_put(X, NamedSharding(MESH, P("data")))
    assert [t.kind for t in f.lower(W, x).compile().runtime_executable().transfers] == ["all_reduce"]
    hidden = np.maximum(X, 0)
    np.testing.assert_allclose(f(W, x), hidden.T @ (hidden @ W > 0), rtol=1e-5, atol=1e-5)


MADE = X.nbytes / costs.MADE_PER_SENT


@pytest.mark.parametrize(
    ("f", "want"),
    [
        (jnp.sin, MADE),
        (lambda x: lax.fori_loop(0, 5, lambda i, x: jnp.sin(x), x), 5 * (MADE + 4 / costs.MADE_PER_SENT)),
        (lambda x: x @ W, MADE + X.size * 32 / costs.MULTIPLIED_PER_SENT),
        (lambda x: jax.vmap(lambda r: r @ W)(x), MADE + X.size * 32 / costs.MULTIPLIED_PER_SENT),
        (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, lambda x: jnp.sin(jnp.cos(x)), x), 2 * MADE),
    ],
)
def test_results_and_products_count(f, want):
    program, _ = trace_program(lambda x: [f(x)], [jax.typeof(jnp.asarray(X))])
    # Predicates and counters of a few bytes count, too.
    assert device_work(program) == pytest.approx(want, rel=0.01, abs=1)
