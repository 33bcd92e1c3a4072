"""Host values that should be equal on all processes and are not: refused by name, on every process; then all goes on."""

import numpy as np

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
me, count, devices = jax.process_index(), jax.process_count(), jax.devices()
mesh = Mesh(np.array(devices), ("x",))
split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
x = jax.device_put(np.arange(16.0, dtype=np.float32), split)


def refused(call, *texts):
    """Raises on all processes if there are several, and only if values differ."""
    try:
        call()
    except RuntimeError as error:
        assert count > 1, error
        assert all(text in str(error) for text in texts), error
    else:
        assert count == 1
    assert float(x.sum()) == 120  # all are in step


@jax.jit
def step(x, rate, table):
    return (x * rate).sum() + table.sum()


big = np.random.default_rng(0).normal(size=(512, 64)).astype(np.float32)
for _ in range(2):
    assert abs(float(step(x, 0.5, big)) - 60 - big.sum()) < 1
refused(lambda: step(x, 0.5 + me, big), "step", "rate: float32[] = [0.5]", "process 1", "rate: float32[] = [1.5]")
refused(lambda: step(x, 0.5, big + me), "table: float32[512,64] with the checksum")
shuffled = big[np.random.default_rng(me).permutation(512)]
refused(lambda: step(x, 0.5, shuffled), "table: float32[512,64]")
wide = np.zeros((64, 4096), np.float32)
wide[me] = 1  # equal rows, in another order
refused(lambda: step(x, 0.5, wide), "table: float32[64,4096]")
refused(lambda: step(x, jnp.float32(me), big), "rate: float32[]")
refused(
    lambda: jax.jit(lambda x, key: (x + jax.random.normal(key, (16,))).sum())(x, jax.random.PRNGKey(me)),
    "key: uint32[2]",
)
captured = jnp.arange(16.0) * me
total = jax.jit(lambda x: (x * captured).sum())
refused(lambda: total(x), "a captured constant: float32[16]")
refused(lambda: jax.jit(lambda x, y: x + y, in_shardings=(split, whole))(x, np.float32(me)), "argument of type f32[]")
refused(lambda: x @ (np.ones(16, np.float32) + me), "float32[16]")
with_flag = jax.jit(lambda x: x.sum())
jax.config.update("shardwise_check_replicas", False)
with_flag(x)
unchecked = jax.jit(lambda x, rate: (x * rate).sum())
unchecked(x, float(me))  # each gets what it asked for: nobody compares
jax.config.update("shardwise_check_replicas", True)
if me == 0:
    jax.jit(lambda x, k: x * k)(x, 3.0)  # exchanges nothing: one process may run it alone
assert float(x.sum()) == 120
print("done", flush=True)
