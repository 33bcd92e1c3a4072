"""`shardwise.distributed`: joining the processes of one program, that `mpiexec` or `srun` started."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.base.listing import listing as _listing
from shardwise.engine.planned import recorder
from shardwise.runtime.processes import comm
from shardwise.sharding import Topology, backend_initialized
from shardwise.sharding.device import configured_device_count, install_topology, launched_processes

__all__ = ["initialize", "is_initialized", "shutdown"]

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
    """Begin a program of several processes, before any device is used: each then owns a part of the devices.

    The processes are those that the MPI launcher started, as in ``mpiexec -n 4 python program.py``; no argument is needed.
    The addresses, the cluster detection and the partition of JAX's own service have nothing to say here. In a planned run (see
    `shardwise.plan`) this process stands for all processes of the machine, and nothing is started.

    Args:
        coordinator_address: not needed: MPI knows the processes' addresses.
        num_processes: must be MPI's count, if given.
        process_id: must be MPI's rank of this process, if given.
        local_device_ids: None; virtual devices have no numbers to choose by.
        cluster_detection_method: not needed.
        initialization_timeout: seconds that a process waits here for the others before it names the missing ones and ends the
            job. If one of the same machine has ended it does so at once.
        heartbeat_timeout_seconds: seconds that a process waits for another before it names it and ends the job
            if the other is gone or waits for something else.
        shutdown_timeout_seconds: how long it waits for one that is alive but busy elsewhere, be it the end of the program.
        coordinator_bind_address: not needed.
        slice_index: not needed.
        partition_index: not needed.

    Raises:
        RuntimeError: called too late, or a second time, or several processes are asked for without mpi4py; or there is too little
            shared memory for MPI to start.
        ValueError: `num_processes` or `process_id` differs from MPI's.
        NotImplementedError: devices are to be chosen by number.
    """
    global _initialized
    if _initialized:
        raise RuntimeError("distributed.initialize should only be called once.")
    if recorder() is not None:  # this process stands for all of the machine's
        _initialized = True
        return
    if backend_initialized():
        raise RuntimeError(
            "distributed.initialize() must be called before any device is used: before devices(), the first array and "
            "the first call of a jitted function."
        )
    if local_device_ids is not None:
        raise NotImplementedError(
            "local_device_ids chooses among a process's accelerators; virtual CPU devices have no numbers to choose "
            "by. Say how many there are: config.update('jax_num_cpu_devices', n)."
        )
    world = (
        _join(heartbeat_timeout_seconds, shutdown_timeout_seconds, initialization_timeout)
        if launched_processes() > 1
        else None
    )
    rank, size = (0, 1) if world is None else (world.rank, world.size)
    if process_id is not None and not 0 <= process_id < (num_processes or size):
        raise ValueError(
            f"process_id={process_id} is no number of one of {num_processes or size} processes, which count from 0."
        )
    if num_processes not in (None, size) or process_id not in (None, rank):
        raise ValueError(
            f"distributed.initialize was called with num_processes={num_processes} and process_id={process_id}, but this is "
            f"process {rank} of {size}. Start the program with `mpiexec -n {num_processes or size} python program.py` (or srun) "
            "and leave both arguments out."
        )
    if world is not None:
        install_topology(lambda: _topology(world))
    _initialized = True


def _join(limit: float, patience: float, start: float) -> comm.World | None:
    try:
        return comm.join(limit, patience, start)
    except ImportError as error:
        raise RuntimeError(
            f"this is one of {launched_processes()} processes, but mpi4py, over which they would talk, does not load ({error}). "
            "Install it: pip install mpi4py mpich, or in a clone pip install '.[mpi]'."
        ) from error


def _topology(world: comm.World) -> Topology:
    """Called when the devices are created, which happens on all processes."""
    everyone = tuple(range(world.size))
    world.meet(everyone, comm.number_of("devices"), lambda: "the first use of devices")
    counts = world.comm.allgather(configured_device_count())
    return Topology(world.rank, world.size, tuple(counts))


def is_initialized() -> bool:
    """Whether `initialize` was called."""
    return _initialized


def shutdown() -> None:
    """Wait for the other processes to end, too; does nothing if nothing was begun."""
    global _initialized
    _initialized = False
    comm.leave()


__dir__ = _listing(__name__)
