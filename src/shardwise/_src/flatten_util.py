"""`flatten_util`, as documented."""

from shardwise.flatten_util import ravel_pytree as ravel_pytree
