"""The devices of a machine that is not present: they identify places of shards, and never hold data.

In: a planner's description of the machine's devices. Out: a `PlannedClient`, which `install_client` makes the backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from shardwise.sharding.device import Client, Device, Topology

_CLASS_NAMES = {"tpu": "TpuDevice", "gpu": "CudaDevice"}
_MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")


class Place(Protocol):
    """The place of a device in the planned machine."""

    @property
    def id(self) -> int: ...
    @property
    def process_index(self) -> int: ...
    @property
    def local_index(self) -> int: ...
    @property
    def coords(self) -> tuple[int, ...] | None: ...
    @property
    def core_on_chip(self) -> int: ...
    @property
    def slice_index(self) -> int: ...


class PlannedDevice(Device):
    """A device of the planned machine."""

    __slots__ = ("_memory", "coords", "core_on_chip", "slice_index")

    def __init__(self, place: Place, client: PlannedClient):
        super().__init__(place.id, place.process_index, place.local_index, client)
        self.coords = None if place.coords is None else list(place.coords)
        self.core_on_chip = place.core_on_chip
        self.slice_index = place.slice_index
        self._memory = client.memory

    def memory_stats(self) -> dict[str, Any]:
        """The memory statistics: nothing is ever in use."""
        return {"bytes_limit": self._memory, "bytes_in_use": 0, "peak_bytes_in_use": 0, "num_allocs": 0}

    def __repr__(self) -> str:
        name = _CLASS_NAMES.get(self.platform, "CpuDevice")
        if self.coords is None:
            return f"{name}(id={self.id})"
        shown = f"id={self.id}, process_index={self.process_index}, coords={tuple(self.coords)}"
        return f"{name}({shown}, core_on_chip={self.core_on_chip})"

    __str__ = __repr__


class PlannedClient(Client):
    """The backend of a planned run. This process is the first of the machine's processes, and represents all of them."""

    runtime_type = "plan"
    platform_version = "plan"
    stands_for_all = True

    def __init__(self, platform: str, kind: str, memory: int, places: Iterable[Place], host: Client | None) -> None:
        """`memory`: the bytes that programs may use on each device. `host` is the backend of this machine, None if there is none yet."""
        self.platform = platform
        self.device_kind = kind
        self.memory = memory
        self._host = host
        self.process_index_ = 0
        self.places = places
        self._devices = tuple(PlannedDevice(place, self) for place in places)
        self._of_process: dict[int, list[Device]] = {}
        for device in self._devices:
            self._of_process.setdefault(device.process_index, []).append(device)
        self._position: dict[Device, int] = {device: i for i, device in enumerate(self._devices)}
        counts = tuple(len(own) for own in self._of_process.values())
        self.topology = Topology(0, len(counts), counts)

    @property
    def host(self) -> Client:
        """The CPU devices of this machine."""
        if self._host is None:
            self._host = Client(Topology())
        return self._host

    def memory_kinds(self) -> tuple[str, ...]:
        return _MEMORY_KINDS

    def local_devices(self, process: int | None = None) -> list[Device]:
        return list(self._of_process[0 if process is None else process])

    def local_device_count(self, process: int | None = None) -> int:
        return len(self._of_process[0 if process is None else process])

    def position(self, device: Device) -> int:
        return self._position[device]

    def first_local_device(self) -> Device:
        return self._of_process[0][0]
