"""The programs in JAX's documentation, cell by cell, under JAX and under shardwise: see __main__.py."""
