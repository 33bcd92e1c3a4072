"""`shardwise.debug`: see where arrays lie, and print from inside compiled functions."""

from shardwise.debug.layouts import inspect_array_sharding as inspect_array_sharding
from shardwise.debug.layouts import visualize_array_sharding as visualize_array_sharding
from shardwise.debugging.visualize import visualize_sharding as visualize_sharding
