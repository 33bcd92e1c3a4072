"""`shardwise.experimental.shard_map`: `shard_map` as it was first spelled, with `check_rep` and `auto`."""

from shardwise.transforms.manual.shard_map import experimental_shard_map as shard_map

__all__ = ["shard_map"]
