"""Transformations of functions: jit, shard_map, pmap, and the stepped executor."""
