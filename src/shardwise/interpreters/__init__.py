"""`shardwise.interpreters`: paths under which programs of JAX's early years find shardings and array types.

In: such a program's imports. Out: `pxla` with the parts of a PmapSharding, and in both modules errors that name what replaces the
old array types.
"""
