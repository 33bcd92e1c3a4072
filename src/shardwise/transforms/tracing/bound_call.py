"""One call of a compiled function: its leaves, their tree, the static arguments and the donated leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.errors import JaxRuntimeError
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import PyTreeDef, flatten_spec, tree_flatten, tree_unflatten
from shardwise.engine.array import ArrayImpl
from shardwise.ir import Literal, literal
from shardwise.ops.rules.convert import as_value
from shardwise.transforms.tracing.arguments import ArgSelection, StaticValue

_SCALARS = frozenset({float, int, bool, complex})
_ARRAYS = {ArrayImpl}


@dataclass(frozen=True, slots=True)
class Statics:
    """Static arguments by position and by keyword; hashable, part of the cache key."""

    args: tuple[tuple[int, StaticValue], ...] = ()
    kwargs: tuple[tuple[str, StaticValue], ...] = ()

    @property
    def given(self) -> bool:
        """Whether there are any."""
        return bool(self.args or self.kwargs)


@dataclass(frozen=True, slots=True)
class BoundCall:
    """One call's arguments: leaves, tree and statics."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic: tuple[Any, ...]
    dynamic_kwargs: dict[str, Any]
    leaves: list[Any]
    in_tree: PyTreeDef
    statics: Statics
    count: int

    def rebuild(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """args and kwargs with `leaves` for the dynamic leaves and the static values in their places."""
        dynamic, kwargs = tree_unflatten(self.in_tree, leaves)
        args = list(dynamic)
        for i, static in self.statics.args:
            args.insert(i, static.value)
        return args, {**kwargs, **{k: v.value for k, v in self.statics.kwargs}}

    def donated_positions(self, chosen: ArgSelection) -> list[int]:
        """The positions of the donated leaves."""
        if not chosen.donate_nums and not chosen.donate_names:
            return []
        static = dict(self.statics.args)
        nums = {n % self.count if -self.count <= n < 0 else n for n in chosen.donate_nums}
        positions, at = list[int](), 0
        for i, arg in enumerate(self.args):
            if i in static:
                continue
            size = len(tree_flatten(arg)[0])
            if i in nums:
                positions += range(at, at + size)
            at += size
        for key in sorted(self.dynamic_kwargs):
            size = len(tree_flatten(self.dynamic_kwargs[key])[0])
            if key in chosen.donate_names:
                positions += range(at, at + size)
            at += size
        return positions


def key_leaves(leaves: Sequence[Any]) -> tuple[list[Any], list[Any]] | None:
    """Leaves as values, and the key of each; None if one of them is no array or number.

    Arrays give their signature, numbers their type.
    """
    values: list[Any] = []
    keys: list[Any] = []
    for x in leaves:
        if type(x) is ArrayImpl:
            values.append(x)
            keys.append(x._sig)
            continue
        if type(x) in _SCALARS:
            value = literal(x)
            key = value.aval
        elif isinstance(x, (np.ndarray, np.generic)):
            value = as_value(x)
            key = value.aval if type(value) is Literal else value._sig  # type: ignore[union-attr]
        else:
            return None
        values.append(value)
        keys.append(key)
    return values, keys


def keyed_tree(tree: Any, values: list[Any], keys: list[Any]) -> Any:
    """Append the leaves of a tree to `values`, and their keys (see `key_leaves`) to `keys`; returns the tree's structure, to be part of
    a key. TypeError if a leaf is no array or number.

    Built-in containers of arrays, the usual form of parameters, take a third of the time of the general tree walk.
    """
    kind = type(tree)
    if kind is ArrayImpl:
        values.append(tree)
        keys.append(tree._sig)
        return ArrayImpl
    if kind is dict:
        try:
            names = sorted(tree)
        except TypeError:  # names of several types
            return _keyed_otherwise(tree, values, keys)
        head, children = (dict, *names), [tree[name] for name in names]
    elif kind is list or kind is tuple:
        head, children = (kind, len(tree)), tree
    else:
        return _keyed_otherwise(tree, values, keys)
    if set(map(type, children)) == _ARRAYS:
        values += children
        keys += [x._sig for x in children]
        return head
    return head, *[keyed_tree(child, values, keys) for child in children]


def _keyed_otherwise(tree: Any, values: list[Any], keys: list[Any]) -> Any:
    leaves, form = flatten_spec(tree)
    leaf_keys = key_leaves(leaves)
    if leaf_keys is None:
        raise TypeError("a leaf is no array or number")
    values += leaf_keys[0]
    keys += leaf_keys[1]
    return form


def check_donation(leaves: Sequence[Any], donated: Sequence[int]) -> None:
    """Raise JaxRuntimeError if a donated array is given twice."""
    donated_by_id: dict[int, bool] = {}
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, ArrayImpl):
            continue
        was_donated = donated_by_id.get(id(leaf))
        if was_donated is not None and (was_donated or i in donated):
            both = was_donated and i in donated
            raise JaxRuntimeError(
                "Attempt to donate the same buffer twice in one call. Pass a copy for one of the arguments."
                if both
                else "Attempt to use a buffer that was previously donated in the same call to Execute(). Pass a copy for one of "
                "the arguments."
            )
        donated_by_id[id(leaf)] = i in donated
