"""`shardwise.memory`: the memories that `device_put` moves values between. A CPU has one, which goes by several names."""

from shardwise.base.listing import listing as _listing
from shardwise.sharding.spaces import Space as Space

__dir__ = _listing(__name__)
