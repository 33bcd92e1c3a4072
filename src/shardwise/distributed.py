"""`shardwise.distributed`: joining the processes of one program, that `mpiexec` or `srun` started, or that meet at an address."""

from __future__ import annotations

import os
from collections.abc import Sequence

from shardwise.base.listing import listing as _listing
from shardwise.engine.planned import recorder
from shardwise.runtime.processes import CoordinatorLinks, check_gathers, comm, launched_by_mpi, number_of, split_address
from shardwise.sharding import Topology, backend_initialized
from shardwise.sharding.backend import install_topology
from shardwise.sharding.device import configured_device_count, launched_processes

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

    The processes are those that the MPI launcher started, as in ``mpiexec -n 4 python program.py``; then no argument is needed.
    Or something else started them, each on its own; then they meet at `coordinator_address`, and each is told how many they are
    and which of them it is. The environment may tell it, too: ``JAX_COORDINATOR_ADDRESS``, ``JAX_NUM_PROCESSES``, ``JAX_PROCESS_ID``.

    The cluster detection and the partition of JAX's own service have nothing to say here. In a planned run (see
    `shardwise.plan`) this process stands for all processes of the machine, and nothing is started.

    Args:
        coordinator_address: ``host:port``, where the host is that of process 0 and the port is free there. Not needed under a launcher,
            which knows the processes' addresses.
        num_processes: the number of processes; under a launcher it must be the launcher's, if given.
        process_id: the number of this process, from 0 on; under a launcher it must be the launcher's, if given.
        local_device_ids: None; virtual devices have no numbers to choose by.
        cluster_detection_method: not needed.
        initialization_timeout: seconds that a process waits here for the others before it names the missing ones, and under a
            launcher ends the job. If one of the same machine has ended it does so at once.
        heartbeat_timeout_seconds: seconds that a process waits for another before it names it and ends the job
            if the other is gone or waits for something else.
        shutdown_timeout_seconds: how long it waits for one that is alive but busy elsewhere, be it the end of the program.
        coordinator_bind_address: ``host:port`` at which process 0 listens, where that is not `coordinator_address`; by default all
            addresses of its machine (of a `coordinator_address` such as localhost that one alone). Or the environment's
            ``JAX_COORDINATOR_BIND_ADDRESS``.
        slice_index: not needed.
        partition_index: not needed.

    Raises:
        RuntimeError: called too late, or a second time, or several processes are asked for without mpi4py; there is too little
            shared memory for MPI to start; or the processes do not meet at the address: some do not come, or they were told different
            numbers, or the port is taken.
        ValueError: `num_processes` or `process_id` is missing beside an address, or out of range, or differs from the launcher's.
        NotImplementedError: devices are to be chosen by number; or processes meet at an address and the MPI library is Open MPI.

    >>> _ = jax.devices()
    >>> jax.distributed.initialize()  # too late: it comes before all else
    Traceback (most recent call last):
        ...
    RuntimeError: distributed.initialize() must be called before any device is used: ...
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
    limits = heartbeat_timeout_seconds, shutdown_timeout_seconds, initialization_timeout
    address = coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    world = None
    if address is not None and not launched_by_mpi():
        num_processes = _number(num_processes, "num_processes", "JAX_NUM_PROCESSES", 1)
        process_id = _number(process_id, "process_id", "JAX_PROCESS_ID", 0)
        _check_number(process_id, num_processes)
        at, bind = split_address(address, "coordinator_address"), _bind_address(coordinator_bind_address)
        if num_processes > 1:
            links = _gather(at, num_processes, process_id, bind, initialization_timeout)
            with links.environment():
                world = comm.join(num_processes, *limits, links)
    elif launched_processes() > 1:
        world = _join(*limits)
    rank, size = (0, 1) if world is None else (world.rank, world.size)
    if process_id is not None:
        _check_number(process_id, num_processes or size)
    if num_processes not in (None, size) or process_id not in (None, rank):
        raise ValueError(
            f"distributed.initialize was called with num_processes={num_processes} and process_id={process_id}, but this is "
            f"process {rank} of {size}. Start the program with `mpiexec -n {num_processes or size} python program.py` (or srun) "
            "and leave both arguments out, or start each process yourself and give a coordinator_address, too."
        )
    if world is not None:
        install_topology(lambda: _topology(world))
    _initialized = True


def _check_number(process_id: int, num_processes: int) -> None:
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"process_id={process_id} is no number of one of {num_processes} processes, which count from 0."
        )


def _join(limit: float, patience: float, start: float) -> comm.World:
    try:
        return comm.join(launched_processes(), limit, patience, start)
    except ImportError as error:
        raise _without_mpi(launched_processes(), error) from error


def _gather(
    at: tuple[str, int], count: int, rank: int, bind: tuple[str, int] | None, seconds: float
) -> CoordinatorLinks:
    """Meet the other processes. Missing libraries are found first, so that the others do not wait in vain."""
    try:
        check_gathers()
    except ImportError as error:
        raise _without_mpi(count, error) from error
    return CoordinatorLinks(at, count, rank, bind, seconds)


def _without_mpi(count: int, error: ImportError) -> RuntimeError:
    return RuntimeError(
        f"this is one of {count} processes, but mpi4py, over which they would talk, does not load ({error}). "
        "Install it: pip install mpi4py mpich, or in a clone pip install '.[mpi]'."
    )


def _number(given: int | None, argument: str, variable: str, least: int) -> int:
    """The value that goes with a coordinator address: an argument, or else a variable of the environment."""
    if given is None:
        text = os.environ.get(variable)
        if text is None:
            raise ValueError(
                f"distributed.initialize got a coordinator_address, and {argument} is missing. Give it as an argument or in the "
                f"environment as {variable}, or start the program by mpiexec, which needs no address."
            )
        if not text.isdecimal():
            raise ValueError(f"{variable}={text!r} is no number; {argument} is an integer of at least {least}.")
        given = int(text)
    if given < least:
        raise ValueError(f"{argument}={given} is out of range; it is an integer of at least {least}.")
    return given


def _bind_address(given: str | None) -> tuple[str, int] | None:
    text = given or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
    return split_address(text, "coordinator_bind_address") if text else None


def _topology(world: comm.World) -> Topology:
    """Called when the devices are created, which happens on all processes."""
    everyone = tuple(range(world.size))
    world.meet(everyone, number_of("devices"), lambda: "the first use of devices")
    counts = world.comm.allgather(configured_device_count())
    return Topology(world.rank, world.size, tuple(counts))


def is_initialized() -> bool:
    """Whether `initialize` was called.

    >>> jax.distributed.is_initialized()
    False
    """
    return _initialized


def shutdown() -> None:
    """Wait for the other processes to end, too; does nothing if nothing was begun.

    >>> jax.distributed.shutdown()
    """
    global _initialized
    _initialized = False
    comm.leave()


__dir__ = _listing(__name__)
