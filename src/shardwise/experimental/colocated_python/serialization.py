"""Nothing is sent to other processes; the module has the names that annotations ask for."""

from shardwise.base.listing import listing as _listing
from shardwise.sharding.device import Device

DeviceList = tuple[Device, ...]

__dir__ = _listing(__name__)
