"""One of two processes does not come to `initialize`; the first argument says how."""

import os
import signal
import sys
from pathlib import Path

import shardwise as jax

HOW, ME = sys.argv[1], int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
if ME == 1:
    if HOW == "ends":
        sys.exit(0)
    if HOW == "raises":
        raise OSError("no data here")
    if HOW == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
jax.distributed.initialize(initialization_timeout=4 if HOW == "stops" else 60)
named = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/" in line]
assert jax.device_count() == 2 * jax.local_device_count()
assert not [path for path in named if Path(path).exists()], "what a killed job would leave behind"
if HOW == "all leave":
    os._exit(0)
print("done", flush=True)
