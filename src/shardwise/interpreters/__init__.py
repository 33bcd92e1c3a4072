"""`shardwise.interpreters`: rules of new primitives, and paths under which programs of JAX's early years find old types.


In: such a program's imports. Out: `pxla` with the parts of a PmapSharding, and in both modules errors that name what replaces the
old array types.
"""
