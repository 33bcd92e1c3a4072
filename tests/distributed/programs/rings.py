"""Products beside gathers and scatters as rings: values of one device, and the bytes that a ring sends."""

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise.debug import count_traffic
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
devices = jax.devices()
processes = jax.process_count()
assert len(devices) == 8
N = 1024
A = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)
WANT = {False: A.astype(np.float64) @ A, True: A.astype(np.float64) @ A.T}


def run(mesh, specs, result, turned, choice):
    """The result under this choice, its collectives, and the bytes that all processes send."""
    jax.config.update("shardwise_collective_matmul", choice)
    x, w = [jax.make_array_from_callback((N, N), NamedSharding(mesh, s), lambda index: A[index]) for s in specs]

    def product(x, w):
        return lax.with_sharding_constraint(x @ (w.T if turned else w), NamedSharding(mesh, result))

    f = jax.jit(product)
    out = f(x, w).block_until_ready()
    with count_traffic() as traffic:
        f(x, w).block_until_ready()
    executable = f.lower(x, w).compile().runtime_executable()
    return out, [t.kind for t in executable.transfers], traffic.total_bytes


CASES = (
    ((P("x"), P(None, "x")), P("x"), False),
    ((P("x"), P("x")), P("x"), True),
    ((P("x"), P("x")), P("x"), False),
    ((P(None, "x"), P("x")), P("x"), False),
    ((P(None, "x"), P("x")), P(None, "x"), False),
)
mesh = Mesh(np.array(devices)[::-1], ("x",))
for specs, result, turned in CASES:
    _, _, sent = run(mesh, specs, result, turned, "off")
    # A gather of 4 MiB beside 2 * 1024^2 * 128 operations: enough between processes, and none within one.
    for choice in ("auto",) if processes > 1 else ("auto", "on"):
        ringed, kinds, passed_on = run(mesh, specs, result, turned, choice)
        rings = processes > 1 or choice == "on"
        assert kinds.count("permute") == (7 if rings else 0), (specs, choice, kinds)
        for got in ringed.addressable_shards:
            whole = WANT[turned][got.index]
            np.testing.assert_allclose(np.asarray(got.data), whole, rtol=0, atol=1e-5 * np.abs(whole).max())
        # A process sends each other part once; round a ring, one part in each of 7 steps.
        assert passed_on * (8 - 8 // processes) == sent * 7, (specs, sent, passed_on)
jax.config.update("shardwise_collective_matmul", "auto")
small = jax.make_array_from_callback((64, 64), NamedSharding(mesh, P("x")), lambda index: A[:64, :64][index])
f = jax.jit(lambda x, w: lax.with_sharding_constraint(x @ w.T, NamedSharding(mesh, P("x"))))
assert "permute" not in [t.kind for t in f.lower(small, small).compile().runtime_executable().transfers]
print("done", flush=True)
