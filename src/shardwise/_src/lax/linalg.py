"""`lax.linalg` by the name of the module that holds it in JAX."""

from shardwise.lax.linalg import *  # noqa: F403
