"""`shardwise.experimental.array_serialization`: arrays in checkpoints, and the base of libraries' managers."""
