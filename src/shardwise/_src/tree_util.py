"""`tree_util`, with its table of classes."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from shardwise.base.tree import flatten_one_level as flatten_one_level
from shardwise.base.tree import prefix_errors as prefix_errors
from shardwise.base.treedef import node_types, registration
from shardwise.tree_util import *  # noqa: F403


class _RegistryEntry(NamedTuple):
    """How values of a class come apart into (children, aux), and are made again of (aux, children)."""

    to_iter: Callable[[Any], tuple[Iterable[Any], Any]]
    from_iter: Callable[[Any, Iterable[Any]], Any]


_CONTAINERS: dict[type, Callable[[Any, Iterable[Any]], Any]] = {
    tuple: lambda _, children: tuple(children),
    list: lambda _, children: list(children),
    type(None): lambda _, children: None,
    dict: lambda keys, children: dict(zip(keys, children, strict=True)),
    OrderedDict: lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
    defaultdict: lambda aux, children: defaultdict(aux[0], zip(aux[1], children, strict=True)),
    deque: lambda length, children: deque(children, length),
}


class _Classes(Mapping[type, Any]):
    """The classes whose values are nodes of trees, and how each takes part in them."""

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, type) and kind in node_types()

    def __getitem__(self, kind: type) -> _RegistryEntry:
        registered = registration(kind)
        if registered is not None:
            return _RegistryEntry(registered.flatten, registered.unflatten)
        return _RegistryEntry(_children_and_aux, _CONTAINERS[kind])

    def __iter__(self) -> Iterator[type]:
        return iter(node_types())

    def __len__(self) -> int:
        return len(node_types())


def _children_and_aux(node: Any) -> tuple[Iterable[Any], Any]:
    parts = flatten_one_level(node)
    assert parts is not None  # a container is a node
    return parts


_registry = _Classes()
