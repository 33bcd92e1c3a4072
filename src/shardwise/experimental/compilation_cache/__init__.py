"""`shardwise.experimental.compilation_cache`: where compiled code is kept."""
