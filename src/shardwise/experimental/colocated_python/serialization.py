"""Nothing is sent to other processes; the module has the names that annotations ask for."""

from shardwise.sharding.device import Device

DeviceList = tuple[Device, ...]
