"""`Space`: the memories that values can lie in, by what they are for."""

from __future__ import annotations

import enum


class Space(enum.Enum):
    """A kind of memory, as a target of `device_put`: that of the device, that of its host, or the one that a value lies in."""

    Device = "device"
    Host = "pinned_host"
    Any = None

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"

    __str__ = __repr__
