"""Computations over global meshes: matmul, scans, sorting, indexing, random numbers, derivatives, convolutions."""

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
devices = jax.devices()
A = (np.arange(128, dtype=np.float32) * 7 % 31).reshape(16, 8)


def same(x, want, tolerance=1e-5):
    want = np.asarray(want)
    assert x.shape == want.shape
    for shard in x.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=tolerance, atol=tolerance)


for shape, spec in (((2, 4), P(("x", "y"))), ((4, 2), P("y", "x"))):
    mesh = Mesh(np.array(devices).reshape(shape), ("x", "y"))
    layout = NamedSharding(mesh, spec)
    a = jax.make_array_from_callback(A.shape, layout, lambda index: A[index])
    same(jax.jit(lambda a, b: a + b)(a, A), A + A)  # a host value that all processes have
    same(jnp.cumsum(a), np.cumsum(A))
    same(jnp.sort(a, 0), np.sort(A, 0))
    same(jnp.argmax(a, 0), np.argmax(A, 0))
    same(jnp.take(a, jnp.array([3, 0, 5]), axis=0), A[[3, 0, 5]])
    same(a.at[3].set(0.0), np.concatenate([A[:3], 0 * A[3:4], A[4:]]))
    where = (np.arange(32) * 5 % 18 - 1).astype(np.int32)  # negative and out of bounds, too
    rows = (np.arange(256, dtype=np.float32) % 11 - 5).reshape(32, 8)
    full, highest, kept = np.zeros((16, 8), np.float32), A.copy(), where < 16
    np.add.at(full, where[kept], rows[kept])
    np.maximum.at(highest, where[kept], rows[kept])
    for split in (P(), P("x"), P(("x", "y")), P("y", "x")):
        at, updates = (
            jax.make_array_from_callback(v.shape, NamedSharding(mesh, P(*split[: v.ndim])), lambda i, v=v: v[i])
            for v in (where, rows)
        )
        same(jax.jit(lambda i, u: jnp.zeros((16, 8)).at[i].add(u))(at, updates), full)
        same(jax.jit(lambda a, i, u: a.at[i].add(u))(a, at, updates), A + full)
        same(jax.jit(lambda a, i, u: a.at[i].max(u))(a, at, updates), highest)
        same(jax.jit(lambda a, i: jnp.take(a, i, axis=0, mode="clip"))(a, at), A.take(where, 0, mode="clip"))
    same(jnp.pad(a, 1), np.pad(A, 1))
    same(jnp.roll(a, 3, 0), np.roll(A, 3, 0))
    same(a[::-1], A[::-1])
    same(jnp.convolve(a[:, 0], jnp.ones(3)), np.convolve(A[:, 0], np.ones(3)))
    before = np.concatenate([np.zeros((1, 8), np.float32), np.cumsum(A, 0)[:-1]])
    same(lax.scan(lambda c, x: (c + x, c), jnp.zeros(8), a)[1], before)
    loss = lambda w, x: (jnp.tanh(x @ w) ** 2).mean()  # noqa: E731
    w = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3) / 9
    same(jax.jit(jax.grad(loss))(w, a), jax.grad(loss)(jnp.asarray(w), jnp.asarray(A)))
    key = jax.random.PRNGKey(3)
    drawn = jax.jit(lambda k: jax.random.normal(k, (16, 8)), out_shardings=layout)(key)
    same(drawn, jax.random.normal(key, (16, 8)))
    counted = jax.jit(lambda: jnp.arange(32) * 2, out_shardings=NamedSharding(mesh, P("y")))()
    same(counted, np.arange(32) * 2)
    assert float(a.sum()) == A.sum()

six = NamedSharding(
    Mesh(np.array(devices[:6]), ("x",)), P("x")
)  # 4 and 2 of two processes: no grid if the axis is cut in two
if len({d.process_index for d in devices[:6]}) == jax.process_count():
    rows = jax.make_array_from_callback((6,), six, lambda index: A[:6, 3][index])
    same(jax.jit(lambda v: jnp.max(v.reshape(1, 2, 3), (0, 1)))(rows), A[:6, 3].reshape(2, 3).max(0))

explicit = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
with jax.sharding.use_mesh(explicit):
    a = jax.make_array_from_callback(A.shape, NamedSharding(explicit, P("x", "y")), lambda index: A[index])
    product = jax.jit(lambda a: jnp.sin(a) * 2)(a)
    assert product.sharding == NamedSharding(explicit, P("x", "y"))
    same(product, np.sin(A) * 2)
    same(jax.sharding.reshard(a, P("y", "x")), A)
print("done", flush=True)
