"""`shardwise.tree`: pytrees, with the short names of jax.tree."""

from shardwise.base.tree import static as static
from shardwise.base.tree import tree_all as all
from shardwise.base.tree import tree_broadcast as broadcast
from shardwise.base.tree import tree_flatten as flatten
from shardwise.base.tree import tree_flatten_with_path as flatten_with_path
from shardwise.base.tree import tree_leaves as leaves
from shardwise.base.tree import tree_leaves_with_path as leaves_with_path
from shardwise.base.tree import tree_map as map
from shardwise.base.tree import tree_map_with_path as map_with_path
from shardwise.base.tree import tree_reduce as reduce
from shardwise.base.tree import tree_reduce_associative as reduce_associative
from shardwise.base.tree import tree_structure as structure
from shardwise.base.tree import tree_transpose as transpose
from shardwise.base.tree import tree_unflatten as unflatten

__all__ = ["all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map", "map_with_path",
           "reduce", "reduce_associative", "static", "structure", "transpose", "unflatten"]  # fmt: skip
