"""Functions that say themselves how they run on the parts of their arguments."""

from shardwise.sharding.factor_rule import BATCHING as BATCHING
from shardwise.sharding.factor_rule import ArrayMapping as ArrayMapping
from shardwise.sharding.factor_rule import CompoundFactor as CompoundFactor
from shardwise.sharding.factor_rule import SdyShardingRule as SdyShardingRule
from shardwise.transforms.manual.custom_partitioning import custom_partitioning as custom_partitioning

__all__ = ["BATCHING", "ArrayMapping", "CompoundFactor", "SdyShardingRule", "custom_partitioning"]
