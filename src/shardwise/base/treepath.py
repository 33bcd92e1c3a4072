"""Key paths: where in a tree a leaf stands, and where two trees differ.

In: trees as `base.treedef` knows them. Out: paths of `DictKey`, `SequenceKey`, `GetAttrKey` and `FlattenedIndexKey`,
their text (``['w'][0].bias``), and errors that name them.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import optree

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.treedef import NAMESPACE, IsLeaf, PyTreeDef, flattened_pair, registration, tree_flatten, treedef_of


@dataclass(frozen=True)
class SequenceKey:
    """A step into a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True)
class DictKey:
    """A step into a dict."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """A step into an object with named fields."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True)
class FlattenedIndexKey:
    """A step into a registered class that does not name its children."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """The text of the key path `keys`: ``['w'][0].bias``; with `simple` the bare names: ``w/0/bias`` for separator
    '/'.

    >>> jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path({'a': [5]})[0][0])
    "['a'][0]"
    """
    return separator.join(_simple_text(key) if simple else str(key) for key in keys)


def _simple_text(key: KeyEntry) -> str:
    for kind, field in ((SequenceKey, "idx"), (DictKey, "key"), (GetAttrKey, "name"), (FlattenedIndexKey, "key")):
        if isinstance(key, kind):
            return str(getattr(key, field))
    return str(key)


def children_with_keys(tree: Any) -> tuple[list[tuple[KeyEntry, Any]], Any] | None:
    """((key, child) pairs, metadata) of a node; None for a leaf."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return [(SequenceKey(i), child) for i, child in enumerate(tree)], None
    entry = registration(kind)
    if entry is not None:
        if entry.flatten_with_keys is not None:
            pairs, aux = flattened_pair(entry.flatten_with_keys(tree), tree)
            return [_pair(pair, tree) for pair in pairs], aux
        children, aux = flattened_pair(entry.flatten(tree), tree)
        return [(FlattenedIndexKey(i), child) for i, child in enumerate(children)], aux
    if optree.tree_is_leaf(tree, namespace=NAMESPACE):
        return None
    children, metadata, entries, _ = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    if kind in (dict, OrderedDict, defaultdict):
        factory = (tree.default_factory,) if kind is defaultdict else ()
        return [(DictKey(k), c) for k, c in zip(entries, children, strict=True)], (*factory, tuple(entries))
    if optree.is_namedtuple(tree):
        return [(GetAttrKey(f), c) for f, c in zip(kind._fields, children, strict=True)], kind
    if kind is deque or isinstance(tree, tuple):
        return [(SequenceKey(i), child) for i, child in enumerate(children)], metadata
    return [(FlattenedIndexKey(i), child) for i, child in enumerate(children)], metadata


def _pair(found: Any, node: Any) -> tuple[KeyEntry, Any]:
    if isinstance(found, tuple) and len(found) == 2:
        return found
    raise ValueError(
        f"the flatten function with keys of pytree node {type(node)} should return (key, child) pairs, tuples of 2; got {found!r}."
    )


IsLeafAtPath = Callable[..., bool] | None


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeafAtPath = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """(path, leaf) pairs of `tree`, and its structure. With `is_leaf_takes_path`, the call is `is_leaf(path, node)`.

    >>> jax.tree_util.tree_flatten_with_path({'a': 1})[0]
    [((DictKey(key='a'),), 1)]
    """
    leaves: list[tuple[KeyPath, Any]] = []
    decisions: list[bool] = []  # per node from the root down, as optree asks for them

    def stops(node: Any, path: KeyPath) -> bool:
        return is_leaf is not None and bool(is_leaf(path, node) if is_leaf_takes_path else is_leaf(node))

    _visit(tree, (), stops, leaves, decisions)
    if is_leaf is None:
        return leaves, tree_flatten(tree)[1]
    replay = iter(decisions)
    return leaves, treedef_of(optree.tree_flatten(tree, lambda _: next(replay), namespace=NAMESPACE)[1])


def _visit(
    node: Any,
    path: KeyPath,
    stops: Callable[[Any, KeyPath], bool],
    found: list[tuple[KeyPath, Any]],
    decisions: list[bool],
) -> None:
    """Add the leaves of `node` to `found`, and whether the walk stops at each node to `decisions`."""
    stop = stops(node, path)
    decisions.append(stop)
    below = None if stop else children_with_keys(node)
    if below is None:
        found.append((path, node))
        return
    for key, child in below[0]:
        _visit(child, (*path, key), stops, found, decisions)


def tree_leaves_with_path(
    tree: Any, is_leaf: IsLeafAtPath = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """(path, leaf) pairs of `tree`.

    Args:
        is_leaf: a predicate: subtrees for which it is true are leaves.
        is_leaf_takes_path: `is_leaf` is called with (path, subtree).

    >>> jax.tree_util.tree_leaves_with_path({'a': 1})
    [((DictKey(key='a'),), 1)]
    """
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def tree_map_with_path(
    f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeafAtPath = None, is_leaf_takes_path: bool = False
) -> Any:
    """Like `tree_map` of `tree` and `rest`, calling `f(path, leaf, *others)`.

    Args:
        is_leaf: a predicate: subtrees for which it is true are leaves.
        is_leaf_takes_path: `is_leaf` is called with (path, subtree).

    >>> jax.tree_util.tree_map_with_path(lambda path, x: jax.tree_util.keystr(path), {'a': [1]})
    {'a': ["['a'][0]"]}
    """
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    others = [treedef.flatten_up_to(other) for other in rest]
    return treedef.unflatten(f(path, leaf, *more) for (path, leaf), *more in zip(pairs, *others, strict=True))


def generate_key_paths(tree: Any) -> list[tuple[KeyPath, Any]]:
    """(path, leaf) pairs of `tree`; the name that older code uses."""
    return tree_leaves_with_path(tree)


def flatten_one_level(tree: Any) -> tuple[tuple[Any, ...], Any]:
    """(children, metadata) of the node `tree`; ValueError for a leaf.

    >>> jax.tree_util.flatten_one_level([1, {"a": 2}])[0]
    (1, {'a': 2})
    """
    pairs, aux = flatten_one_level_with_keys(tree)
    return tuple(child for _, child in pairs), aux


def flatten_one_level_with_keys(tree: Any) -> tuple[tuple[tuple[KeyEntry, Any], ...], Any]:
    """((key, child) pairs, metadata) of the node `tree`; ValueError for a leaf.

    >>> jax.tree_util.flatten_one_level_with_keys({"a": 1})
    (((DictKey(key='a'), 1),), ('a',))
    """
    below = children_with_keys(tree)
    if below is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}, which is a leaf.")
    pairs, aux = below
    if type(tree) in (dict, OrderedDict):
        (aux,) = aux
    return tuple(pairs), aux


# -- where trees differ ----------------------------------------------------------------------------------------


def prefix_errors(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[Callable[[str], ValueError]]:
    """The reasons why `prefix_tree` is no prefix of `full_tree`: per place a function from the prefix's name to a ValueError."""
    return list(_prefix_errors((), prefix_tree, full_tree, is_leaf))


def prefix_error(name: str, prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> ValueError | None:
    """One error that lists all places where `prefix_tree`, called `name`, is no prefix of `full_tree`; None if it is one."""
    problems = [str(problem(name)) for problem in prefix_errors(prefix_tree, full_tree, is_leaf)]
    return ValueError("\n\n".join([f"Mismatch details ({len(problems)} found):", *problems])) if problems else None


def _leaf_text(x: Any) -> str:
    """A node or leaf of the full tree, for errors: an array, or the type that stands for one, by its type, everything else by its class."""
    short = getattr(getattr(x, "aval", x), "str_short", None)
    return f"a {type(x).__name__}, {type(x)}" if short is None else f"an array of type {short()}"


def _prefix_errors(path: KeyPath, prefix: Any, full: Any, is_leaf: IsLeaf) -> Iterator[Callable[[str], ValueError]]:
    if is_leaf is not None and is_leaf(prefix):
        return
    below = children_with_keys(prefix)
    if below is None:
        return

    def error(what: str, details: str) -> Callable[[str], ValueError]:
        return lambda name: ValueError(
            f"pytree structure error: {what} at key path\n    {name}{keystr(path)}\n{details}"
        )

    if type(prefix) is not type(full):
        extra = ""
        if type(prefix) is type(None):
            extra = " (None is a node without children, so it matches only None.)"
        yield error(
            "different types",
            (
                f"There the prefix tree has a {type(prefix).__name__}, {type(prefix)}, "
                f"but the full tree has {_leaf_text(full)}.{extra}"
            ),
        )
        return
    other = children_with_keys(full)
    assert other is not None
    (pairs, aux), (full_pairs, full_aux) = below, other
    if len(pairs) != len(full_pairs):
        kind = type(prefix).__name__
        keys = ""
        if isinstance(prefix, dict):
            keys = f" Their keys are {[k.key for k, _ in pairs]} and {[k.key for k, _ in full_pairs]}."
        yield error(
            f"different lengths of {kind}",
            (
                f"There the prefix tree has a subtree of type {kind} of length {len(pairs)}, "
                f"but the full tree has one of the same type but of length {len(full_pairs)}.{keys}"
            ),
        )
        return
    if _differ(aux, full_aux):
        yield error(
            "different pytree metadata",
            (
                f"There both trees have a subtree of type {type(prefix)}, the prefix tree with metadata\n    {aux}\n"
                f"and the full tree with metadata\n    {full_aux}"
            ),
        )
        return
    for (key, child), (_, full_child) in zip(pairs, full_pairs, strict=True):
        yield from _prefix_errors((*path, key), child, full_child, is_leaf)


def _differ(a: Any, b: Any) -> bool:
    return a is not b and not bool(a == b)


def equality_errors(tree1: Any, tree2: Any, is_leaf: IsLeaf = None) -> Iterable[tuple[KeyPath, str, str, str]]:
    """(path, first thing, second thing, why they differ) for each place where two trees have different structure."""
    yield from _equality_errors((), tree1, tree2, is_leaf)


def _equality_errors(path: KeyPath, a: Any, b: Any, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, str, str, str]]:
    a_below = None if is_leaf is not None and is_leaf(a) else children_with_keys(a)
    b_below = None if is_leaf is not None and is_leaf(b) else children_with_keys(b)
    if a_below is None and b_below is None:
        return
    if a_below is None or b_below is None or type(a) is not type(b):
        yield path, str(type(a)), str(type(b)), "their Python types differ"
        return
    (a_pairs, a_aux), (b_pairs, b_aux) = a_below, b_below
    if len(a_pairs) != len(b_pairs):
        name = type(a).__name__
        yield path, f"{name} of length {len(a_pairs)}", f"{name} of length {len(b_pairs)}", "the lengths do not match"
        return
    if _differ(a_aux, b_aux):
        things = [f"{type(x).__name__} with pytree metadata {aux}" for x, aux in ((a, a_aux), (b, b_aux))]
        yield path, things[0], things[1], "the pytree node metadata does not match"
        return
    for (key, x), (_, y) in zip(a_pairs, b_pairs, strict=True):
        yield from _equality_errors((*path, key), x, y, is_leaf)
