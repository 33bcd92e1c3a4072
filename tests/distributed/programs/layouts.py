"""Every layout to every other, over meshes whose axes lie across processes, inside them, and both; and ops on them."""

import numpy as np

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
devices = jax.devices()
assert len(devices) == 8
A = np.arange(128, dtype=np.float32).reshape(16, 8) / 7
SPECS = (P("x", "y"), P("y", "x"), P("x"), P(None, "y"), P(("x", "y")), P(("y", "x")), P())


def same(x, want):
    assert x.shape == want.shape
    for shard in x.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=1e-5)


for order, shape in ((1, (2, 4)), (1, (4, 2)), (-1, (4, 2))):
    mesh = Mesh(np.array(devices)[::order].reshape(shape), ("x", "y"))
    for spec in SPECS:
        a = jax.make_array_from_callback(A.shape, NamedSharding(mesh, spec), lambda index: A[index])
        same(a, A)
        same(a * 2 + 1, A * 2 + 1)
        same(jnp.sin(a).sum(), np.sin(A).sum())
        same(jax.jit(lambda a: (a @ a.T).max(0))(a), (A @ A.T).max(0))
        same(a.T, A.T)
        for target in SPECS:
            same(jax.device_put(a, NamedSharding(mesh, target)), A)
print("done", flush=True)
