"""`jaxlib.xla_extension`, as JAX 0.5 calls `jaxlib._jax`: our classes of `jaxlib.xla_client`, and two more."""

from shardwise._src.lib._jax import PjitFunction as PjitFunction
from shardwise._src.lib.xla_client import *  # noqa: F403
from shardwise.sharding import PmapSharding as PmapSharding
