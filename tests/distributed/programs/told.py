"""What errors say of processes that differ: where, and in what. The last difference shows at the end only."""

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental.multihost_utils import sync_global_devices
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
me = jax.process_index()
mesh = Mesh(np.array(jax.devices()), ("x",))
x = jax.device_put(np.arange(16, dtype=np.float32), NamedSharding(mesh, P("x")))
w = jax.device_put(np.ones(4, np.float32), NamedSharding(mesh, P()))
rate = 2.0 + me
made = [
    jax.make_array_from_callback((16,), NamedSharding(mesh, P("x")), lambda i, k=k: np.arange(16.0)[i] + k)
    for k in (0, 1)
]
CASES = {
    "a literal": (lambda: jax.jit(lambda x: (x * rate).sum())(x), ["mul a 2.0:f32[]", "mul a 3.0:f32[]"]),
    "an eager literal": (lambda: (x * rate).sum(), ["a was made otherwise, by mul"]),
    "an op": (lambda: jax.jit(lambda x: (jnp.sin(x) if me else jnp.exp(x)).sum())(x), ["= sin a", "= exp a"]),
    "a type": (lambda: x.astype(jnp.int32 if me else jnp.int16).sum(), ["= convert_element_type[", "= reduce_sum["]),
    "weights": (lambda: (x * (w * (0.168 if me else 0.336))[0]).sum(), ["was made otherwise, by mul"]),
    "a place": (lambda: x[0] if me else x[5], ["start_indices=(0,)", "start_indices=(5,)"]),
    "a length": (lambda: jax.jit(lambda x: lax.fori_loop(0, 3 + me, lambda i, c: c + x.sum(), 0.0))(x), ["length=3", "length=4"]),
    "a value": (lambda: jax.jit(lambda x, rate: (x * rate).sum())(x, rate), ["rate: float32[] = [2.0]", "rate: float32[] = [3.0]"]),
    "one of two arrays": (lambda: (made[0] - made[1] if me else made[1] - made[0]).sum(), ["a was made otherwise, by sub"]),
    "another line": (lambda: x.sum() if me else x.max(), ["process 0: max with", "process 1: sum with"]),
}  # fmt: skip

for name, (call, texts) in CASES.items():
    try:
        call()
    except RuntimeError as error:
        assert type(error).__name__ == "DivergenceError", error
        for text in texts:
            assert text in str(error), f"{name}: {text!r} is not in {error}"
    else:
        raise SystemExit(f"{name}: no error")
    assert float(x.sum()) == 120  # all are in step
try:
    _ = w * rate
    sync_global_devices("barrier")
except RuntimeError as error:
    assert "process 1: mul" in str(error), error
else:
    raise SystemExit("no error at a barrier")
print("all told", flush=True)
jax.jit(lambda w: w / rate)(w)  # nobody exchanges anything with it any more
