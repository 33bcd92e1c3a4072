"""Meshes on which some processes own no device: they know of the arrays, hold nothing of them, and compute nothing."""

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
me, count, devices = jax.process_index(), jax.process_count(), jax.devices()
A = np.arange(8, dtype=np.float32)


def raised(kind, call, *texts):
    try:
        call()
    except kind as error:
        assert all(t in str(error) for t in texts), error
    else:
        raise AssertionError(f"{kind.__name__} was expected")


def same(x, want):
    assert x.shape == np.shape(want)
    assert [s.device for s in x.addressable_shards] == [d for d in x.sharding.device_list if d.is_local]
    for shard in x.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), np.asarray(want)[shard.index], rtol=1e-5)


def check(mesh):
    owners = {d.process_index for d in mesh.devices.flat}
    absent = me not in owners
    split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    a = jax.make_array_from_callback((8,), split, lambda index: A[index], dtype=np.float32)
    same(a, A)
    same(jax.device_put(A, split), A)
    same(a + 1, A + 1)
    same(a.reshape(2, 4), A.reshape(2, 4))
    assert (a + 1).sharding == split and (a + 1).committed
    same(jax.jit(lambda x: (x * 2).sum())(a), (A * 2).sum())
    same(jax.jit(lambda: jnp.arange(8.0), out_shardings=split)(), A)
    same(jax.jit(lambda x: x + 1, out_shardings=split)(A), A + 1)
    same(jax.device_put(a, whole), A)
    same(
        jax.jit(shard_map(lambda v: lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))(a),
        A.reshape(mesh.size, -1).sum(0),
    )
    same(jax.grad(lambda x: (x * x).sum())(a), 2 * A)
    same(lax.scan(lambda c, x: (c + x, c), 0.0, a)[0], A.sum())
    same(lax.while_loop(lambda c: c.sum() < 100, lambda c: c + 1, a), A + 9)
    with_own = a + jnp.ones(8)  # an uncommitted array of each process
    same(with_own, A + 1)
    compiled = jax.jit(lambda x: x - 1).lower(a).compile()
    same(compiled(a), A - 1)
    given = jax.jit(lambda x: x + 1, donate_argnums=0)
    b = a + 0
    same(given(b), A + 1)
    assert b.is_deleted()
    raised(RuntimeError, lambda: given(b), "deleted")
    assert a.is_fully_addressable == (owners == {me}) and len(a.global_shards) == mesh.size
    if absent:
        assert a.addressable_shards == [] and repr(a) == str(a) == "Array(shape=(8,), dtype=float32)"
        assert jax.device_put(a, whole).is_fully_replicated
        raised(RuntimeError, lambda: np.asarray(jax.device_put(a, whole)), "spans non-addressable")
        raised(RuntimeError, lambda: float(a.sum()), "spans non-addressable")
        raised(
            ValueError, lambda: jax.make_array_from_callback((8,), split, lambda i: A[i]), "`dtype` must be provided"
        )
        raised(ValueError, lambda: jax.make_array_from_process_local_data(split, A), f"process {me} owns none")
        raised(ValueError, lambda: mesh.local_mesh)
        part = jax.make_array_from_single_device_arrays((8,), split, [], dtype=np.float32)
        same(part, A)
    elif owners == {me}:
        assert np.array_equal(a, A) and float(a.sum()) == A.sum()
    else:
        assert float(a.sum()) == A.sum()


check(Mesh(np.array(devices[:2]), ("x",)))
check(Mesh(np.array(devices[2:6]), ("x",)))
check(Mesh(np.array(devices[::-1][:4]), ("x",)))
check(Mesh(np.array([devices[0], devices[7]]), ("x",)))
check(Mesh(np.array(devices), ("x",)))

# From some devices to others: what another process has comes over; values of each process's own have to be equal
lists = [devices[:2], devices[2:6], devices[::-1][:4], devices, devices[::-1]]
B = np.arange(64, dtype=np.float32).reshape(8, 8)
for source in lists:
    for target in lists:
        for spec, to in ((P("x"), P(None, "x")), (P(None, "x"), P()), (P(), P("x"))):
            a = jax.make_array_from_callback(
                (8, 8), NamedSharding(Mesh(np.array(source), ("x",)), spec), lambda index: B[index], dtype=np.float32
            )
            same(jax.device_put(a, NamedSharding(Mesh(np.array(target), ("x",)), to)), B)
own = jax.device_put(A, jax.local_devices()[-1])
same(jax.device_put(own, NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))), A)
first = jax.device_put(A, devices[0])
same(jax.device_put(first, NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))), A)
same(jax.device_put(first, devices[-1]), A)
if count > 1:
    mixed = first if me else jax.device_put(A, devices[1])
    raised(
        ValueError,
        lambda: jax.device_put(mixed, NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))),
        "do not mean the same array",
    )
for device in devices:
    there = jax.device_put(A, device)
    same(there, A)
    same(there * 2, A * 2)
    assert there.is_fully_addressable == device.is_local
total = jax.device_put(A, NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))).sum()
assert float(total) == A.sum()  # all are still in step

# What a move sends is counted: the half that the other process lacks, once
if count == 2:
    halves = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
    theirs = NamedSharding(Mesh(np.array(devices[len(devices) // 2 :]), ("x",)), P("x"))
    a = jax.device_put(np.arange(4096, dtype=np.float32), halves)
    with jax.debug.count_traffic() as traffic:
        moved = jax.device_put(a, theirs)
    assert traffic.bytes == ({"exchange": 0} if me else {"exchange": 8192}), traffic
    try:  # an array that came about in two ways is no array to move
        jax.device_put(a * (2.0 + me), theirs)
    except RuntimeError as error:
        assert "came about in different ways" in str(error), error
    else:
        raise AssertionError("no error")
print("done", flush=True)
