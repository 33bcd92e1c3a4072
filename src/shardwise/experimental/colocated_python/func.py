"""How colocated functions are made: see the package."""

from shardwise.experimental.colocated_python import ColocatedFunction as ColocatedFunction
