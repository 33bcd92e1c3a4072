"""Classes as tree nodes: the ways to register one, and `Partial`.

In: a class and how to take it apart. Out: values of the class are nodes of trees, named in key paths.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Self, TypeVar

from shardwise.base.treedef import register_pytree_node
from shardwise.base.treepath import GetAttrKey

Class = TypeVar("Class", bound=type)


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], Any],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], Any] | None = None,
) -> None:
    """Like `register_pytree_node` of `nodetype`, with key paths: ``flatten_with_keys(x) -> ((key, child) pairs,
    aux)`` and ``unflatten_func(aux, children) -> x``; `flatten_func` may be given as a faster form without them.

    >>> class Box:
    ...     def __init__(self, content):
    ...         self.content = content
    >>> key = jax.tree_util.GetAttrKey("content")
    >>> jax.tree_util.register_pytree_with_keys(Box, lambda b: (((key, b.content),), None), lambda aux, c: Box(*c))
    >>> jax.tree_util.tree_flatten_with_path(Box(3))[0]
    [((GetAttrKey(name='content'),), 3)]
    """

    def flatten(x: Any) -> tuple[Iterable[Any], Any]:
        pairs, aux = flatten_with_keys(x)
        return [child for _, child in pairs], aux

    register_pytree_node(nodetype, flatten_func or flatten, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: Class) -> Class:
    """Class decorator: register a class by its methods `tree_flatten(self)`, `tree_unflatten(cls, aux, children)`.

    >>> @jax.tree_util.register_pytree_node_class
    ... class Point:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    ...     def tree_flatten(self):
    ...         return (self.x, self.y), None
    ...     @classmethod
    ...     def tree_unflatten(cls, _, children):
    ...         return cls(*children)
    >>> jax.jit(lambda p: p.x + p.y)(Point(1, 2))
    Array(3, dtype=int32, weak_type=True)
    """
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys_class(cls: Class) -> Class:
    """Class decorator of `cls`: as `register_pytree_node_class`, by `tree_flatten_with_keys(self)` and
    `tree_unflatten`.

    >>> @jax.tree_util.register_pytree_with_keys_class
    ... class Point:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def tree_flatten_with_keys(self):
    ...         return ((jax.tree_util.GetAttrKey("x"), self.x),), None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux, children):
    ...         return cls(*children)
    >>> jax.tree_util.tree_flatten_with_path(Point(3))[0]
    [((GetAttrKey(name='x'),), 3)]
    """
    flatten = operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None
    with_keys = operator.methodcaller("tree_flatten_with_keys")
    register_pytree_with_keys(cls, with_keys, cls.tree_unflatten, flatten)  # type: ignore[attr-defined]
    return cls


def register_static(cls: Class) -> Class:
    """Class decorator of `cls`: values of the class are nodes without children, part of the structure. They must be
    hashable.

    >>> @jax.tree_util.register_static
    ... class Activation(str):
    ...     pass
    >>> jax.tree.leaves([Activation("relu"), 1])
    [1]
    """
    register_pytree_node(cls, lambda x: ((), x), lambda aux, _: aux)
    return cls


def register_dataclass(
    nodetype: Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Class:
    """Make the dataclass `nodetype` (or a class made from keyword arguments) a node: the fields `data_fields` are
    children, `meta_fields` structure, `drop_fields` neither.

    For a dataclass the fields default to those of its `__init__`: meta where `field(metadata={'static': True})`, data
    otherwise. TypeError if only one list is given, or none for a class that is no dataclass; ValueError if the lists
    overlap or do not make up the fields of `__init__`.

    >>> import dataclasses
    >>> @jax.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Scaled:
    ...     x: object
    ...     by: int = dataclasses.field(metadata={'static': True})
    >>> jax.tree_util.tree_leaves(Scaled(1.0, by=2))
    [1.0]
    """
    is_dataclass = dataclasses.is_dataclass(nodetype)
    init_fields = [f for f in dataclasses.fields(nodetype) if f.init] if is_dataclass else []
    if (data_fields is None) != (meta_fields is None):
        raise TypeError("register_dataclass takes data_fields and meta_fields together, or neither of them.")
    if data_fields is None or meta_fields is None:
        if not is_dataclass:
            raise TypeError(f"register_dataclass: {nodetype} is no dataclass, so give data_fields and meta_fields.")
        data_fields = [f.name for f in init_fields if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in init_fields if f.metadata.get("static", False)]
        data_fields = [name for name in data_fields if name not in drop_fields]
        meta_fields = [name for name in meta_fields if name not in drop_fields]
    data, meta = tuple(data_fields), tuple(meta_fields)
    if both := set(data) & set(meta):
        raise ValueError(f"register_dataclass: {sorted(both)} are listed both as data_fields and as meta_fields.")
    if is_dataclass:
        field_names = {f.name for f in init_fields} - set(drop_fields)
        if {*data, *meta} != field_names:
            missing_fields, extra = sorted(field_names - {*data, *meta}), sorted({*data, *meta} - field_names)
            raise ValueError(
                f"register_dataclass: data_fields and meta_fields must make up the init fields of {nodetype.__name__}; "
                f"missing {missing_fields}, unexpected {extra}. Leave fields out with drop_fields."
            )
    keys = tuple(map(GetAttrKey, data))

    def flatten(x: Any) -> tuple[list[Any], tuple[Hashable, ...]]:
        return [getattr(x, name) for name in data], tuple([getattr(x, name) for name in meta])

    def flatten_with_keys(x: Any) -> tuple[list[tuple[GetAttrKey, Any]], tuple[Hashable, ...]]:
        return [(key, getattr(x, key.name)) for key in keys], tuple([getattr(x, name) for name in meta])

    def unflatten(aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        return nodetype(**dict(zip(data, children, strict=True)), **dict(zip(meta, aux, strict=True)))

    register_pytree_node(nodetype, flatten, unflatten, flatten_with_keys)
    return nodetype


def static(**kwargs: Any) -> Any:
    """A dataclass field that `register_dataclass` takes as structure, not as data.

    `kwargs` are those of `dataclasses.field`.

    >>> import dataclasses
    >>> @jax.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: jax.Array
    ...     name: str = jax.tree.static(default="dense")
    >>> jax.tree.leaves(Layer(jnp.ones(2)))
    [Array([1., 1.], dtype=float32)]
    """
    options: dict[str, Any] = {**kwargs, "metadata": {"static": True, **(kwargs.get("metadata") or {})}}
    return dataclasses.field(**options)


class Partial(functools.partial):  # type: ignore[type-arg]
    """`functools.partial` as a tree: the arguments are data, the function is structure (and must be hashable).

    Arguments of a partial inside are structure, too.

    >>> add = jax.tree_util.Partial(jnp.add, 1)
    >>> jax.jit(lambda f, x: f(x))(add, 2)
    Array(3, dtype=int32, weak_type=True)
    """

    def __new__(cls, func: Callable[..., Any], *args: Any, **keywords: Any) -> Self:
        # functools.partial would take the inner partial apart and join both lists of arguments.
        whole = func.__call__ if isinstance(func, functools.partial) else func
        return super().__new__(cls, whole, *args, **keywords)


def _flatten_partial(p: Partial) -> tuple[tuple[Any, ...], Any]:
    return (p.args, p.keywords), p.func


def _flatten_partial_with_keys(p: Partial) -> tuple[tuple[Any, ...], Any]:
    return ((GetAttrKey("args"), p.args), (GetAttrKey("keywords"), p.keywords)), p.func


register_pytree_node(
    Partial, _flatten_partial, lambda func, parts: Partial(func, *parts[0], **parts[1]), _flatten_partial_with_keys
)
