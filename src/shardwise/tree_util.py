"""`shardwise.tree_util`: pytrees, named as in jax.tree_util."""

from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.base.tree import DictKey as DictKey
from shardwise.base.tree import FlattenedIndexKey as FlattenedIndexKey
from shardwise.base.tree import GetAttrKey as GetAttrKey
from shardwise.base.tree import KeyEntry as KeyEntry
from shardwise.base.tree import KeyPath as KeyPath
from shardwise.base.tree import Partial as Partial
from shardwise.base.tree import PyTreeDef as PyTreeDef
from shardwise.base.tree import SequenceKey as SequenceKey
from shardwise.base.tree import all_leaves as all_leaves
from shardwise.base.tree import flatten_one_level as flatten_one_level
from shardwise.base.tree import flatten_one_level_with_keys as flatten_one_level_with_keys
from shardwise.base.tree import is_tree_node as is_tree_node
from shardwise.base.tree import keystr as keystr
from shardwise.base.tree import register_dataclass as register_dataclass
from shardwise.base.tree import register_pytree_node as register_pytree_node
from shardwise.base.tree import register_pytree_node_class as register_pytree_node_class
from shardwise.base.tree import register_pytree_with_keys as register_pytree_with_keys
from shardwise.base.tree import register_pytree_with_keys_class as register_pytree_with_keys_class
from shardwise.base.tree import register_static as register_static
from shardwise.base.tree import tree_all as tree_all
from shardwise.base.tree import tree_broadcast as tree_broadcast
from shardwise.base.tree import tree_flatten as tree_flatten
from shardwise.base.tree import tree_flatten_with_path as tree_flatten_with_path
from shardwise.base.tree import tree_leaves as tree_leaves
from shardwise.base.tree import tree_leaves_with_path as tree_leaves_with_path
from shardwise.base.tree import tree_map as tree_map
from shardwise.base.tree import tree_map_with_path as tree_map_with_path
from shardwise.base.tree import tree_reduce as tree_reduce
from shardwise.base.tree import tree_reduce_associative as tree_reduce_associative
from shardwise.base.tree import tree_structure as tree_structure
from shardwise.base.tree import tree_transpose as tree_transpose
from shardwise.base.tree import tree_unflatten as tree_unflatten
from shardwise.base.tree import treedef_children as treedef_children
from shardwise.base.tree import treedef_is_leaf as treedef_is_leaf
from shardwise.base.tree import treedef_tuple as treedef_tuple


class _Registry:
    """The one registry of node types, as an object; JAX code reaches for its methods now and then."""

    flatten = staticmethod(tree_flatten)
    flatten_with_path = staticmethod(tree_flatten_with_path)
    register_node = staticmethod(register_pytree_node)

    @staticmethod
    def flatten_one_level(tree: Any) -> tuple[tuple[Any, ...], Any] | None:
        """(children, metadata) of a node; None for a leaf."""
        try:
            return flatten_one_level(tree)
        except ValueError:
            return None

    @staticmethod
    def flatten_one_level_with_keys(tree: Any) -> tuple[tuple[tuple[Any, Any], ...], Any] | None:
        """(pairs of a key and a child, metadata) of a node; None for a leaf."""
        try:
            return flatten_one_level_with_keys(tree)
        except ValueError:
            return None


default_registry = _Registry()

__dir__ = _listing(__name__)
