"""Two values that are to lie alike."""

from shardwise.ops.alike import shard_alike as shard_alike
