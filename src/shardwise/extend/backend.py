"""`shardwise.extend.backend`: the backends, and what is kept in memory for them."""

from collections.abc import Callable
from typing import Any, TypeVar

from shardwise.base.refused import refuse_names
from shardwise.sharding import Device
from shardwise.sharding import devices as all_devices
from shardwise.sharding.backend import default_device
from shardwise.sharding.device import Client
from shardwise.transforms.jit.shared_caches import clear_caches

__all__ = ["backends", "clear_in_memory_compilation_cache", "get_backend", "get_default_device"]

F = TypeVar("F", bound=Callable[..., Any])


def get_backend(platform: str | Client | None = None) -> Client:
    """The backend of a platform; the default one if it is None.

    Raises:
        RuntimeError: there is none of that platform.
    """
    return all_devices(platform)[0].client


def _forget() -> None:
    """Return at once: `get_backend` looks its answer up each time."""


get_backend.cache_clear = _forget  # type: ignore[attr-defined]


def backends() -> dict[str, Client]:
    """The backends by platform."""
    client = get_backend()
    return {client.platform: client}


def get_default_device() -> Device:
    """The device of values that nothing places."""
    return default_device()


def clear_in_memory_compilation_cache() -> None:
    """Forget every trace and compiled program."""
    clear_caches()


__getattr__ = refuse_names(__name__, "there is one backend, which is NumPy's; devices() lists its devices")
