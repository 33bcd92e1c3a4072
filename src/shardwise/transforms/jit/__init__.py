"""`jit`: trace, compile and call functions, at the call or ahead of time."""
