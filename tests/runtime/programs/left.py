"""A process that leaves a program in the middle, by an error that it catches, and goes on with another: nobody mixes anything.

The argument is how long processes wait for each other.
"""

import sys

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=int(sys.argv[1]))
me = jax.process_index()
mesh = Mesh(np.array(jax.devices()), ("x",))
a = jax.make_array_from_callback((8,), NamedSharding(mesh, P("x")), lambda index: np.arange(8, dtype=np.float32)[index])


def mapped(f):
    return jax.jit(shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P()))


def fail(x):
    if me == 1:
        raise KeyError("no such part")
    return x


interrupted = mapped(lambda v: lax.psum(lax.pmax(v, "x") + jax.pure_callback(fail, v, v), "x"))
other = mapped(lambda v: lax.pmin(v, "x"))
seen = []
for f in (interrupted, other) if me == 1 else (interrupted,):
    try:
        f(a)
    except Exception as error:
        seen.append(type(error).__name__ if "different things together" in str(error) else "own")
assert seen == (["own", "DivergenceError"] if me == 1 else ["DivergenceError"]), seen
assert float(other(a)[0]) == 0.0
print("done", flush=True)
