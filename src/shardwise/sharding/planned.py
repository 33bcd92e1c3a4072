"""The devices of a machine that is not present: they identify places of shards, and never hold data.

In: a planner's description of the machine's devices. Out: a `PlannedClient`, which `install_client` makes the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from shardwise.sharding.device import Client, Crowding, Device, Topology

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


class Places(Protocol):
    """The places of the machine's devices, in order of process, then local index. All processes own as many."""

    @property
    def ids(self) -> Sequence[int]:
        """The id of each device."""
        ...

    @property
    def processes(self) -> int:
        """How many processes own the devices."""
        ...

    def __getitem__(self, index: int, /) -> Place: ...


class PlannedDevice(Device):
    """A device of the planned machine. Its place is looked up when it is asked for: large machines have many that nobody asks for."""

    __slots__ = ("_place",)

    client: PlannedClient

    @property
    def place(self) -> Place:
        """The position of the device."""
        try:
            return self._place
        except AttributeError:
            self._place = self.client.places[self.client.position(self)]
            return self._place

    @property
    def coords(self) -> list[int] | None:
        """The coordinates of its chip; None where there is no torus."""
        coords = self.place.coords
        return None if coords is None else list(coords)

    @property
    def core_on_chip(self) -> int:
        """The number of the device on its chip."""
        return self.place.core_on_chip

    @property
    def slice_index(self) -> int:
        """The slice, or the node of a cluster, that it belongs to."""
        return self.place.slice_index

    def memory_stats(self) -> dict[str, Any]:
        """The memory statistics: nothing is ever in use."""
        return {"bytes_limit": self.client.memory, "bytes_in_use": 0, "peak_bytes_in_use": 0, "num_allocs": 0}

    def __repr__(self) -> str:
        name = _CLASS_NAMES.get(self.platform, "CpuDevice")
        if self.coords is None:
            return f"{name}(id={self.id})"
        fields_text = f"id={self.id}, process_index={self.process_index}, coords={tuple(self.coords)}"
        return f"{name}({fields_text}, core_on_chip={self.core_on_chip})"

    __str__ = __repr__


class PlannedClient(Client):
    """The backend of a planned run. This process is the first of the machine's processes, and represents all of them."""

    runtime_type = "plan"
    platform_version = "plan"
    stands_for_all = True

    def __init__(
        self,
        platform: str,
        kind: str,
        memory: int,
        places: Places,
        host: Client | None,
        crowded: Callable[[Mapping[str, int]], Crowding | None] | None = None,
    ) -> None:
        """`memory`: the bytes that programs may use on each device. `host` is the backend of this machine, None if there is none yet.
        `crowded`: from the sizes of axes to the `crowding` of their mesh.
        """
        self.platform = platform
        self.device_kind = kind
        self.memory = memory
        self._host = host
        self.process_index_ = 0
        self.places = places
        ids, processes = places.ids, places.processes
        own = len(ids) // processes
        self._devices = tuple([PlannedDevice(id, *divmod(i, own), self) for i, id in enumerate(ids)])
        self._starts = tuple(range(0, len(ids) + 1, own))
        if crowded is not None:
            self.crowding = cache(lambda sizes: crowded(dict(sizes)))
        self.topology = Topology(0, processes, (own,) * processes)

    @property
    def host(self) -> Client:
        """The CPU devices of this machine."""
        if self._host is None:
            self._host = Client(Topology())
        return self._host

    def memory_kinds(self) -> tuple[str, ...]:
        return _MEMORY_KINDS
