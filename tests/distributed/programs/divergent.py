"""Pairs of programs, each of which all processes run, and then each process another one: `divergent.py FIRST COUNT ANSWERS`.

Writes to ANSWERS.<rank> per pair what came of it: what each program gave, and what it gave until an error when they were mixed.
"""

import importlib.util
import json
import sys
from pathlib import Path

import shardwise as jax
from shardwise.experimental.multihost_utils import sync_global_devices

FIRST, COUNT, ANSWERS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
spec = importlib.util.spec_from_file_location("pairs", Path(__file__).parents[1] / "pairs.py")
assert spec is not None and spec.loader is not None
pairs = importlib.util.module_from_spec(spec)
sys.modules["pairs"] = pairs
spec.loader.exec_module(pairs)
jax.distributed.initialize(heartbeat_timeout_seconds=30, shutdown_timeout_seconds=60)
me = jax.process_index()
setup = {}
exec(pairs.SETUP, setup)


def run(source, name):
    """What the program gave, and the errors that it ended with."""
    given, errors = [], []
    try:
        exec(compile(source, name, "exec"), setup | {"emit": lambda x: given.append(repr(float(x)))})
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
    while True:
        try:
            sync_global_devices(name)
            return given, errors
        except (RuntimeError, AssertionError) as error:
            errors.append(f"{type(error).__name__}: {error}")


with open(f"{ANSWERS}.{me}", "w") as out:
    for seed in range(FIRST, FIRST + COUNT):
        pair = pairs.pair(seed)
        told = [run(pair.first, f"first {seed}"), run(pair.second, f"second {seed}")]
        told.append(run(pair.second if me else pair.first, f"mixed {seed}"))
        print(json.dumps([seed, pair.edit, told]), file=out, flush=True)
