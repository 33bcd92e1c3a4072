"""Transformations keep the parameters of functions; checkers evaluate each `assert_type`. `test_checkers.py` gives them this file."""

from collections.abc import Callable
from typing import Any, assert_type

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.sharding import PartitionSpec as P


def loss(w: jax.Array, x: jax.Array, scale: float = 1.0) -> jax.Array:
    return (w * x).sum() * scale


w = x = jnp.ones(3)

jitted = jax.jit(loss)
assert_type(jitted(w, x, scale=2.0), jax.Array)
jitted(w)  # error: no x
jitted(w, x, scal=2.0)  # error: a misspelled parameter
assert_type(jax.jit(loss, static_argnames="scale")(w, x), jax.Array)


@jax.jit
def plain(x: jax.Array) -> tuple[jax.Array, int]:
    return x, 1


assert_type(plain(x), tuple[jax.Array, int])
plain(x, x)  # error: too many


@jax.jit(inline=True)
def with_options(x: jax.Array) -> jax.Array:
    return x


assert_type(with_options(x), jax.Array)
with_options()  # error: no x


class Model:
    @jax.jit
    def step(self, x: jax.Array) -> jax.Array:
        return x


assert_type(Model().step(x), jax.Array)
Model().step()  # error: no x

jax.grad(loss)(w, x, scale=1.0)
jax.grad(loss)(w)  # error: no x
assert_type(jax.value_and_grad(loss)(w, x), tuple[jax.Array, Any])
jax.value_and_grad(loss)(w)  # error: no x
assert_type(jax.vmap(loss)(w, x), jax.Array)
jax.vmap(loss)(w)  # error: no x
assert_type(jax.checkpoint(loss)(w, x), jax.Array)
jax.checkpoint(loss)(w)  # error: no x
jax.jacrev(loss)(w)  # error: no x
jax.hessian(loss)(w, y=x)  # error: no y
value, pull = jax.vjp(loss, w, x)
assert_type(value, jax.Array)
assert_type(jax.jvp(loss, (w, x), (w, x)), tuple[jax.Array, jax.Array])

mesh = jax.make_mesh((2,), ("x",))
mapped = jax.shard_map(loss, mesh=mesh, in_specs=P(), out_specs=P())
assert_type(mapped(w, x), jax.Array)
mapped(w)  # error: no x


@jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
def doubled(x: jax.Array) -> jax.Array:
    return 2 * x


assert_type(doubled(x), jax.Array)
doubled()  # error: no x


@jax.custom_jvp
def clipped(x: jax.Array) -> jax.Array:
    return x


assert_type(clipped(x), jax.Array)
clipped()  # error: no x


@jax.custom_vjp
def rounded(x: jax.Array, decimals: int) -> jax.Array:
    return x


assert_type(rounded(x, 2), jax.Array)
rounded(x)  # error: no decimals

f: Callable[[jax.Array], jax.Array] = jax.jit(lambda x: x)
assert_type(x.sum(axis=0), jax.Array)
assert_type(x.at[0].set(1.0), jax.Array)
assert_type(x.T, jax.Array)
assert_type(x + 1, jax.Array)
assert_type(2.0 * x, jax.Array)
assert_type(jnp.sin(x), jax.Array)
assert_type(jnp.linalg.norm(x), jax.Array)
x.sum(axs=0)  # error: a misspelled parameter
jnp.sum(x, axs=0)  # error: a misspelled parameter
jnp.concatenate([x, x], axes=0)  # error: a misspelled parameter
