"""Devices: plain data that identify the places of shards.

A device is a number in a process; nothing runs per device, so thousands cost no more than their objects. Their
number is fixed when the backend is created, at the first call that needs devices. A multi-process layer may install a
`Topology` before that; it assigns devices to processes.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise.base import config
from shardwise.base.errors import ConfigFrozenError, JaxRuntimeError

PLATFORM = "cpu"
_ACCELERATORS = ("gpu", "tpu", "cuda", "rocm", "metal")


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
        raise JaxRuntimeError(unknown_memory_kind(kind))

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return config.dialect.devices.text.format(self.id)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Device' object: it stands for a place in this process and cannot leave it.")


class CpuDevice(Device):
    """A (virtual) CPU device, the only kind of this machine's devices."""

    __slots__ = ()


def unknown_memory_kind(kind: object) -> str:
    """The error text for a memory kind that does not exist; it lists the existing kinds."""
    kinds, platform = ", ".join(memory_kinds()), PLATFORM if _client is None else _client.platform
    return (
        f"Could not find memory addressable by device {platform}. "
        f"Device {platform} can address the following memory kinds: {kinds}. Got memory kind: {kind}"
    )


def default_memory_kind() -> str:
    """The memory kind of arrays that request none."""
    return memory_kinds()[0]


def memory_kinds() -> tuple[str, ...]:
    """The kinds of memory that the devices address, the default one first."""
    return config.dialect.devices.memory_kinds if _client is None else _client.memory_kinds()


class Client:
    """The backend: all devices of all processes, in order of process, then local index."""

    platform = PLATFORM
    device_kind = PLATFORM
    platform_version = "shardwise"
    runtime_type = "shardwise"
    stands_for_all = False  # whether this process represents all processes (a planned run)

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

    def first_local_device(self) -> Device:
        """The device of uncommitted results."""
        return self._devices[self._starts[self.process_index_]]


_lock = threading.RLock()
_client: Client | None = None
_topology: Topology | Callable[[], Topology] = Topology()
memory_stats_source: Callable[[Device], dict[str, Any] | None] | None = None
_device_lists: dict[tuple[Device, ...], tuple[Device, ...]] = {}


def configured_device_count() -> int:
    """The number of devices of a process: `jax_num_cpu_devices`, else XLA_FLAGS, else one."""
    count = config.read("jax_num_cpu_devices")
    if count == -1:
        flags = os.environ.get("XLA_FLAGS", "")
        found = re.findall(r"--xla_force_host_platform_device_count=(\S*)", flags)
        if not found:
            return 1
        try:
            count = int(found[-1])
        except ValueError:
            raise RuntimeError(
                f"XLA_FLAGS asks for {found[-1]!r} CPU devices; --xla_force_host_platform_device_count takes a number."
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


def install_topology(topology: Topology | Callable[[], Topology]) -> None:
    """Set the topology. A callable is called when the backend is created.

    Raises:
        ConfigFrozenError: the backend exists already.
    """
    global _topology
    if _client is not None:
        raise ConfigFrozenError(
            "The processes must be set up before the first use of devices (devices(), creating an array, calling a "
            "jitted function). Call distributed.initialize() at the top of the program."
        )
    _topology = topology


def backend() -> Client:
    """The backend, created on first use."""
    if _client is not None:
        return _client
    return _create_backend()


def _create_backend() -> Client:
    global _client
    with _lock:
        if _client is None:
            _check_platform()
            if not callable(_topology) and _topology.process_count == 1 and (count := launched_processes()) > 1:
                warnings.warn(
                    f"This is one of {count} processes, but distributed.initialize() was not called: each of them runs the "
                    "whole program on its own devices.",
                    stacklevel=4,
                )
            _client = Client(_topology() if callable(_topology) else _topology)
    return _client


def _check_platform() -> None:
    for option in ("jax_platforms", "jax_platform_name"):
        value = config.read(option)
        if value and PLATFORM not in [name.strip() for name in value.split(",")]:
            raise RuntimeError(
                f"Unable to initialize backend '{value}': {option} asks for it, but this library has only the "
                f"platform 'cpu'. Set {option} to 'cpu', or leave it unset."
            )


def install_client(client: Client | None) -> Client | None:
    """Make `client` the backend (None: create one at the next use of devices); returns the previous backend."""
    global _client
    with _lock:
        before, _client = _client, client
    return before


def backend_initialized() -> bool:
    """Whether the devices exist already.

    >>> _ = jax.devices()
    >>> jax.sharding.backend_initialized()
    True
    """
    return _client is not None


def device_list(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The interned tuple of these devices: equal lists are the same object."""
    key = tuple(devices)
    return _device_lists.setdefault(key, key)


def _select(platform: str | Client | None) -> Client:
    if platform is None or isinstance(platform, Client):
        return platform or backend()
    if platform == backend().platform:
        return backend()
    if platform != PLATFORM:
        if platform in _ACCELERATORS:
            raise RuntimeError(
                f"Unknown backend: '{platform}' requested, but no platforms that are instances of {platform} are "
                f"present. Platforms present are: {PLATFORM}"
            )
        raise RuntimeError(f"Unknown backend {platform}. Available backends are ['{PLATFORM}']")
    return backend().host


def devices(backend: str | Client | None = None) -> list[Device]:
    """All devices of all processes, ordered by process, then by local index.

    Raises:
        RuntimeError: `backend` is no platform of this library.

    >>> jax.devices()[0]
    CpuDevice(id=0)
    """
    return _select(backend).devices()


def local_devices(
    process_index: int | None = None, backend: str | Client | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of the process `process_index` (formerly `host_id`), by default of this one.

    Raises:
        ValueError: there is no such process.
        RuntimeError: `backend` is no platform of this library.

    >>> jax.local_devices()[0].process_index
    0
    """
    if host_id is not None:
        warnings.warn("local_devices(host_id=) is now called process_index=.", UserWarning, stacklevel=2)
        process_index = host_id
    client = _select(backend)
    if process_index is None:
        process_index = client.process_index_
    if not 0 <= process_index < client.topology.process_count:
        raise ValueError(f"Unknown process_index {process_index}")
    return client.local_devices(process_index)


def device_count(backend: str | Client | None = None) -> int:
    """The number of devices of all processes.

    `backend`: the platform to count on, None or 'cpu'; RuntimeError for another one.

    >>> jax.device_count() == len(jax.devices())
    True
    """
    return _select(backend).device_count()


def local_device_count(backend: str | Client | None = None) -> int:
    """The number of devices of this process. `backend`: None or 'cpu'; RuntimeError for another platform.

    >>> jax.local_device_count() == len(jax.local_devices())
    True
    """
    return _select(backend).local_device_count()


def process_index(backend: str | Client | None = None) -> int:
    """This process's rank. `backend`: None or 'cpu'; RuntimeError for another platform.

    >>> jax.process_index()
    0
    """
    return _select(backend).process_index_


def process_count(backend: str | Client | None = None) -> int:
    """The number of processes. `backend`: None or 'cpu'; RuntimeError for another platform.

    >>> jax.process_count()
    1
    """
    return _select(backend).topology.process_count


def process_indices(backend: str | Client | None = None) -> list[int]:
    """The ranks of all processes. `backend`: None or 'cpu'; RuntimeError for another platform.

    >>> jax.process_indices()
    [0]
    """
    return list(range(process_count(backend)))


def default_backend() -> str:
    """The platform of the devices: `'cpu'`.

    >>> jax.default_backend()
    'cpu'
    """
    return backend().platform


def host_id(backend: str | Client | None = None) -> int:
    """Older name of `process_index`; warns. `backend` as there.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     print(jax.host_id())
    0
    """
    warnings.warn("host_id is now called process_index.", UserWarning, stacklevel=2)
    return process_index(backend)


def host_count(backend: str | Client | None = None) -> int:
    """Older name of `process_count`; warns. `backend` as there.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     print(jax.host_count())
    1
    """
    warnings.warn("host_count is now called process_count.", UserWarning, stacklevel=2)
    return process_count(backend)


def host_ids(backend: str | Client | None = None) -> list[int]:
    """Older name of `process_indices`; warns. `backend` as there.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     print(jax.host_ids())
    [0]
    """
    warnings.warn("host_ids is now called process_indices.", UserWarning, stacklevel=2)
    return process_indices(backend)


def default_device() -> Device:
    """The device of uncommitted results: the `jax_default_device` of this thread, else the first local device."""
    device = _default_device.get()
    if device is None or isinstance(device, str):
        return backend().first_local_device()
    return device


_default_device = config.setting("jax_default_device")


def _check_device_count(old: int, new: int) -> None:
    planned = _client is not None and _client.stands_for_all  # its devices are not CPUs
    if _client is not None and not planned and (old != new or not config.dialect.devices.count_may_be_repeated):
        raise ConfigFrozenError(
            "jax_num_cpu_devices config should be updated before backends are initialized, i.e. before any operation "
            f"is executed; {_client.local_device_count()} device(s) exist already. Set it right after the import."
        )


def _check_default_device(old: Any, new: Any) -> None:
    if new is not None and not isinstance(new, (Device, str)):
        raise ValueError(
            "jax.default_device takes a Device (as in devices()[0]), a platform name such as 'cpu', or None; "
            f"got {new!r} of type {type(new).__name__}."
        )
    if isinstance(new, str) and new != PLATFORM:
        _select(new)


config.before_update("jax_num_cpu_devices", _check_device_count)
config.before_update("jax_default_device", _check_default_device)
