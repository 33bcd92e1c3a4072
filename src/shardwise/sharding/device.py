"""Devices: plain data that identify the places of shards.

A device is a number in a process; nothing runs per device, so thousands cost no more than their objects. A `Client` makes
them from a `Topology`, which assigns devices to processes.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.errors import JaxRuntimeError
from shardwise.base.lazy_dataclasses import dataclass

PLATFORM = "cpu"
memory_stats_source: Callable[[Device], dict[str, Any] | None] | None = None  # the engine installs it


@dataclass(frozen=True)
class Topology:
    """The rank of this process, and the number of devices of each process.

    Attributes:
        process_index: rank of this process.
        process_count: number of processes.
        devices_per_process: one count for all processes, one per process, or None: the settings give every process's count.
    """

    process_index: int = 0
    process_count: int = 1
    devices_per_process: int | tuple[int, ...] | None = None

    def counts(self) -> tuple[int, ...]:
        """The number of devices of each process."""
        per_process = self.devices_per_process
        if per_process is None:
            per_process = configured_device_count()
        if isinstance(per_process, int):
            return (per_process,) * self.process_count
        return tuple(per_process)


class Memory:
    """A memory that devices address; on CPUs all kinds are host memory under different names."""

    __slots__ = ("_client", "id", "kind", "process_index")

    def __init__(self, id: int, kind: str, process_index: int, client: Client):
        self.id = id
        self.kind = kind
        self.process_index = process_index
        self._client = client

    @property
    def platform(self) -> str:
        """The platform of the devices that address this memory."""
        return self._client.platform

    def addressable_by_devices(self) -> list[Device]:
        """The devices that can read and write it."""
        return [device for device in self._client.local_devices() if self in device.addressable_memories()]

    def __repr__(self) -> str:
        name = "CPU_DEVICE" if self.kind == "device" else self.kind.upper()
        return f"{name}_{self.id}"

    def __str__(self) -> str:
        name = {"device": "CpuDeviceMemory"}.get(
            self.kind, "".join(part.title() for part in self.kind.split("_")) + "MemorySpace"
        )
        return f"{name}(id={self.id}, process_index={self.process_index}, client={self.platform})"


class Device:
    """A place for shards. Made by the backend only; compared and hashed by identity.

    Attributes:
        id: unique over all processes.
        process_index: the process that owns the device.
        client: the backend it belongs to.
    """

    __slots__ = ("__weakref__", "_local_index", "_memories", "client", "id", "process_index")

    def __init__(self, id: int, process_index: int, local_index: int, client: Client):
        self.id = id
        self.process_index = process_index
        self.client = client
        self._local_index = local_index
        self._memories: dict[tuple[str, ...], tuple[Memory, ...]] | None = None

    @property
    def platform(self) -> str:
        """`'cpu'`; in a planned run the machine's platform."""
        return self.client.platform

    @property
    def device_kind(self) -> str:
        """`'cpu'`; in a planned run the kind of the machine's devices."""
        return self.client.device_kind

    @property
    def host_id(self) -> int:
        """Older name of `process_index`."""
        return self.process_index

    @property
    def task_id(self) -> int:
        """Older name of `process_index`."""
        return self.process_index

    @property
    def is_local(self) -> bool:
        """Whether this process owns the device."""
        return self.process_index == self.client.process_index_

    @property
    def local_hardware_id(self) -> int | None:
        """Position among its process's devices; None for a device of another process."""
        return self._local_index if self.is_local else None

    @property
    def local_index(self) -> int:
        """Position among the devices of its process, which may be another one."""
        return self._local_index

    def memory_stats(self) -> dict[str, Any] | None:
        """Statistics of the memory pool if the runtime offers them, else None."""
        return memory_stats_source(self) if memory_stats_source is not None else None

    def live_buffers(self) -> list[Any]:
        """Deprecated and always empty: `live_arrays()` lists the live arrays."""
        warnings.warn(
            "Device.live_buffers() is deprecated and finds nothing; live_arrays() lists the arrays that are alive.",
            DeprecationWarning,
            stacklevel=2,
        )
        return []

    def addressable_memories(self) -> list[Memory]:
        """The memories this device can address, the default one first."""
        kinds = self.client.memory_kinds()
        if self._memories is None:
            self._memories = {}
        if kinds not in self._memories:
            first = self.client.position(self) * len(kinds)
            self._memories[kinds] = tuple(
                Memory(first + i, kind, self.process_index, self.client) for i, kind in enumerate(kinds)
            )
        return list(self._memories[kinds])

    def default_memory(self) -> Memory:
        """The memory of arrays that request none."""
        return self.addressable_memories()[0]

    def memory(self, kind: str) -> Memory:
        """The memory of one kind.

        Raises:
            JaxRuntimeError: the device addresses no such memory.
        """
        for memory in self.addressable_memories():
            if memory.kind == kind:
                return memory
        raise JaxRuntimeError(unknown_memory_kind(kind, self.platform, self.client.memory_kinds()))

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return config.dialect.devices.text.format(self.id)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Device' object: it stands for a place in this process and cannot leave it.")


class CpuDevice(Device):
    """A (virtual) CPU device, the only kind of this machine's devices."""

    __slots__ = ()


def unknown_memory_kind(kind: object, platform: str, kinds: Sequence[str]) -> str:
    """The error text for a memory kind that is none of the `kinds` of the platform's devices."""
    return (
        f"Could not find memory addressable by device {platform}. "
        f"Device {platform} can address the following memory kinds: {', '.join(kinds)}. Got memory kind: {kind}"
    )


_KEPT_LISTS: dict[str, Callable[[], list[Any]]] = {}


def install_kept(**lists: Callable[[], list[Any]]) -> None:
    """Install what lists the arrays and the compiled programs that are kept (done where these are defined)."""
    _KEPT_LISTS.update(lists)


# From the axes of an all-to-all to how much longer a byte of it takes than one of a gather over the same axes.
Crowding = Callable[[tuple[str, ...]], float]


class Client:
    """The backend: all devices of all processes, in order of process, then local index."""

    platform = PLATFORM
    device_kind = PLATFORM
    platform_version = "shardwise"
    runtime_type = "shardwise"
    stands_for_all = False  # whether this process represents all processes (a planned run)
    # From the sizes of a mesh's axes to how crowded links are in an all-to-all there; None where nothing is known of links.
    crowding: Callable[[tuple[tuple[str, int], ...]], Crowding | None] | None = None

    def __init__(self, topology: Topology):
        counts = topology.counts()
        if len(counts) != topology.process_count:
            raise ValueError(
                f"The topology counts {topology.process_count} processes but gives device counts for {len(counts)}."
            )
        stride = config.dialect.devices.id_stride
        if len(counts) > 1 and max(counts) > stride:
            stride = max(counts)
        self.topology = topology
        self.process_index_ = topology.process_index
        self._devices = tuple(
            CpuDevice(process * stride + i, process, i, self)
            for process, count in enumerate(counts)
            for i in range(count)
        )
        self._starts = tuple(sum(counts[:process]) for process in range(len(counts) + 1))

    @property
    def host(self) -> Client:
        """The backend of this machine's own devices."""
        return self

    def memory_kinds(self) -> tuple[str, ...]:
        """The kinds of memory that the devices address, the default one first."""
        return config.dialect.devices.memory_kinds

    def devices(self) -> list[Device]:
        """All devices."""
        return list(self._devices)

    def local_devices(self, process: int | None = None) -> list[Device]:
        """The devices of one process, by default of this one."""
        process = self.process_index_ if process is None else process
        return list(self._devices[self._starts[process] : self._starts[process + 1]])

    def device_count(self) -> int:
        """The number of all devices."""
        return len(self._devices)

    def local_device_count(self, process: int | None = None) -> int:
        """The number of devices of one process, by default of this one."""
        process = self.process_index_ if process is None else process
        return self._starts[process + 1] - self._starts[process]

    def process_index(self) -> int:
        """This process's rank."""
        return self.process_index_

    def position(self, device: Device) -> int:
        """Position of a device in the list of all devices."""
        return self._starts[device.process_index] + device.local_index

    def live_arrays(self) -> list[Any]:
        """The arrays of this process that are not deleted."""
        return _KEPT_LISTS["arrays"]()

    live_buffers = live_arrays

    def live_executables(self) -> list[Any]:
        """The compiled programs that this process keeps."""
        return _KEPT_LISTS["executables"]()

    def first_local_device(self) -> Device:
        """The device of uncommitted results."""
        return self._devices[self._starts[self.process_index_]]


def configured_device_count() -> int:
    """The number of devices of a process: `jax_num_cpu_devices`, else XLA_FLAGS, else one."""
    count = config.read("jax_num_cpu_devices")
    if count == -1:
        flags = os.environ.get("XLA_FLAGS", "")
        counts = re.findall(r"--xla_force_host_platform_device_count=(\S*)", flags)
        if not counts:
            return 1
        try:
            count = int(counts[-1])
        except ValueError:
            raise RuntimeError(
                f"XLA_FLAGS asks for {counts[-1]!r} CPU devices; --xla_force_host_platform_device_count takes a number."
            ) from None
    if count < 1:
        raise RuntimeError(f"jax_num_cpu_devices is {count}, but a backend needs at least one device.")
    return count


def launched_processes() -> int:
    """The number of processes that the launcher started, according to its environment variables; 1 without a launcher."""
    for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"):
        if (text := os.environ.get(variable, "")).isdecimal():
            return int(text)
    return 1
