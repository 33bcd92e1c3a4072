"""Processes with different numbers of devices: what is computed, moved and handed over is what one process has."""

import os

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental import multihost_utils
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

size = int(os.environ.get("PMI_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])  # of MPICH, of Open MPI
rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
jax.config.update("jax_num_cpu_devices", {2: (1, 5), 4: (1, 2, 1, 2)}[size][rank])
jax.distributed.initialize(heartbeat_timeout_seconds=60)
devices = np.array(jax.devices())
assert len(devices) == 6
RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((12, 6)).astype(np.float32), RNG.standard_normal((6, 6)).astype(np.float32)
line = Mesh(devices, ("x",))
rows = NamedSharding(line, P("x"))


def same(x, want):
    want = np.asarray(want)
    assert x.shape == want.shape
    for shard in x.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=2e-5, atol=1e-6)


# Sums over devices of processes with one device and with several: all processes take them at the same places.
def gradient(w, x):
    def loss(w, x):
        return jnp.mean(jnp.tanh(jnp.tanh(x @ w) @ w) ** 2)

    value, slope = jax.value_and_grad(loss)(w, x)
    late, _ = lax.scan(lambda g, x: (g + jax.grad(loss)(w, x[None]), None), jnp.zeros_like(w), x.reshape(2, 6, 6)[0])
    return value, slope, late, x.sum(0), x.sum(0) @ w


x, w = jax.device_put(X, rows), jax.device_put(W, NamedSharding(line, P()))
for got, want in zip(jax.jit(gradient)(w, x), jax.jit(gradient)(W, X), strict=True):
    same(got, want)


# Windows: those of one device that lie in its own rows are views of them, which nothing may write over
def windows(x):
    def step(_, x):
        tall = jnp.pad(x, ((3, 3), (1, 1)))
        return 0.25 * (tall[:12, 1:-1] + tall[6:, 1:-1] + tall[3:15, :-2] + x), x[:6] * 2 + x[1:7]

    return (*lax.fori_loop(0, 5, lambda i, carry: step(i, carry[0]), (x, x[:6])), x[:6], x[3:9] + x[:6], x + 1)


for got, want in zip(jax.jit(windows, donate_argnums=0)(x + 0), jax.jit(windows)(X), strict=True):
    same(got, want)


# Meshes over the same devices that have no common refinement
meshes = [Mesh(devices.reshape(2, 3), ("x", "y")), Mesh(devices.reshape(3, 2), ("x", "y")), line]
a = x
for mesh in (*meshes, *reversed(meshes)):
    for spec in (P("x"), P(None, mesh.axis_names[-1]), P()):
        a = jax.device_put(a, NamedSharding(mesh, spec))
        same(a, X)

# Parts of processes: six parts, of which this process has its own
parts = multihost_utils.global_array_to_host_local_array(x, line, P("x"))
first = jax.devices().index(jax.local_devices()[0])
np.testing.assert_array_equal(parts, X[2 * first : 2 * (first + jax.local_device_count())])
same(multihost_utils.host_local_array_to_global_array(parts * 2, line, P("x")), X * 2)
print("done", flush=True)
