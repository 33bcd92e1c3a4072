"""`numpy`'s functions by the name of the module that holds them in JAX."""

from shardwise.numpy import *  # noqa: F403
