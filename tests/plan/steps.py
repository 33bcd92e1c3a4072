"""A training step for tests of searches: two layers, checkpointed, with a constraint on the batch."""

from __future__ import annotations

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.sharding import AbstractMesh, P
from shardwise.sharding import NamedSharding as NS

WIDTH, BATCH = 2048, 512
UP, DOWN, ROWS = P("data", "model"), P("model", "data"), P("data")


def struct(mesh, shape, spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NS(mesh, spec))


def made(sizes, up=UP, down=DOWN, x=ROWS, policy=None, batch=BATCH, donated=(), width=None):
    """The step over a mesh ("data", "model") of these sizes, and its arguments; `width` is the constraint's entry of dim 1."""
    mesh = AbstractMesh(sizes, ("data", "model"))
    pin = NS(mesh, P(*x[:1], width))

    def loss(params, x):
        def layer(x, w):
            x = jnp.tanh(x @ w["up"]) @ w["down"]
            return jax.lax.with_sharding_constraint(x, pin)

        for w in params:
            x = jax.checkpoint(layer, policy=policy)(x, w)
        return jnp.sum(x * x)

    def step(params, x):
        grads = jax.grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    params = [
        {"up": struct(mesh, (WIDTH, 4 * WIDTH), up), "down": struct(mesh, (4 * WIDTH, WIDTH), down)} for _ in range(2)
    ]
    return jax.jit(step, donate_argnums=donated), (params, struct(mesh, (batch, WIDTH), x))
