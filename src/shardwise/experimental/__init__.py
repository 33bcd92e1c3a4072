"""`shardwise.experimental`: what JAX keeps under jax.experimental.

In: programs of either era. Out: `pjit`, `shard_map` and `shard` under their old paths, `mesh_utils`, `multihost_utils`.
"""

from shardwise.base.config import disable_x64 as disable_x64
from shardwise.base.config import enable_x64 as enable_x64
from shardwise.ops.callback import io_callback as io_callback
