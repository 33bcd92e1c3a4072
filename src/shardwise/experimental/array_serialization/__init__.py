"""`shardwise.experimental.array_serialization`: the base of checkpoint libraries' managers."""
