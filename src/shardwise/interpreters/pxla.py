"""`shardwise.interpreters.pxla`: the parts of a PmapSharding; the error for `ShardedDeviceArray` names its replacement."""

from typing import Any

from shardwise.base.gone import no_attribute
from shardwise.sharding.mesh import Mesh as Mesh
from shardwise.sharding.pmap_sharding import Chunked as Chunked
from shardwise.sharding.pmap_sharding import NoSharding as NoSharding
from shardwise.sharding.pmap_sharding import Replicated as Replicated
from shardwise.sharding.pmap_sharding import ShardedAxis as ShardedAxis
from shardwise.sharding.pmap_sharding import ShardingSpec as ShardingSpec
from shardwise.sharding.pmap_sharding import Unstacked as Unstacked
from shardwise.sharding.spec import PartitionSpec as PartitionSpec

__all__ = ["Chunked", "Mesh", "NoSharding", "PartitionSpec", "Replicated", "ShardedAxis", "ShardingSpec", "Unstacked"]


def __getattr__(name: str) -> Any:
    raise no_attribute(__name__, name)
