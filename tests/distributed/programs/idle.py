"""Large moves with which some processes have nothing to do: they take part in every round, and know no dtype from messages."""

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
devices = np.array(jax.devices())
mesh = Mesh(devices, ("x",))
A = np.arange(8 * 640 * 1024, dtype=np.float32).reshape(
    8 * 640, 1024
)  # 2.5 MB per device: more than a slot of shared memory


def same(x, want):
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), want[shard.index])


a = jax.make_array_from_callback(A.shape, NamedSharding(mesh, P("x")), lambda index: A[index])
for perm in ([(0, 7)], [(7, 0), (0, 7)], [(2, 5)]):
    moved = jax.jit(
        jax.shard_map(lambda v, perm=perm: lax.ppermute(v, "x", perm), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    )
    want = np.zeros_like(A).reshape(8, 640, 1024)
    for source, target in perm:
        want[target] = A.reshape(8, 640, 1024)[source]
    for _ in range(2):
        same(moved(a), want.reshape(A.shape))
# between two of the processes, over a mesh that all of them have
half = Mesh(np.roll(devices, 4), ("x",))
same(jax.device_put(a, NamedSharding(half, P("x"))), A)
print("done", flush=True)
