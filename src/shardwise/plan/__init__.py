"""`shardwise plan`: programs run without data, and a plan of each compiled step for a machine that one does not have."""
