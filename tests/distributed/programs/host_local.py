"""Between what a process has and what all have together; arrays that lie on several processes."""

import os
import pickle
import signal

import numpy as np

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.experimental import multihost_utils
from shardwise.experimental.pjit import pjit
from shardwise.sharding import Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
me, count, devices = jax.process_index(), jax.process_count(), jax.devices()
assert (
    len(devices) == 8
    and jax.device_count() == 8
    and jax.local_devices() == [d for d in devices if d.process_index == me]
)


def raised(kind, call, *texts):
    try:
        call()
    except kind as error:
        assert all(t in str(error) for t in texts), error
    else:
        raise AssertionError(f"{kind.__name__} was expected")


def same(x, want):
    assert x.shape == np.shape(want)
    for shard in x.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), np.asarray(want)[shard.index], rtol=1e-5)


# The migration guide's program: trees of host-local values, prefixes of specs, and back
mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))
assert mesh.local_mesh.devices.shape == (4 // count, 2)
image = np.arange(32, dtype=np.float32).reshape(8, 4)
rows = slice(8 // count * me, 8 // count * (me + 1))
local = {"image": image[rows], "label": np.arange(8)[rows]}
specs = {"image": P("data", "model"), "label": P("data")}
with mesh:
    inputs = multihost_utils.host_local_array_to_global_array(local, mesh, specs)
    out = pjit(lambda b: b["image"].sum(axis=1) + b["label"], in_shardings=(specs,), out_shardings=P("data"))(inputs)
    back = multihost_utils.global_array_to_host_local_array(out, mesh, P("data"))
want = image.sum(1) + np.arange(8)
assert inputs["image"].shape == (8, 4) and inputs["image"].is_fully_addressable == (count == 1)
same(out, want)
assert np.array_equal(back, want[rows])
key = jax.random.PRNGKey(1)
with mesh:
    mixed = pjit(lambda k, x: x + k[1], in_shardings=(P(None), P("data")), out_shardings=P("data"))(
        key, inputs["label"]
    )
same(mixed, np.arange(8) + 1)

# A local shape that the mesh does not divide is refused as in the guide
with mesh:
    raised(
        ValueError,
        lambda: pjit(lambda x: x, in_shardings=P(("data", "model")))(np.ones(4, np.float32)),
        "should be divisible by 8, but it is equal to 4",
    )

# Each process gives its own part
split = NamedSharding(mesh, P("data"))
part = np.arange(8 // count) + 8 // count * me
same(jax.make_array_from_process_local_data(split, part), np.arange(8))
same(jax.make_array_from_process_local_data(split, part, (8,)), np.arange(8))
same(jax.make_array_from_process_local_data(split, np.arange(8), (8,)), np.arange(8))
same(jax.make_array_from_process_local_data(NamedSharding(mesh, P("model")), np.arange(6)), np.arange(6))
singles = [jax.device_put(np.array([d.id * 0 + i]), d) for i, d in enumerate(devices) if d.is_local]
flat = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
same(jax.make_array_from_single_device_arrays((8,), flat, singles), np.arange(8))

# Equal host values on global shardings
x = jax.device_put(np.arange(8.0, dtype=np.float32), split)
same(x, np.arange(8))
same(jax.device_put(x, NamedSharding(mesh, P("model"))), np.arange(8))
replicated = jax.device_put(x, NamedSharding(mesh, P()))
assert np.array_equal(replicated, np.arange(8)) and float(x.sum()) == 28 and int(x[3]) == 3 and list(replicated)[2] == 2
assert len(x.global_shards) == 8 and len(x.addressable_shards) == 8 // count
assert [s.data is None for s in x.global_shards].count(True) == 8 - 8 // count
assert x.addressable_data(0).sharding == SingleDeviceSharding(jax.local_devices()[0])
assert {s.replica_id for s in x.global_shards} == {0, 1}

# Between processes
assert np.array_equal(multihost_utils.process_allgather(np.array([me, 7])), [[p, 7] for p in range(count)])
assert np.array_equal(multihost_utils.process_allgather(part, tiled=True), np.arange(8))
assert np.array_equal(multihost_utils.process_allgather(x, tiled=True), np.arange(8))
scalars = multihost_utils.process_allgather({"a": me, "b": 1.5, "c": np.float16(2), "d": None}, tiled=True)
assert count == 1 or {k: (v.shape, v.dtype.name) for k, v in scalars.items() if v is not None} == {
    "a": ((count,), "int32"),
    "b": ((count,), "float32"),
    "c": ((count,), "float16"),
}
sent = multihost_utils.broadcast_one_to_all({"a": 2.5, "b": np.arange(3)})
assert count == 1 or [(v.shape, v.dtype.name) for v in sent.values()] == [((), "float32"), ((3,), "int32")]
assert multihost_utils.broadcast_one_to_all({"a": np.array(me + 5)})["a"] == 5
assert multihost_utils.broadcast_one_to_all(me, is_source=me == count - 1) == count - 1
with jax.debug.count_traffic() as traffic:
    multihost_utils.process_allgather(np.zeros(100, np.float32))
    multihost_utils.broadcast_one_to_all(np.zeros(50, np.float32))
if count > 1:
    assert traffic.bytes == {"all_gather": 400 * (count - 1), "broadcast": 0 if me else 200 * (count - 1)}, traffic
multihost_utils.sync_global_devices("here")
multihost_utils.assert_equal({"a": np.ones(3)})
heard = []
signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
for step in range(8):  # one process is told to end before step 2, two are before step 5
    if (step, me) in ((2, 0), (5, 0), (5, count - 1)):
        os.kill(os.getpid(), signal.SIGTERM)
    assert multihost_utils.reached_preemption_sync_point(step) == (step in (2, 5)), step
assert len(heard) == (2 if me == 0 else int(me == count - 1))
with multihost_utils.live_devices(devices) as alive:
    assert alive == devices

if count > 1:
    assert repr(x) == str(x) == "Array(shape=(8,), dtype=float32)"
    fetch = "spans non-addressable (non process local) devices is not possible"
    raised(RuntimeError, lambda: np.asarray(x), fetch, "process_allgather")
    raised(RuntimeError, lambda: x.tolist(), fetch)
    raised(RuntimeError, lambda: pickle.dumps(x), fetch)
    raised(AssertionError, lambda: list(x))
    raised(ValueError, lambda: jax.device_put(x, jax.local_devices()[0]), "fully addressable")
    raised(RuntimeError, lambda: jax.jit(lambda: x + 1)(), "Closing over jax.Array")
    raised(
        AssertionError,
        lambda: jax.device_put(np.array([me]), NamedSharding(mesh, P())),
        "is not the same on each process",
    )
    raised(
        ValueError,
        lambda: jax.jit(jnp.sin, in_shardings=split)(np.ones(8)),
        "Passing non-trivial shardings for numpy inputs",
    )
    raised(ValueError, lambda: jax.make_array_from_process_local_data(split, np.ones((3,)), (8,)), "Invalid host data")
    raised(AssertionError, lambda: multihost_utils.sync_global_devices(f"n{me}"), "name mismatch")
    one = jnp.ones(3) * me  # work of one process's own may run in between
    assert one.is_fully_addressable and np.array_equal(one, np.full(3, me))
    scattered = np.array(devices).reshape(count, -1).T.reshape(-1)
    mesh = Mesh(scattered, ("x",))
    y = jax.make_array_from_callback((16,), NamedSharding(mesh, P("x")), lambda i: np.arange(16)[i])
    same(jnp.cumsum(y), np.cumsum(np.arange(16)))
print("done", flush=True)
