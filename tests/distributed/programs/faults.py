"""One of several processes does what it should not; the first argument says what."""

import os
import signal
import sys
import time

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

patience = 60 if "slow" in sys.argv else 2
jax.distributed.initialize(heartbeat_timeout_seconds=patience, shutdown_timeout_seconds=patience)
me = jax.process_index()
mesh = Mesh(np.array(jax.devices()), ("x",))


def split(values):
    return jax.make_array_from_callback(values.shape, NamedSharding(mesh, P("x")), lambda index: values[index])


def mapped(f):
    return jax.jit(shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P()))


a = split(np.arange(16, dtype=np.float32))
total, top = mapped(lambda v: lax.psum(v, "x")), mapped(lambda v: lax.pmax(v, "x"))


def other_op():
    (top if me else total)(a)


def other_shape():
    total(a if me else split(np.ones(8, np.float32)))


def other_order():
    for f in (total, top) if me else (top, total):
        f(a)


def raises():
    if me == 1:
        raise KeyError("data file is missing")
    a.sum()


def absent():
    if me == 1:
        time.sleep(60)
    a.sum()


def ends_early():
    if me == 0:
        a.sum()


def exits():
    if me == 0:
        sys.exit(3)
    a.sum()


def swallows():
    def fail(x):
        if me == 1:
            raise MemoryError("no room")
        return x

    f = mapped(lambda v: lax.psum(jax.pure_callback(fail, v, v), "x"))
    try:
        f(a)
    except Exception:
        time.sleep(60)


def killed():
    if me == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    a.sum()


def slow():
    if me == 1:
        time.sleep(2)
    print(float(a.sum()), flush=True)


if sys.argv[2:] == ["caught"]:
    try:
        globals()[sys.argv[1]]()
    except RuntimeError:
        print(f"{me} caught; then {float(a.sum())}", flush=True)
else:
    globals()[sys.argv[1]]()
