"""`shardwise.lax.linalg`: decompositions and solvers on stacks of matrices, named as in jax.lax.linalg."""

from shardwise.ops.linalg import *  # noqa: F403
