"""One of several processes that nothing but an address joins; the first argument says what it does after that."""

import os
import signal
import sys
import time

import numpy as np

import shardwise as jax
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

HOW = sys.argv[1]
jax.distributed.initialize(initialization_timeout=int(os.environ.get("SECONDS_TO_COME", "60")))
me, last = jax.process_index(), jax.process_count() - 1
mesh = jax.make_mesh((jax.device_count(),), ("x",))
x = jax.device_put(np.arange(24.0), NamedSharding(mesh, P("x")))
assert float(x.sum()) == 276
assert not [name for name in os.environ if name.startswith(("PMI_", "MPI_LOCAL"))], (
    "what a child would take for its own"
)
if HOW == "killed" and me == last:
    os.kill(os.getpid(), signal.SIGKILL)
if HOW == "raises" and me == last:
    raise OSError("no data here")
if HOW == "leaves":
    os._exit(0)
if HOW == "some leave" and me == last:
    os._exit(0)
if HOW in ("killed", "raises"):
    time.sleep(300)
if HOW == "differ":
    x.sum() if me else x.max()
print("done", jax.process_count(), flush=True)
