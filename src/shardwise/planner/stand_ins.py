"""Devices of machines that one does not have, as the engine takes them.

In: a machine, or only a platform and how many devices there are. Out: a `PlannedClient` with such devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.planner.links import crowding_of
from shardwise.planner.machine import Machine, Place, Places
from shardwise.planner.machines import find_kind
from shardwise.sharding import Device
from shardwise.sharding.backend import backend, backend_initialized
from shardwise.sharding.planned import PlannedClient


def client_of(machine: Machine) -> PlannedClient:
    """A backend with the machine's devices."""
    host = backend().host if backend_initialized() else None
    chip = machine.chip
    return PlannedClient(
        chip.platform, chip.kind, chip.usable_bytes, Places(machine), host, partial(crowding_of, machine)
    )


@lru_cache(maxsize=16)  # equal calls give the same devices, so that what is compiled for them is compiled once
def stand_in_devices(platform: str, kind: str, count: int) -> tuple[Device, ...]:
    """Stand-in devices of a platform.

    Of a kind that some machine has they are that machine's; of others only the platform is known, and no memory or bandwidth.
    """
    machine = find_kind(kind, count)
    if machine is not None and machine.chip.platform == platform:
        return tuple(client_of(machine).devices()[:count])
    host = backend().host if backend_initialized() else None
    return tuple(PlannedClient(platform, kind, 0, _NoPlaces(platform, kind, count), host).devices())


@dataclass(frozen=True, slots=True)
class _NoPlaces:
    """The places of devices of which nothing is known but how many there are: one process has them all."""

    platform: str
    kind: str
    count: int

    @property
    def ids(self) -> Sequence[int]:
        return range(self.count)

    @property
    def processes(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Place:
        return Place(index, self.kind, self.platform, 0, index, None, 0, 0)
