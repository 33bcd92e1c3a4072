"""`shardwise.distributed`: joining the processes of one program. This version runs programs as one process."""

from __future__ import annotations

import os
from collections.abc import Sequence

from shardwise.sharding import backend_initialized

__all__ = ["initialize", "is_initialized", "shutdown"]

# What MPI launchers tell each process about how many there are.
_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")

_initialized = False


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Begin a program of several processes, before any device is used.

    One process alone needs no address, timeout or partition, so that of the arguments only `num_processes`,
    `process_id` and `local_device_ids` can be wrong.

    Raises:
        RuntimeError: called too late, or a second time.
        ValueError: `process_id` is not below `num_processes`.
        NotImplementedError: there is more than one process, or devices are to be chosen by number.
    """
    global _initialized
    if _initialized:
        raise RuntimeError("distributed.initialize should only be called once.")
    if backend_initialized():
        raise RuntimeError(
            "distributed.initialize() must be called before any device is used: before devices(), the first array and "
            "the first call of a jitted function."
        )
    count = num_processes if num_processes is not None else _launched_processes()
    if process_id is not None and not 0 <= process_id < count:
        raise ValueError(f"process_id={process_id} is no number of one of {count} processes, which count from 0.")
    if count > 1:
        raise NotImplementedError(
            f"{count} processes cannot work together yet. Run the program as one process with as many virtual devices: "
            "config.update('jax_num_cpu_devices', n)."
        )
    if local_device_ids is not None:
        raise NotImplementedError(
            "local_device_ids chooses among a process's accelerators; virtual CPU devices have no numbers to choose "
            "by. Say how many there are: config.update('jax_num_cpu_devices', n)."
        )
    _initialized = True


def is_initialized() -> bool:
    """Whether `initialize` was called."""
    return _initialized


def shutdown() -> None:
    """The end of what `initialize` began; does nothing if nothing was begun."""
    global _initialized
    _initialized = False


def _launched_processes() -> int:
    for variable in _SIZE_VARIABLES:
        if (text := os.environ.get(variable, "")).isdecimal():
            return int(text)
    return 1
