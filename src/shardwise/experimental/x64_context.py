"""`shardwise.experimental.x64_context`: context managers that keep or narrow 64-bit dtypes."""

from shardwise.base.overrides import disable_x64 as disable_x64
from shardwise.base.overrides import enable_x64 as enable_x64

__all__ = ["disable_x64", "enable_x64"]
