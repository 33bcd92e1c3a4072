"""Two values that are to lie alike."""

from shardwise.ops.devices.alike import shard_alike as shard_alike
