"""`tree_util`, with its table of classes."""

from collections.abc import Iterator, Mapping
from typing import Any

from shardwise.base.tree import flatten_one_level as flatten_one_level
from shardwise.base.treedef import is_tree_node, node_types
from shardwise.tree_util import *  # noqa: F403


class _Classes(Mapping[type, Any]):
    """The classes whose values are nodes of trees, and how each takes part in them (None for Python's containers)."""

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, type) and is_tree_node(kind)

    def __getitem__(self, kind: type) -> Any:
        return node_types()[kind]

    def __iter__(self) -> Iterator[type]:
        return iter(node_types())

    def __len__(self) -> int:
        return len(node_types())


_registry = _Classes()
