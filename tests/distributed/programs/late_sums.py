"""Sums over devices that loops only add up: values of one device, and how often processes send."""

import numpy as np

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.debug import count_traffic
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
ROUNDS, BATCH, WIDTH = 6, 16, 5
RNG = np.random.default_rng(0)
W, X = (
    RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32),
    RNG.standard_normal((ROUNDS, BATCH, WIDTH)).astype(np.float32),
)
mesh = Mesh(np.array(jax.devices()), ("x",))


def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def gradient(w, parts):
    return lax.scan(lambda g, x: (g + jax.grad(loss)(w, x), None), jnp.zeros_like(w), parts)[0]


def exchanges(f, *args):
    """The result of a function, and how often this process exchanges something for it."""
    f = jax.jit(f)
    out = f(*args).block_until_ready()
    with count_traffic() as traffic:
        f(*args).block_until_ready()
    return np.asarray(out.addressable_shards[0].data), sum(traffic.calls.values())


assert jax.local_device_count() == 1
want, _ = exchanges(gradient, W, X)
w, x = [
    jax.make_array_from_callback(v.shape, NamedSharding(mesh, s), lambda index, v=v: v[index])
    for v, s in ((W, P()), (X, P(None, "x")))
]
got, count = exchanges(gradient, w, x)
np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
_, once = exchanges(lambda w, x: jax.grad(loss)(w, x[0]), w, x)
assert count == once > 0, (count, once)
products = jax.shard_map(
    lambda w, x: lax.fori_loop(0, ROUNDS, lambda i, c: c + lax.psum(x[i].T @ x[i], "x"), w),
    mesh=mesh,
    in_specs=(P(), P(None, "x")),
    out_specs=P(),
)
got, count = exchanges(products, w, x)
np.testing.assert_allclose(got, W + sum(v.T @ v for v in X), rtol=1e-5)
assert count == once, (count, once)
print("done", flush=True)
