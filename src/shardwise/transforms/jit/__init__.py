"""`jit`: trace, compile, call; ahead of time as well."""
