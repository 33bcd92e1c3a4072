"""Functions on pytrees, and the public face of `base`'s tree modules.

In: trees (nested containers of leaves). Out: trees mapped, reduced, transposed, broadcast from a prefix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import optree

from shardwise.base.treeclass import Partial as Partial
from shardwise.base.treeclass import register_dataclass as register_dataclass
from shardwise.base.treeclass import register_pytree_node_class as register_pytree_node_class
from shardwise.base.treeclass import register_pytree_with_keys as register_pytree_with_keys
from shardwise.base.treeclass import register_pytree_with_keys_class as register_pytree_with_keys_class
from shardwise.base.treeclass import register_static as register_static
from shardwise.base.treeclass import static as static
from shardwise.base.treedef import NAMESPACE as NAMESPACE
from shardwise.base.treedef import IsLeaf
from shardwise.base.treedef import PyTreeDef as PyTreeDef
from shardwise.base.treedef import flatten_spec as flatten_spec
from shardwise.base.treedef import is_tree_node as is_tree_node
from shardwise.base.treedef import register_pytree_node as register_pytree_node
from shardwise.base.treedef import tree_flatten as tree_flatten
from shardwise.base.treedef import tree_leaves as tree_leaves
from shardwise.base.treedef import tree_structure as tree_structure
from shardwise.base.treedef import tree_unflatten as tree_unflatten
from shardwise.base.treedef import treedef_of as treedef_of
from shardwise.base.treepath import DictKey as DictKey
from shardwise.base.treepath import FlattenedIndexKey as FlattenedIndexKey
from shardwise.base.treepath import GetAttrKey as GetAttrKey
from shardwise.base.treepath import KeyEntry as KeyEntry
from shardwise.base.treepath import KeyPath as KeyPath
from shardwise.base.treepath import SequenceKey as SequenceKey
from shardwise.base.treepath import equality_errors as equality_errors
from shardwise.base.treepath import flatten_one_level as flatten_one_level
from shardwise.base.treepath import flatten_one_level_with_keys as flatten_one_level_with_keys
from shardwise.base.treepath import generate_key_paths as generate_key_paths
from shardwise.base.treepath import keystr as keystr
from shardwise.base.treepath import prefix_error as prefix_error
from shardwise.base.treepath import prefix_errors as prefix_errors
from shardwise.base.treepath import tree_flatten_with_path as tree_flatten_with_path
from shardwise.base.treepath import tree_leaves_with_path as tree_leaves_with_path
from shardwise.base.treepath import tree_map_with_path as tree_map_with_path


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """`tree` with each leaf `x` replaced by `f(x, *ys)`, the `ys` being the subtrees of `rest` at the same place.

    `tree` must be a prefix of each tree of `rest`; ValueError names the places where it is not. `is_leaf` as for
    `tree_util.tree_map`: subtrees for which it is true are leaves.

    >>> jax.tree_map(lambda x: x * 2, {'a': 1, 'b': (2, 3)})
    {'a': 2, 'b': (4, 6)}
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    spec = treedef.spec
    if not rest:
        return spec.unflatten(map(f, leaves))
    try:
        others = [spec.flatten_up_to(other) for other in rest]
    except ValueError as err:
        raise _mismatch(tree, rest, is_leaf) or err from None
    return spec.unflatten(map(f, leaves, *others))


def _mismatch(tree: Any, rest: Sequence[Any], is_leaf: IsLeaf) -> ValueError | None:
    return next(filter(None, (prefix_error("tree_map tree", tree, other, is_leaf) for other in rest)), None)


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """A tree of the structure of `full_tree` in which each leaf of `prefix_tree` fills the subtree standing there.

    Args:
        is_leaf: a predicate: subtrees for which it is true are leaves.

    >>> jax.tree_util.tree_broadcast({'a': 1, 'b': 2}, {'a': (0, 0), 'b': 0})
    {'a': (1, 1), 'b': 2}
    """
    return tree_unflatten(tree_structure(full_tree), broadcast_prefix(prefix_tree, full_tree, is_leaf))


def broadcast_prefix(
    prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None, *, name: str = "broadcast_prefix prefix_tree"
) -> list[Any]:
    """For each leaf of `full_tree` the leaf of `prefix_tree` at or above it; ValueError if that is no prefix, with all places
    where they differ, in which `name` stands for the prefix.
    """
    leaves, treedef = tree_flatten(prefix_tree, is_leaf)
    try:
        subtrees = treedef.spec.flatten_up_to(full_tree)
    except ValueError as err:
        raise prefix_error(name, prefix_tree, full_tree, is_leaf) or err from None
    result: list[Any] = []
    for leaf, subtree in zip(leaves, subtrees, strict=True):
        result += [leaf] * len(tree_leaves(subtree))
    return result


class _RequiredArgument:
    """The default of what must be given for trees without leaves; None is a value, too."""

    def __repr__(self) -> str:
        return "<required without leaves>"


_REQUIRED_ARGUMENT = _RequiredArgument()


def tree_reduce(
    function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _REQUIRED_ARGUMENT, is_leaf: IsLeaf = None
) -> Any:
    """``function(function(initializer, leaf0), leaf1)`` and so on over the leaves of `tree`; TypeError for no leaves
    and no `initializer`.

    Args:
        is_leaf: a predicate: subtrees for which it is true are leaves.

    >>> jax.tree_util.tree_reduce(lambda x, y: x + y, {'a': 1, 'b': (2, 3)})
    6
    """
    start = () if initializer is _REQUIRED_ARGUMENT else (initializer,)
    return functools.reduce(function, tree_leaves(tree, is_leaf), *start)


def tree_reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _REQUIRED_ARGUMENT, is_leaf: IsLeaf = None
) -> Any:
    """The leaves of `tree` joined by an associative `operation`, in a balanced order of log2(n) steps.

    Args:
        identity: the result for no leaves.
        is_leaf: a predicate: subtrees for which it is true are leaves.

    Raises:
        TypeError: there are no leaves and no `identity`.

    >>> jax.tree_util.tree_reduce_associative(jnp.add, [jnp.array(1), jnp.array(2), jnp.array(3)])
    Array(6, dtype=int32, weak_type=True)
    """
    values = tree_leaves(tree, is_leaf)
    if not values:
        if identity is _REQUIRED_ARGUMENT:
            raise TypeError("tree_reduce_associative: the tree has no leaves; give an identity.")
        return identity
    while len(values) > 1:
        pairs = [operation(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(values) & ~1 :]
    return values[0]


def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf of `tree` is true.

    Args:
        is_leaf: a predicate: subtrees for which it is true are leaves.

    >>> jax.tree_util.tree_all({'a': True, 'b': [True, False]})
    False
    """
    return all(tree_leaves(tree, is_leaf))


def tree_transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any) -> Any:
    """`pytree_to_transpose`, of structure outer(inner), rearranged to inner(outer), by `outer_treedef` and
    `inner_treedef` (None: it is found).

    Only leaves are counted, as in JAX: nodes may hold other static data than those of the structures. TypeError if there are more or fewer.

    >>> jax.tree_util.tree_transpose(jax.tree_util.tree_structure([0, 0]), jax.tree_util.tree_structure({'a': 0}), [{'a': 1}, {'a': 2}])
    {'a': [1, 2]}
    """
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    leaves, treedef = tree_flatten(pytree_to_transpose)
    if treedef.num_leaves != outer_treedef.num_leaves * inner_treedef.num_leaves:
        expected_treedef = outer_treedef.compose(inner_treedef)
        raise TypeError(
            f"tree_transpose: the structure of the tree\n{treedef}\nis not outer(inner):\n{expected_treedef}"
        )
    width = inner_treedef.num_leaves
    return inner_treedef.unflatten([outer_treedef.unflatten(leaves[i::width]) for i in range(width)])


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether every item of `iterable` is a leaf.

    Args:
        is_leaf: a predicate: subtrees for which it is true are leaves.

    >>> jax.tree_util.all_leaves([1, 2])
    True
    """
    return all(optree.tree_is_leaf(item, is_leaf, namespace=NAMESPACE) for item in iterable)


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure `treedef` has a single node: a leaf, None or an empty container.

    >>> jax.tree_util.treedef_is_leaf(jax.tree_util.tree_structure(1))
    True
    """
    return treedef.num_nodes == 1


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures directly below the root of `treedef`.

    >>> jax.tree_util.treedef_children(jax.tree_util.tree_structure((1, [2])))
    [PyTreeDef(*), PyTreeDef([*])]
    """
    return treedef.children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees of the structures `treedefs`.

    >>> jax.tree_util.treedef_tuple([jax.tree_util.tree_structure(1)])
    PyTreeDef((*,))
    """
    return PyTreeDef(optree.treespec_tuple([t.spec for t in treedefs], namespace=NAMESPACE))
