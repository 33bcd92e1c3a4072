"""Devices of a mesh in orders in which processes form no grid: every value is that of one process."""

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental import multihost_utils
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
devices, processes = jax.devices(), jax.process_count()
assert len(devices) == 8
A = np.arange(128, dtype=np.float32).reshape(16, 8) / 7
SPECS = (P("x", "y"), P("y", "x"), P("x"), P(None, "y"), P(("x", "y")), P())
even = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
row = Mesh(np.array(devices), ("d",))


def same(x, want):
    want = np.asarray(want)
    assert x.shape == want.shape
    assert [s.device for s in x.addressable_shards] == [d for d in x.sharding.device_list if d in jax.local_devices()]
    for shard in x.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=1e-5)
    assert x.is_fully_addressable == set(x.sharding.device_list).issubset(jax.local_devices())


def moved(a):
    n = lax.axis_size("y")
    return lax.psum(a, "x") + lax.ppermute(a, "y", [(i, (i + 1) % n) for i in range(n)])


for seed in range(3):
    order = np.random.default_rng(seed).permutation(8)
    for shape in ((2, 4), (4, 2)):
        mesh = Mesh(np.array(devices)[order].reshape(shape), ("x", "y"))
        for spec in SPECS[seed % 2 :: 2]:  # each on half of the meshes
            sharding = NamedSharding(mesh, spec)
            a = jax.make_array_from_callback(A.shape, sharding, lambda index: A[index])
            same(a, A)
            same(jax.device_put(A, sharding), A)
            parts = [jax.device_put(A[i], d) for d, i in sharding.addressable_devices_indices_map(A.shape).items()]
            same(jax.make_array_from_single_device_arrays(A.shape, sharding, parts), A)
            same(jax.make_array_from_process_local_data(sharding, A, A.shape), A)
            same(a * 2 + 1, A * 2 + 1)
            same(jax.jit(lambda a: (a @ a.T).max(0))(a), (A @ A.T).max(0))
            same(jax.grad(lambda a: (jnp.sin(a) ** 2).sum())(a), np.sin(2 * A))
            for other in SPECS[:3]:
                there = jax.device_put(a, NamedSharding(even, other))  # to devices in another order, and back
                same(there, A)
                same(jax.device_put(there, sharding), A)
            same(jax.device_put(jax.device_put(a, NamedSharding(row, P("d"))), sharding), A)
            line = Mesh(mesh.devices.ravel(), ("d",))  # the same devices as one line, whose parts each process can keep
            same(jax.device_put(jax.device_put(a, NamedSharding(line, P("d"))), sharding), A)
            same(jax.jit(lambda a: a + 1, out_shardings=NamedSharding(line, P("d")))(a), A + 1)
            np.testing.assert_array_equal(multihost_utils.process_allgather(a, tiled=True), A)
        f = jax.shard_map(moved, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
        a = jax.make_array_from_callback(A.shape, NamedSharding(mesh, P("x", "y")), lambda index: A[index])
        got = jax.jit(f)(a)
        summed = np.tile(A.reshape(shape[0], -1, 8).sum(0), (shape[0], 1))
        same(got, summed + np.roll(A, 8 // shape[1], 1))
some = Mesh(np.array(devices)[[0, 2, 1, 3]].reshape(2, 2), ("x", "y"))  # of four processes two own none of these
a = jax.device_put(A, NamedSharding(some, P("x", "y")))
takes_part = any(d in jax.local_devices() for d in some.devices.flat)
if takes_part:
    same(a, A)
total = jax.jit(lambda a: a.sum())(a)
assert not total.addressable_shards or np.isclose(total.addressable_shards[0].data, A.sum())
back = jax.device_put(a, NamedSharding(even, P("x", "y")))
same(back, A)
again = jax.device_put(back, NamedSharding(some, P("y", "x")))
if takes_part:
    same(again, A)
crossed = Mesh(np.array(devices)[[0, 7, 1, 6, 2, 5, 4, 3]].reshape(2, 4), ("x", "y"))
if processes > 1:
    try:
        jax.make_array_from_process_local_data(NamedSharding(crossed, P("x", "y")), A)
    except ValueError as error:
        assert "Specify global shape directly" in str(error)
print("done", flush=True)
