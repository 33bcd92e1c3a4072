"""Pytrees: nested containers as a list of leaves and a structure; which classes are containers.

In: trees of tuples, lists, dicts, None, namedtuples, OrderedDicts, defaultdicts and registered classes. Out: leaves in
order, and a `PyTreeDef` that puts leaves back together. optree walks the trees; this module adds JAX's rules:
None is a node without children, dicts are visited in the order of their keys and come back in that order.

Hot paths may call `flatten_spec`, which leaves out the `PyTreeDef` and gives optree's own hashable structure.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import optree

NAMESPACE = "shardwise"
IsLeaf = Callable[[Any], bool] | None

flatten_spec = functools.partial(optree.tree_flatten, namespace=NAMESPACE)


class PyTreeDef:
    """The structure of a pytree without its leaves. Hashable and comparable.

    Made by `tree_structure` and `tree_flatten`; `spec` is optree's form of it.
    """

    __slots__ = ("spec",)

    spec: optree.PyTreeSpec

    def __init__(self, spec: optree.PyTreeSpec) -> None:
        object.__setattr__(self, "spec", spec)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a PyTreeDef cannot be changed: attempt to set {name!r}")

    @property
    def num_leaves(self) -> int:
        """How many leaves a tree of this structure has."""
        return self.spec.num_leaves

    @property
    def num_nodes(self) -> int:
        """How many nodes a tree of this structure has, leaves included."""
        return self.spec.num_nodes

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with these leaves; ValueError unless their number fits."""
        return self.spec.unflatten(leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` where this structure has leaves; ValueError if `tree` does not have it as a prefix."""
        return self.spec.flatten_up_to(tree)

    def children(self) -> list[PyTreeDef]:
        """The structures directly below the root."""
        return [PyTreeDef(child) for child in self.spec.children()]

    def node_data(self) -> tuple[Any, Any] | None:
        """(type, metadata) of the root; None for a leaf."""
        return None if self.spec.is_leaf() else (self.spec.type, _metadata(self.spec))

    def compose(self, inner: PyTreeDef) -> PyTreeDef:
        """This structure with `inner` in the place of every leaf."""
        return PyTreeDef(self.spec.compose(inner.spec))

    def walk(self, f_node: Callable[..., Any], f_leaf: Callable[[Any], Any] | None, leaves: Iterable[Any]) -> Any:
        """Fold from the leaves up: `f_node(children, metadata)` for nodes, `f_leaf(leaf)` for leaves."""
        return self.spec.walk(leaves, lambda _, data, children: f_node(children, data), f_leaf)

    def canonical(self) -> PyTreeDef:
        """An equal structure that unflattens dicts with sorted keys, whatever their order when flattened."""
        return PyTreeDef(_sort_dicts(self.spec))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PyTreeDef) and (self is other or self.spec == other.spec)

    def __hash__(self) -> int:
        return hash(self.spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return PyTreeDef, (self.spec,)

    def __repr__(self) -> str:
        return f"PyTreeDef({self.spec.walk([None] * self.num_leaves, _node_text, lambda _: '*')})"


def _node_text(kind: type, data: Any, children: tuple[str, ...]) -> str:
    inside = ", ".join(children)
    if kind is tuple:
        return f"({inside},)" if len(children) == 1 else f"({inside})"
    if kind is list:
        return f"[{inside}]"
    if kind is type(None):
        return "None"
    if kind is dict:
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(data, children, strict=True)) + "}"
    if kind is OrderedDict:
        label = f"OrderedDict[{tuple(data)}]"
    elif kind is defaultdict:
        label = f"defaultdict[{(data[0], tuple(data[1]))}]"
    elif kind not in _registry and issubclass(kind, tuple):
        label = f"namedtuple[{kind.__name__}]"
    else:
        label = f"{kind.__name__}[{data}]"
    return f"CustomNode({label}, [{inside}])"


def _metadata(spec: optree.PyTreeSpec) -> Any:
    metadata: list[Any] = []

    def note(_: type, data: Any, children: tuple[Any, ...]) -> None:
        metadata[:] = [data]  # the root is walked last

    spec.walk([None] * spec.num_leaves, note, None)
    return metadata[0]


def _sort_dicts(spec: optree.PyTreeSpec) -> optree.PyTreeSpec:
    return spec.transform(_sorted_node, None)


def _sorted_node(node: optree.PyTreeSpec) -> optree.PyTreeSpec:
    if node.type is dict:
        leaves: Any = dict.fromkeys(node.entries(), 0)
        return flatten_spec(leaves)[1]
    if node.type is defaultdict:
        leaves = defaultdict(_metadata(node)[0], dict.fromkeys(node.entries(), 0))
        return flatten_spec(leaves)[1]
    return node


@functools.lru_cache(maxsize=4096)
def _plain_treedef(spec: optree.PyTreeSpec) -> PyTreeDef:
    return PyTreeDef(_sort_dicts(spec))


def treedef_of(spec: optree.PyTreeSpec) -> PyTreeDef:
    """The PyTreeDef of optree's structure `spec`."""
    # Structures with registered classes have a namespace. They are not looked up: their metadata may be equal to
    # another's and yet differ, as 1 and True do.
    return PyTreeDef(spec) if spec.namespace else _plain_treedef(spec)


# -- trees -----------------------------------------------------------------------------------------------------


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of `tree` and its structure.

    `is_leaf` is called on each node, from the root down; a node for which it returns True is a leaf.

    >>> jax.tree_util.tree_flatten({'a': 1, 'b': (2, None)})
    ([1, 2], PyTreeDef({'a': *, 'b': (*, None)}))
    """
    leaves, spec = optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)
    return leaves, treedef_of(spec)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of structure `treedef` with these leaves; ValueError unless their number fits.

    >>> jax.tree_util.tree_unflatten(jax.tree_util.tree_structure({'a': 1, 'b': (2, None)}), [10, 20])
    {'a': 10, 'b': (20, None)}
    """
    return treedef.spec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of `tree`, in order.

    Args:
        is_leaf: a predicate: subtrees for which it is true are leaves.

    >>> jax.tree_util.tree_leaves({'a': 1, 'b': (2, None)})
    [1, 2]
    """
    if is_leaf is not None:
        return optree.tree_leaves(tree, is_leaf, namespace=NAMESPACE)
    leaves: list[Any] = []
    _collect(tree, leaves)
    return leaves


def _collect(tree: Any, leaves: list[Any]) -> None:
    """Append the leaves. A fast path for plain containers of arrays; other classes take the general walk."""
    kind = type(tree)
    if kind in _LEAVES:
        leaves.append(tree)
        return
    if kind is dict:
        try:
            children: Iterable[Any] = [tree[name] for name in sorted(tree)]
        except TypeError:  # names of several types
            leaves += optree.tree_leaves(tree, namespace=NAMESPACE)
            return
    elif kind is list or kind is tuple:
        children = tree
    else:
        leaves += optree.tree_leaves(tree, namespace=NAMESPACE)
        return
    if _LEAVES.issuperset(map(type, children)):
        leaves += children
        return
    for child in children:
        _collect(child, leaves)


_LEAVES: set[type] = {int, float, complex, bool, np.ndarray}  # some classes whose values are leaves


def leaf_type(kind: type) -> None:
    """Declare that values of a class are leaves, until it is registered as a container."""
    _LEAVES.add(kind)


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The structure of `tree`.

    Args:
        is_leaf: a predicate: subtrees for which it is true are leaves.

    >>> jax.tree_util.tree_structure({'a': 1, 'b': (2, None)})
    PyTreeDef({'a': *, 'b': (*, None)})
    """
    return tree_flatten(tree, is_leaf)[1]


# -- registration ----------------------------------------------------------------------------------------------


class Registration(NamedTuple):
    """How a class takes part in trees."""

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[Any, Any], Any]
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None


_registry: dict[type, Registration] = {}
_BUILTIN_NODES = frozenset({tuple, list, dict, type(None), OrderedDict, defaultdict, deque})


def registration(kind: type) -> Registration | None:
    """How `kind` was registered, or None."""
    return _registry.get(kind)


def is_tree_node(typ: type) -> bool:
    """Whether values of the class `typ` are nodes, not leaves.

    >>> jax.tree_util.is_tree_node(dict), jax.tree_util.is_tree_node(int)
    (True, False)
    """
    return typ in _BUILTIN_NODES or typ in _registry or optree.is_namedtuple_class(typ)


def node_types() -> dict[type, Registration | None]:
    """All classes whose values are nodes, and how they were registered; None for Python's own containers."""
    return {**dict.fromkeys(_BUILTIN_NODES), **_registry}


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], Any] | None = None,
) -> None:
    """Make values of the class `nodetype` nodes of trees.

    `flatten_func(x) -> (children, aux)` with a hashable, comparable `aux`; `unflatten_func(aux, children) -> x`;
    `flatten_with_keys_func(x) -> ((key, child) pairs, aux)` names the children in key paths. ValueError if the class
    is registered already, and when a tree is flattened if a function gives no such pair.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> jax.tree_util.register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda aux, children: Pair(*children))
    >>> jax.tree.map(lambda x: x + 1, Pair(1, 2)).b
    3
    """
    if nodetype in _BUILTIN_NODES or nodetype in _registry:  # a class of namedtuples may have rules of its own
        raise ValueError(f"register_pytree_node: {nodetype} is a pytree node already.")
    with warnings.catch_warnings():
        if issubclass(nodetype, tuple):  # optree warns of classes of namedtuples, which are nodes as they are
            warnings.simplefilter("ignore", UserWarning)
        flatten: Any = _check_flatten(flatten_func)
        optree.register_pytree_node(nodetype, flatten, unflatten_func, namespace=NAMESPACE)
    _LEAVES.discard(nodetype)
    _registry[nodetype] = Registration(flatten_func, unflatten_func, flatten_with_keys_func)


def _check_flatten(flatten_func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`flatten_func`, whose results have to be pairs of children and metadata."""

    def flatten(node: Any) -> Any:
        children = flatten_func(node)
        if type(children) is tuple and len(children) == 2 and type(children[0]) in (tuple, list):
            return children
        return flattened_pair(children, node)

    return flatten


def flattened_pair(found: Any, node: Any) -> tuple[Any, Any]:
    """The pair (children, metadata) from a flatten function for `node`; ValueError if it returned anything else."""
    if isinstance(found, tuple) and len(found) == 2:
        if hasattr(found[0], "__iter__") or hasattr(found[0], "__getitem__"):
            return found
        fault = f"the children are {found[0]!r}, which cannot be iterated over"
    else:
        fault = f"got {found!r}"
    raise ValueError(
        f"the flatten function of pytree node {type(node)} should return a tuple (children, aux_data); {fault}."
    )
