"""Shifts along split dims: the values are those of one device, and processes send the rows that cross their borders."""

from collections.abc import Callable
from typing import Any

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.debug import count_traffic
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
devices = jax.devices()
processes = jax.process_count()
assert len(devices) == 8
A = np.sin(np.arange(32 * 16, dtype=np.float32)).reshape(32, 16)


def interior(u):
    near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].set(u[1:-1, 1:-1] + 0.1 * (near - 4 * u[1:-1, 1:-1]))


def smoothed(x, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    image, kernel = x[None, :, :, None], kernel[:, :, None, None]
    return lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=layout)


F: dict[str, Callable[..., Any]] = {
    "roll": lambda x: jnp.roll(x, 1, 0),
    "roll back": lambda x: jnp.roll(x, -3, (0, 1)),
    "roll far": lambda x: jnp.roll(x, 13, 0),
    "joined": lambda x: jnp.concatenate([x[1:], x[:1], 2 * x]),
    "zeros in front": lambda x: jnp.concatenate([jnp.zeros((1, 16)), x[:-1]]),
    "two sources": lambda x: jnp.concatenate([jnp.sin(x)[3:], jnp.cos(x)[:3]]),
    "pad": lambda x: jnp.pad(x, ((3, 5), (2, 6)), constant_values=2),
    "padded": lambda x: jnp.pad(x, ((2, 0), (0, 0)), constant_values=1)[:-2],
    "wrapped": lambda x: jnp.pad(x, 1, mode="wrap")[2:, 1:-1],
    "row": lambda x: x[5],
    "rows": lambda x: x[5:9] * 2,
    "rest": lambda x: x[3:] * 2,
    "difference": lambda x: jnp.diff(x, axis=0),
    "its sum": lambda x: jnp.abs(jnp.diff(x, axis=0)).sum(),
    "flip": lambda x: jnp.flip(x, 0),
    "update": lambda x: x.at[1:].set(x[:-1]),
    "interior": interior,
    "gradient": jax.grad(lambda x: (interior(x) ** 2).sum() + (jnp.roll(x, 1, 0) * x).sum()),
    "kernel": jax.grad(lambda x: (smoothed(x, jnp.tanh(x[8:11, 5:8])) ** 2).sum()),
    "steps": lambda x: lax.scan(lambda u, _: (interior(u) + jnp.roll(u, 1, 1), None), x, None, length=3)[0],
}
for order in (1, -1):
    for turn, (shape, spec) in enumerate(
        [((8,), P("x")), ((4, 2), P("x", "y")), ((2, 4), P("y", "x")), ((4, 2), P(("y", "x")))]
    ):
        mesh = Mesh(np.array(devices)[::order].reshape(shape), ("x", "y")[: len(shape)])
        a = jax.make_array_from_callback(A.shape, NamedSharding(mesh, spec), lambda index: A[index])
        for name, f in list(F.items())[(turn + (order < 0)) % 2 :: 2]:  # each on half of the meshes
            got, want = jax.jit(f)(a), np.asarray(jax.jit(f)(A))
            assert got.shape == want.shape, name
            for shard in got.addressable_shards:
                np.testing.assert_allclose(
                    np.asarray(shard.data), want[shard.index], rtol=1e-5, atol=1e-5, err_msg=name
                )

mesh = Mesh(np.array(devices), ("x",))
rows = jax.make_array_from_callback(
    (64, 1024), NamedSharding(mesh, P("x")), lambda index: np.ones((64, 1024), np.float32)[index]
)
for name in ("roll", "update", "wrapped"):
    f = jax.jit(F[name]) if name != "wrapped" else jax.jit(lambda x: jnp.pad(x, ((1, 1), (0, 0)), mode="wrap")[2:])
    f(rows).block_until_ready()
    with count_traffic() as traffic:
        f(rows).block_until_ready()
    most = 0 if processes == 1 else 4096
    assert traffic.total_bytes <= most + 1024, (name, traffic)
    assert processes == 1 or name == "update" or traffic.total_bytes >= most
print("done", flush=True)
