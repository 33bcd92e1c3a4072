"""The backend: one `Client` for the life of the process, and the functions that ask it for devices.

The number of devices is fixed when the backend is created, at the first call that needs devices. A multi-process layer may
install a `Topology` before that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.errors import ConfigFrozenError
from shardwise.base.locks import free_reentrant_lock
from shardwise.sharding.device import PLATFORM, Client, Device, Topology, launched_processes, unknown_memory_kind

_ACCELERATORS = ("gpu", "tpu", "cuda", "rocm", "metal")
_lock = free_reentrant_lock()
_client: Client | None = None
_topology: Topology | Callable[[], Topology] = Topology()
_device_lists: dict[tuple[Device, ...], tuple[Device, ...]] = {}


def default_memory_kind() -> str:
    """The memory kind of arrays that request none."""
    return memory_kinds()[0]


def memory_kinds() -> tuple[str, ...]:
    """The kinds of memory that the devices address, the default one first."""
    return config.dialect.devices.memory_kinds if _client is None else _client.memory_kinds()


def no_such_memory(kind: object) -> str:
    """The error text for a memory kind that no device addresses; it creates no backend."""
    return unknown_memory_kind(kind, PLATFORM if _client is None else _client.platform, memory_kinds())


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
    is_planned = _client is not None and _client.stands_for_all  # its devices are not CPUs
    if _client is not None and not is_planned and (old != new or not config.dialect.devices.count_may_be_repeated):
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
