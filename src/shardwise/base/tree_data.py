"""Trees of arguments and results as plain data, and the registrations that this takes for users' classes.

In: a `PyTreeDef`. Out: lists, texts and bytes in base64, and back. Python's containers need nothing; a class that was registered as a
node registers here how its own part of a node becomes bytes, and nothing of it is pickled.
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from shardwise.base.tree import PyTreeDef, tree_structure
from shardwise.base.treedef import registration

T = TypeVar("T", bound=type)
SerializeAuxData = Callable[[Any], bytes]
DeserializeAuxData = Callable[[bytes], Any]
BuildFromChildren = Callable[[Any, Sequence[Any]], Any]


class _Serialization(NamedTuple):
    kind: type
    name: str
    write: SerializeAuxData
    read: DeserializeAuxData
    build: BuildFromChildren


_by_kind: dict[type, _Serialization] = {}
_by_name: dict[str, _Serialization] = {}


def register_pytree_node_serialization(
    nodetype: T,
    *,
    serialized_name: str,
    serialize_auxdata: SerializeAuxData,
    deserialize_auxdata: DeserializeAuxData,
    from_children: BuildFromChildren | None = None,
) -> T:
    """Let nodes of a class stand in the trees of exported functions that are serialized.

    Args:
        nodetype: a class that is registered as a pytree node, or a namedtuple.
        serialized_name: its name in the bytes.
        serialize_auxdata: the node's own part, which its `flatten` gives beside the children, as bytes.
        deserialize_auxdata: the reverse.
        from_children: makes a node of that part and its children; None: as the class is registered.

    Returns:
        the class, so that this decorates it.

    Raises:
        ValueError: the class or the name is registered, or the class is no node and there is no `from_children`.

    >>> class Pair(tuple):
    ...     pass
    >>> jax.tree_util.register_pytree_node(Pair, lambda p: (tuple(p), None), lambda aux, children: Pair(children))
    >>> _ = jax.export.register_pytree_node_serialization(
    ...     Pair, serialized_name="docs.Pair", serialize_auxdata=lambda aux: b"", deserialize_auxdata=lambda data: None)
    """
    if nodetype in _by_kind:
        raise ValueError(
            f"Duplicate serialization registration for type `{nodetype}`: it is registered by the name `{_by_kind[nodetype].name}`."
        )
    if serialized_name in _by_name:
        raise ValueError(
            f"Duplicate serialization registration for serialized_name `{serialized_name}`: it is the name of "
            f"`{_by_name[serialized_name].kind}`. Choose another."
        )
    if from_children is None:
        registration_result = registration(nodetype)
        if registration_result is None:
            raise ValueError(
                f"{nodetype} is no pytree node: call tree_util.register_pytree_node for it first, or give `from_children`."
            )
        from_children = registration_result.unflatten
    entry = _Serialization(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata, from_children)
    _by_kind[nodetype] = _by_name[serialized_name] = entry
    return nodetype


def register_namedtuple_serialization(nodetype: T, *, serialized_name: str) -> T:
    """Let the namedtuple class `nodetype` stand, as `serialized_name`, in the trees of exported functions that are
    serialized.

    Raises:
        ValueError: it is no namedtuple, or the class or the name is registered.

    >>> import collections
    >>> Moments = collections.namedtuple("Moments", "mean var")
    >>> jax.export.register_namedtuple_serialization(Moments, serialized_name="docs.Moments") is Moments
    True
    """
    names = getattr(nodetype, "_fields", None)
    if not (issubclass(nodetype, tuple) and isinstance(names, tuple) and all(isinstance(n, str) for n in names)):
        raise ValueError(f"{nodetype} is no namedtuple: use register_pytree_node_serialization for other classes.")

    NodeClass: Any = nodetype

    def build(keys: Any, children: Sequence[Any]) -> Any:
        return NodeClass(**dict(zip(keys, children, strict=True)))

    return register_pytree_node_serialization(
        nodetype,
        serialized_name=serialized_name,
        serialize_auxdata=lambda _: json.dumps(names).encode(),
        deserialize_auxdata=lambda data: json.loads(data),
        from_children=build,
    )


def _keys_as_bytes(keys: Any) -> bytes:
    if not all(isinstance(k, str) for k in keys):
        raise NotImplementedError(
            f"an OrderedDict is serialized if its keys are texts, and these are {list(keys)}. Use such keys, or a class "
            "of your own."
        )
    return json.dumps(list(keys)).encode()


register_pytree_node_serialization(
    OrderedDict,  # pyright: ignore[reportArgumentType]
    serialized_name="collections.OrderedDict",
    serialize_auxdata=_keys_as_bytes,
    deserialize_auxdata=lambda data: tuple(json.loads(data)),
    from_children=lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
)


def tree_as_data(tree: PyTreeDef) -> Any:
    """A tree as lists and texts.

    Raises:
        ValueError: a node's class is not registered.
        NotImplementedError: the keys of a dict are no texts or numbers.
    """
    node = tree.node_data()
    if node is None:
        return "*"
    kind, data = node
    children = [tree_as_data(child) for child in tree.children()]
    if kind in (tuple, list, type(None)):
        return [kind.__name__, children]
    if kind is dict:
        keys = list(data)
        if not all(type(k) in (str, int) for k in keys):
            raise NotImplementedError(
                f"a dict is serialized if its keys are texts or whole numbers, and these are {keys}. Use such keys."
            )
        return ["dict", children, keys]
    if kind not in _by_kind:
        raise ValueError(
            f"Cannot serialize PyTree node of type `{kind}`, because it is not registered: call "
            "export.register_pytree_node_serialization or export.register_namedtuple_serialization for it."
        )
    entry = _by_kind[kind]
    own = base64.b64encode(bytes(entry.write(data))).decode()
    return ["node", children, entry.name, own]


def tree_from_data(data: Any) -> PyTreeDef:
    """The tree of such lists.

    Raises:
        ValueError: a node's class is not registered in this process, or the data is none of a tree.
    """
    return tree_structure(_example(data))


def _example(data: Any) -> Any:
    """A tree of that structure, with 0 for leaves."""
    if data == "*":
        return 0
    kind, children, *own = data
    below = [_example(child) for child in children]
    if kind in ("tuple", "list"):
        return tuple(below) if kind == "tuple" else below
    if kind == "NoneType":
        return None
    if kind == "dict":
        return dict(zip(own[0], below, strict=True))
    if kind != "node":
        raise ValueError(f"the bytes have a node of the unknown kind {kind!r}.")
    name, example = own
    if name not in _by_name:
        raise ValueError(
            f"Cannot deserialize PyTree node `{name}`, because no class is registered by this name: call "
            "export.register_pytree_node_serialization for it before."
        )
    entry = _by_name[name]
    return entry.build(entry.read(base64.b64decode(example)), tuple(below))
