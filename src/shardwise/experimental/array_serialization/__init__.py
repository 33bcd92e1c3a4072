"""`shardwise.experimental.array_serialization`: what checkpoint libraries build their managers on."""
