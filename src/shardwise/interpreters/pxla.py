"""`shardwise.interpreters.pxla`: the parts of a PmapSharding, and the mesh of `with mesh:`; the error for `ShardedDeviceArray` names
its replacement."""

from typing import TYPE_CHECKING, Any, NamedTuple

from shardwise.base.gone import no_attribute
from shardwise.sharding.context import legacy_mesh
from shardwise.sharding.mesh import Mesh as Mesh
from shardwise.sharding.pmap_sharding import Chunked as Chunked
from shardwise.sharding.pmap_sharding import NoSharding as NoSharding
from shardwise.sharding.pmap_sharding import Replicated as Replicated
from shardwise.sharding.pmap_sharding import ShardedAxis as ShardedAxis
from shardwise.sharding.pmap_sharding import ShardingSpec as ShardingSpec
from shardwise.sharding.pmap_sharding import Unstacked as Unstacked
from shardwise.sharding.spec import PartitionSpec as PartitionSpec

__all__ = ["Chunked", "Mesh", "NoSharding", "PartitionSpec", "Replicated", "ShardedAxis", "ShardingSpec", "Unstacked",
           "thread_resources"]  # fmt: skip


class _Environment:
    """The context of this thread's calls."""

    @property
    def physical_mesh(self) -> Mesh:
        """The mesh of the innermost ``with mesh:``; the empty one outside."""
        return legacy_mesh()


class _ThreadResources(NamedTuple):
    env: _Environment


thread_resources = _ThreadResources(_Environment())


if not TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> Any:
        raise no_attribute(__name__, name)
