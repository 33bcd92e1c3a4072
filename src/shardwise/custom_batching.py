"""`shardwise.custom_batching`: maps given by hand, named as in jax.custom_batching."""

from shardwise.transforms.derivatives.custom_batching import custom_vmap as custom_vmap
from shardwise.transforms.derivatives.custom_batching import sequential_vmap as sequential_vmap
