"""`shardwise.debug`, named as jax.debug: look into programs while they run, and at where arrays lie.

`count_traffic`, which JAX does not have, counts what a process sends to others.
"""

from shardwise.base.listing import listing as _listing
from shardwise.debug.inspection import inspect_array_sharding as inspect_array_sharding
from shardwise.debug.inspection import visualize_array_sharding as visualize_array_sharding
from shardwise.debug.printing import callback as callback
from shardwise.debug.printing import log as log
from shardwise.debug.printing import print as print
from shardwise.debug.stopping import breakpoint as breakpoint
from shardwise.debug.traffic import Traffic as Traffic
from shardwise.debug.traffic import count_traffic as count_traffic
from shardwise.debug.visualize import visualize_sharding as visualize_sharding

__dir__ = _listing(__name__)
