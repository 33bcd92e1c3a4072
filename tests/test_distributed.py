"""`distributed.initialize` on one process, and its errors."""

from __future__ import annotations

import pytest

INITIALIZE = """
import shardwise as jax
try:
    {before}
    jax.distributed.initialize({arguments})
    print(jax.distributed.is_initialized(), jax.process_count(), jax.device_count())
    {after}
    jax.distributed.shutdown()
    print(jax.distributed.is_initialized())
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "before, arguments, after, printed",
    [
        ("", "", "", "True 1 8\nFalse\n"),
        ("", "'localhost:1234', 1, 0", "", "True 1 8\nFalse\n"),
        ("jax.devices()", "", "", "RuntimeError distributed.initialize() must be called before"),
        ("", "", "jax.distributed.initialize()", "True 1 8\nRuntimeError distributed.initialize should only be called"),
        ("", "num_processes=2, process_id=0", "", "ValueError distributed.initialize was called with num_processes=2"),
        ("", "num_processes=1, process_id=1", "", "ValueError process_id=1"),
        ("", "local_device_ids=[0]", "", "NotImplementedError local_device_ids"),
    ],
)
def test_initialize(shell, before, arguments, after, printed):
    program = INITIALIZE.format(before=before or "pass", arguments=arguments, after=after or "pass")
    done = shell("-c", program, JAX_NUM_CPU_DEVICES="8")
    assert done.stderr == ""
    assert done.stdout.startswith(printed)


def test_asked_for_more_than_started(shell):
    done = shell("-c", INITIALIZE.format(before="pass", arguments="num_processes=4, process_id=0", after="pass"))
    assert "this is process 0 of 1. Start the program with `mpiexec -n 4" in done.stdout
