"""pmap and callbacks: each process maps its own rows, together with the others; and is called for its own devices."""

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental import io_callback
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
me, count, devices = jax.process_index(), jax.process_count(), jax.devices()
own = jax.local_device_count()
EVERY = np.arange(24, dtype=np.float32).reshape(8, 3)
rows = EVERY[me * own : (me + 1) * own]


def raised(kind, call, *texts):
    try:
        call()
    except kind as error:
        assert all(t in str(error) for t in texts), error
    else:
        raise AssertionError(f"{kind.__name__} was expected")


for dialect in ("seed", "latest"):
    jax.config.update("shardwise_dialect", dialect)
    summed = jax.pmap(lambda r: lax.psum(r, "i"), axis_name="i")
    for _ in range(2):  # the second call finds what the first compiled
        out = summed(rows)
        assert out.shape == (own, 3) and out.is_fully_addressable and out.devices() == set(jax.local_devices())
        np.testing.assert_array_equal(out, np.tile(EVERY.sum(0), (own, 1)))
        np.testing.assert_array_equal(summed(out), np.tile(8 * EVERY.sum(0), (own, 1)))
    places = jax.pmap(lambda r: r[0] * 0 + lax.axis_index("i"), axis_name="i")(rows)
    np.testing.assert_array_equal(places, np.arange(8)[me * own : (me + 1) * own])
    mixed = jax.pmap(lambda t, s: {"a": t["a"] * s}, in_axes=({"a": 1}, None), out_axes={"a": 1})({"a": rows.T}, 2.0)
    np.testing.assert_array_equal(mixed["a"], 2 * rows.T)
    np.testing.assert_array_equal(jax.pmap(lambda r: lax.pmax(r, "i"), "i", out_axes=None)(rows), EVERY.max(0))
    alone = jax.pmap(lambda r: lax.psum(r, "i"), axis_name="i", devices=jax.local_devices())(rows)
    np.testing.assert_array_equal(alone, np.tile(rows.sum(0), (own, 1)))
    gradient = jax.pmap(jax.grad(lambda r: (r**2).sum()))(rows)
    np.testing.assert_array_equal(gradient, 2 * rows)
    if count > 1:
        raised(ValueError, lambda f=summed: f(rows[:1]), "a row per device of its own")
        raised(NotImplementedError, lambda f=summed: jax.jit(f)(rows), "several processes", "shard_map")

# Callbacks run on the process that owns the device; of a value that all have, on each process
mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
A = np.arange(64, dtype=np.float32).reshape(8, 8)
a = jax.device_put(A, NamedSharding(mesh, P("x", "y")))
mine = [[d.process_index for d in line].count(me) for line in mesh.devices]
mapped = lambda f: jax.jit(shard_map(f, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_rep=False))  # noqa: E731
seen: list[tuple[int, int, float]] = []


def same(x, want):
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), want[shard.index])


def told(x):
    jax.debug.callback(
        lambda v, i, j: seen.append((int(i), int(j), float(v.sum()))), x, lax.axis_index("x"), lax.axis_index("y")
    )
    return x * 2


same(mapped(told)(a), A * 2)
assert sorted(seen) == sorted(
    (i, j, float(A[2 * i : 2 * i + 2, 4 * j : 4 * j + 4].sum()))
    for i in range(4)
    for j in range(2)
    if mesh.devices[i, j].process_index == me
)
result = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)  # noqa: E731
same(mapped(lambda x: io_callback(lambda v: np.asarray(v) + 1, result(x), x))(a), A + 1)
same(
    mapped(lambda x: jax.pure_callback(lambda v: np.asarray(v) + v.sum(), result(x), x))(a),
    A + np.kron(A.reshape(4, 2, 2, 4).sum((1, 3)), np.ones((2, 4))),
)
same(jax.jit(lambda x: jax.pure_callback(lambda v: np.asarray(v)[::-1], result(x), x))(a), A[::-1])
same(jax.jit(lambda x: io_callback(lambda v: np.asarray(v)[::-1], result(x), x, ordered=True))(a), A[::-1])
raised(
    RuntimeError, lambda: jax.jit(lambda x: jax.pure_callback(lambda v: 1 / 0, result(x), x))(a), "ZeroDivisionError"
)
if count > 1:
    with jax.disable_jit():
        raised(
            NotImplementedError,
            lambda: shard_map(jnp.sin, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(a),
            "disable_jit",
        )
# Unchecked out_specs that promise one value for all: each device keeps its own, and hands it on
parts = {d: (i, A[2 * i : 2 * i + 2, 4 * j : 4 * j + 4]) for (i, j), d in np.ndenumerate(mesh.devices)}
for axes, part in (("x", P(None, "y")), ("y", P("x", None)), (("x", "y"), P())):
    f = shard_map(
        lambda x: x * 2 + lax.axis_index("x"), mesh=mesh, in_specs=P("x", "y"), out_specs=part, check_rep=False
    )
    b = jax.jit(f)(a)
    assert b.shape == ((2 if "x" in axes else 8), (4 if "y" in axes else 8))
    c = jax.jit(lambda b: lax.fori_loop(0, 2, lambda _, held: held + 1, b))(b)
    for y, more in ((b, 0), (c, 2), (b[:] * 1, 0), (c.copy(), 2)):
        for shard in y.addressable_shards:
            i, own_part = parts[shard.device]
            np.testing.assert_array_equal(shard.data, own_part * 2 + i + more)
    on = shard_map(lambda x: x + 1, mesh=mesh, in_specs=part, out_specs=P("x", "y"), check_rep=False)
    same(on(b), A * 2 + np.repeat(np.arange(4), 2)[:, None] + 1)
assert float(a.sum()) == A.sum()
print("done", flush=True)
