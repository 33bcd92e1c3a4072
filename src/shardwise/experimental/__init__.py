"""`shardwise.experimental`: the parts of jax.experimental.

In: programs of either era. Out: `pjit`, `shard_map` and `shard` under their old paths, `checkify`, `mesh_utils`, `multihost_utils`.
"""

import typing as _typing

from shardwise.base.doors import open_package as _open_package
from shardwise.base.overrides import disable_x64 as disable_x64
from shardwise.base.overrides import enable_x64 as enable_x64
from shardwise.ops.control.callback import io_callback as io_callback

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.experimental import array_serialization as array_serialization
    from shardwise.experimental import checkify as checkify
    from shardwise.experimental import colocated_python as colocated_python
    from shardwise.experimental import compilation_cache as compilation_cache
    from shardwise.experimental import compute_on as compute_on
    from shardwise.experimental import custom_partitioning as custom_partitioning
    from shardwise.experimental import hijax as hijax
    from shardwise.experimental import jet as jet
    from shardwise.experimental import key_reuse as key_reuse
    from shardwise.experimental import layout as layout
    from shardwise.experimental import mesh_utils as mesh_utils
    from shardwise.experimental import mosaic as mosaic
    from shardwise.experimental import multihost_utils as multihost_utils
    from shardwise.experimental import ode as ode
    from shardwise.experimental import pallas as pallas
    from shardwise.experimental import pjit as pjit
    from shardwise.experimental import random as random
    from shardwise.experimental import roofline as roofline
    from shardwise.experimental import serialize_executable as serialize_executable
    from shardwise.experimental import shard as shard
    from shardwise.experimental import shard_alike as shard_alike
    from shardwise.experimental import shard_map as shard_map
    from shardwise.experimental import sparse as sparse
    from shardwise.experimental import topologies as topologies
    from shardwise.experimental import xla_metadata as xla_metadata
    from shardwise.experimental.hijax import cur_qdd as cur_qdd
else:
    __getattr__, __dir__ = _open_package(
        __name__,
        "array_serialization checkify compilation_cache colocated_python compute_on custom_partitioning hijax jet key_reuse layout "
        "mesh_utils mosaic multihost_utils ode pallas pjit random roofline serialize_executable shard shard_alike shard_map sparse "
        "topologies xla_metadata",
        hijax="cur_qdd",
    )
