"""Trees as plain data, and the registrations of users' classes."""

from __future__ import annotations

import collections
import json
from typing import NamedTuple

import pytest

from shardwise import tree_util
from shardwise.base.tree_data import tree_as_data, tree_from_data
from shardwise.export import register_namedtuple_serialization, register_pytree_node_serialization


class Pair(NamedTuple):
    left: object
    right: object


@tree_util.register_pytree_node_class
class Named:
    def __init__(self, value, name):
        self.value, self.name = value, name

    def tree_flatten(self):
        return (self.value,), self.name

    @classmethod
    def tree_unflatten(cls, name, children):
        return cls(*children, name)  # type: ignore[call-arg]


register_namedtuple_serialization(Pair, serialized_name="test_trees.Pair")
register_pytree_node_serialization(
    Named, serialized_name="test_trees.Named", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
)


@pytest.mark.parametrize(
    "tree",
    [
        0,
        (),
        ((1, [2, None]), {"b": 3, "a": (4,)}),
        {2: 0, 1: 0},
        Pair(1, [Pair(2, 3)]),
        {"n": Named((1, 2), "name")},
        collections.OrderedDict(b=1, a=2),
    ],
    ids=["leaf", "empty", "nested", "ints", "namedtuples", "named keys", "ordered"],
)
def test_trees(tree):
    structure = tree_util.tree_structure(tree)
    assert tree_from_data(json.loads(json.dumps(tree_as_data(structure)))) == structure


def test_refusals():
    class Unknown(NamedTuple):
        x: int

    with pytest.raises(ValueError, match=r"Unknown.*register_namedtuple_serialization"):
        tree_as_data(tree_util.tree_structure(Unknown(1)))
    with pytest.raises(ValueError, match="is registered by the name"):
        register_namedtuple_serialization(Pair, serialized_name="other")
    with pytest.raises(ValueError, match="is the name of"):
        register_namedtuple_serialization(Unknown, serialized_name="test_trees.Pair")
    with pytest.raises(ValueError, match="no namedtuple"):
        register_namedtuple_serialization(list, serialized_name="list")
    with pytest.raises(ValueError, match="register_pytree_node"):
        register_pytree_node_serialization(
            int, serialized_name="int", serialize_auxdata=lambda _: b"", deserialize_auxdata=lambda _: 0
        )
    with pytest.raises(ValueError, match=r"no class is registered.*register_pytree_node_serialization"):
        tree_from_data(["node", [], "nobody's", ""])
    with pytest.raises(NotImplementedError, match="keys are texts"):
        tree_as_data(tree_util.tree_structure({(1, 2): 0}))
    with pytest.raises(NotImplementedError, match="keys are texts"):
        tree_as_data(tree_util.tree_structure(collections.OrderedDict({1: 0})))
