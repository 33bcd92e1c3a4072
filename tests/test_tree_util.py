import collections
import dataclasses
import functools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
import shardwise.tree as tree
from shardwise import tree_util as tu
from shardwise.base.tree import broadcast_prefix, equality_errors, prefix_errors

Point = collections.namedtuple("Point", "x y")


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), "pair"

    @classmethod
    def tree_unflatten(cls, aux, children):
        assert aux == "pair"
        return cls(*children)


class Keyed(Pair):
    def tree_flatten_with_keys(self):
        return [(SHARDWISE_KEYS[0]("a"), self.a), (SHARDWISE_KEYS[0]("b"), self.b)], "pair"


SHARDWISE_KEYS = [tu.GetAttrKey]


@dataclasses.dataclass
class Config:
    w: object
    name: object = dataclasses.field(default="n", metadata={"static": True})
    b: object = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int


def register(module):
    """The classes above in one tree library; each library has its own registry."""
    module.register_pytree_node_class(Pair)
    module.register_pytree_with_keys_class(Keyed)
    module.register_dataclass(Config)
    module.register_static(Frozen)


register(tu)


@pytest.fixture(scope="module")
def jtu():
    jax = pytest.importorskip("jax")
    if not jax.tree_util.is_tree_node(Pair):
        register(jax.tree_util)
    return jax.tree_util


TREES = [
    1,
    None,
    (),
    [],
    {},
    (1,),
    [1, (2, None)],
    {"b": 1, "a": {"z": [2], "c": 3}},
    {3: "x", 1: "y"},
    Point(1, [2, 3]),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.defaultdict(list, {"b": 1, "a": 2}),
    Pair(1, {"k": 2}),
    [Keyed(1, (2, 3)), None],
    Config([1, 2], "tag"),
    (Frozen(3), 1),
]


@pytest.mark.parametrize("x", TREES, ids=[f"{type(x).__name__}{i}" for i, x in enumerate(TREES)])
def test_same_leaves_structure_and_paths_as_jax(x, jtu):
    leaves, treedef = tu.tree_flatten(x)
    jleaves, jtreedef = jtu.tree_flatten(x)
    assert leaves == jleaves
    assert repr(treedef) == repr(jtreedef)
    assert treedef.num_leaves == jtreedef.num_leaves
    assert treedef.num_nodes == jtreedef.num_nodes
    assert [repr(c) for c in treedef.children()] == [repr(c) for c in jtreedef.children()]
    assert tu.treedef_is_leaf(treedef) == jtu.treedef_is_leaf(jtreedef)
    SHARDWISE_KEYS[0] = jtu.GetAttrKey
    jpaths = jtu.tree_leaves_with_path(x)
    SHARDWISE_KEYS[0] = tu.GetAttrKey
    paths = tu.tree_leaves_with_path(x)
    assert [(tu.keystr(p), repr(p)) for p, _ in paths] == [(jtu.keystr(p), repr(p)) for p, _ in jpaths]
    simple: Any = dict(simple=True, separator="/")
    assert [tu.keystr(p, **simple) for p, _ in paths] == [jtu.keystr(p, **simple) for p, _ in jpaths]
    assert [leaf for _, leaf in paths] == leaves
    again = treedef.unflatten(leaves)
    assert tu.tree_structure(again) == treedef
    assert hash(tu.tree_structure(again)) == hash(treedef)
    assert pickle.loads(pickle.dumps(treedef)) == treedef


def test_dicts_come_back_sorted():
    assert list(tu.tree_map(lambda v: v, {"b": 1, "a": 2})) == ["a", "b"]
    nested = tu.tree_structure(Config({"b": 1, "a": 2}))
    assert list(nested.canonical().unflatten([1, 2, 3]).w) == ["a", "b"]
    assert nested.canonical() == nested


def test_equal_metadata_is_not_confused():
    assert tu.tree_map(lambda v: v, Config(1, name=1)).name is not True
    assert tu.tree_map(lambda v: v, Config(1, name=True)).name is True


def test_map_and_reduce():
    assert tu.tree_map(lambda a, b: a + b, {"x": 1, "y": (2, None)}, {"x": 3, "y": (4, None)}) == {
        "x": 4,
        "y": (6, None),
    }
    assert tu.tree_map(lambda a, b: (a, b), (1, 2), ((3, 4), 5)) == ((1, (3, 4)), (2, 5))
    assert tu.tree_map(lambda a: 0 if a is None else a, (1, None), is_leaf=lambda a: a is None) == (1, 0)
    assert tu.tree_map_with_path(lambda p, a, b: (tu.keystr(p), a, b), [1], [2]) == [("[0]", 1, 2)]
    assert tree.reduce(lambda a, b: a - b, [1, 2, 3]) == -4
    assert tree.reduce(lambda a, b: a - b, [1, 2, 3], 10) == 4
    assert tree.reduce_associative(lambda a, b: a + b, list("abcde")) == "abcde"
    assert tree.reduce_associative(lambda a, b: a + b, [], identity=7) == 7
    assert tree.all((True, [1]))
    assert not tree.all((True, [0]))
    assert tree.broadcast((1, 2), ((3, 4), [5])) == ((1, 1), [2])
    with pytest.raises(TypeError):
        tree.reduce(lambda a, b: a, ())
    with pytest.raises(TypeError):
        tree.reduce_associative(lambda a, b: a, ())


def test_transpose():
    outer, inner = tu.tree_structure([0, 0]), tu.tree_structure((0, 0))
    assert tu.tree_transpose(outer, inner, [(1, 2), (3, 4)]) == ([1, 3], [2, 4])
    assert tu.tree_transpose(outer, None, [(1, 2), (3, 4)]) == ([1, 3], [2, 4])
    assert tu.tree_transpose(outer, None, [{"a": 1}, {"b": 2}]) == {"a": [1, 2]}  # as in JAX, which counts leaves
    with pytest.raises(TypeError, match="outer"):
        tu.tree_transpose(outer, inner, [(1, 2), (3, 4, 5)])


def test_is_leaf_with_path():
    pairs, treedef = tu.tree_flatten_with_path(
        {"a": (1, 2), "b": [3]}, is_leaf=lambda path, x: path == (tu.DictKey("a"),), is_leaf_takes_path=True
    )
    assert pairs == [((tu.DictKey("a"),), (1, 2)), ((tu.DictKey("b"), tu.SequenceKey(0)), 3)]
    assert repr(treedef) == "PyTreeDef({'a': *, 'b': [*]})"


@pytest.mark.parametrize(
    ("prefix", "full", "words"),
    [
        ((1, 2), (1, 2, 3), ["different lengths of tuple", "length 2", "length 3"]),
        ((1, [2]), (1, (2,)), ["different types", "[1]", "list", "tuple"]),
        ({"a": 1}, {"b": 1}, ["metadata", "'a'", "'b'"]),
        ((1, None), (1, 2), ["different types", "[1]", "NoneType", "int"]),
        (Point(1, (2,)), Point(1, (2, 3)), [".y", "length 1"]),
    ],
)
def test_errors_name_the_place(prefix, full, words, jtu):
    with pytest.raises(ValueError) as caught:
        tu.tree_map(lambda *_: 0, prefix, full)
    assert all(word in str(caught.value) for word in words)
    with pytest.raises(ValueError):
        jtu.tree_map(lambda *_: 0, prefix, full)
    with pytest.raises(ValueError):
        broadcast_prefix(prefix, full)
    (error,) = prefix_errors(prefix, full)
    assert "in_axes" in str(error("in_axes"))


def test_equality_errors():
    (found,) = equality_errors({"a": 1, "b": (1, 2)}, {"a": 1, "b": (1, 2, 3)})
    assert found == ((tu.DictKey("b"),), "tuple of length 2", "tuple of length 3", "the lengths do not match")
    assert not list(equality_errors((1, [2]), (3, [4])))


def test_broadcast_prefix():
    assert broadcast_prefix((1, 2), ((1, 2), 3)) == [1, 1, 2]
    assert broadcast_prefix((1, None), ((1, 2), 3), is_leaf=lambda x: x is None) == [1, 1, None]


def test_partial():
    p = tu.Partial(max, 1, key=abs)
    leaves, treedef = tu.tree_flatten(tu.Partial(max, 1, -5))
    assert leaves == [1, -5]
    assert treedef.unflatten([2, 7])() == 7
    assert tu.keystr(tu.tree_leaves_with_path(p)[1][0]) == ".keywords['key']"


@pytest.mark.parametrize("inner", [functools.partial, tu.Partial])
def test_arguments_of_a_partial_inside_are_structure(inner):
    p = tu.Partial(inner(max, 5, key=abs), 1, -7)
    assert p() == -7 and p(-9) == -9
    leaves, treedef = tu.tree_flatten(p)
    assert leaves == [1, -7] and treedef.unflatten([2, 3])() == 5
    assert tu.tree_structure(treedef.unflatten([2, 3])) == treedef
    if inner is functools.partial:  # as a result of a compiled function, whose inner argument is no array
        made = sw.jit(lambda x: tu.Partial(inner(lambda f, y: f(y), abs), x))(-3)
        assert int(made()) == 3


def test_registration_errors():
    for kind in (tuple, Pair, collections.OrderedDict):
        with pytest.raises(ValueError, match="already"):
            tu.register_pytree_node(kind, lambda x: ((), x), lambda aux, children: aux)
    with pytest.raises(TypeError, match="dataclass"):
        tu.register_dataclass(int)
    with pytest.raises(TypeError, match="together"):
        tu.register_dataclass(dataclasses.make_dataclass("D", ["a"]), data_fields=["a"])
    with pytest.raises(ValueError, match="missing"):
        tu.register_dataclass(dataclasses.make_dataclass("D", ["a", "b"]), data_fields=["a"], meta_fields=[])
    with pytest.raises(ValueError, match="both"):
        tu.register_dataclass(dataclasses.make_dataclass("D", ["a"]), data_fields=["a"], meta_fields=["a"])


def test_treedef_algebra():
    treedef = tu.tree_structure({"a": (1, 2)})
    assert treedef.node_data() == (dict, ["a"])
    assert treedef.compose(tu.tree_structure([0])) == tu.tree_structure({"a": ([1], [2])})
    assert tu.treedef_tuple([treedef, treedef]) == tu.tree_structure(({"a": (1, 2)}, {"a": (1, 2)}))
    assert tu.treedef_children(treedef) == [tu.tree_structure((1, 2))]
    assert treedef.flatten_up_to({"a": ((5, 6), 3)}) == [(5, 6), 3]
    assert treedef != "something else"
    assert tu.all_leaves([1, 2]) and not tu.all_leaves([1, None])
    for wrong in ([1], [1, 2, 3]):
        with pytest.raises(ValueError):
            tu.tree_unflatten(treedef, wrong)
    with pytest.raises(AttributeError):
        setattr(treedef, "spec", None)  # noqa: B010
    assert tu.flatten_one_level({"b": 1, "a": 2}) == ((2, 1), ("a", "b"))
    with pytest.raises(ValueError):
        tu.flatten_one_level(3)
    assert tu.default_registry.flatten_one_level(3) is None
    count = treedef.walk(lambda children, data: sum(children) + 1, lambda leaf: 1, [0, 0])
    assert count == treedef.num_nodes
    seen: list[object] = []
    Pair = collections.namedtuple("Pair", "x y")
    tree = [{"b": 1, "a": (2, None)}, collections.OrderedDict(d=Pair(3, 4)), tu.Partial(len)]
    tu.tree_structure(tree).walk(lambda _, data: seen.append(data), None, [0] * 4)
    assert seen == [None, None, ["a", "b"], Pair, ["d"], None, [], len, None]


def test_static_field():
    D = dataclasses.make_dataclass("D", [("a", int), ("s", str, tree.static(default="x"))])
    tu.register_dataclass(D)
    assert tu.tree_leaves(D(1)) == [1]
    assert tree.static(metadata={"static": False, "unit": "m"}).metadata == {"static": False, "unit": "m"}


def test_leaves_come_in_the_order_of_flattening():
    class Odd(dict[str, int]):
        pass

    pair = collections.namedtuple("pair", "a b")
    array = jnp.ones(2)
    trees = [
        array, 1, None, [], {}, (), [1, [2.0, None, (array, True)], "text"], {"b": 1, "a": {"d": array, "c": [np.ones(1)]}},
        {2: 1, 1: 2, "x": 3}, {"a": pair(1, array)}, [collections.OrderedDict(b=1, a=2), collections.defaultdict(list, b=[1], a=[2])],
        [Odd(a=1), object, {1.5: 1, 1: 2}], [np.float32(1), np.int8(2), {True: 1, False: 2}],
    ]  # fmt: skip
    for nested in trees:
        leaves = tu.tree_leaves(nested)
        flat = tu.tree_flatten(nested)[0]
        assert len(leaves) == len(flat) and all(a is b for a, b in zip(leaves, flat, strict=True)), nested


def test_broadcast_asks_is_leaf_of_the_prefix_alone():
    full = {"a": (1, 2), "b": [3]}
    given = sw.tree.broadcast({"a": (7,), "b": 8}, full, is_leaf=lambda x: isinstance(x, tuple))
    assert given == {"a": ((7,), (7,)), "b": [8]}


def test_a_symbolic_zero_of_the_interpreters_is_a_node_without_leaves():
    from shardwise.interpreters import ad

    zero = ad.Zero(sw.typeof(jnp.ones(2)))
    assert sw.tree.leaves([zero, 1]) == [1]
    assert sw.tree.map(lambda x: x, [zero])[0].aval is zero.aval


def test_containers_are_known_until_the_last_exit_handler(shell):
    program = """
import atexit
atexit.register(lambda: print(jax.tree.leaves((1, {"a": [2]})), jax.jit(lambda t: t[0] + t[1][0])((1, (2,)))))
import shardwise as jax
"""
    done = shell("-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2] 3\n", "")


def test_classes_of_namedtuples_are_registered_quietly():
    pair = collections.namedtuple("pair", "a b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tu.register_pytree_node(pair, lambda p: ((p.a,), p.b), lambda b, children: pair(children[0], b))
    assert tu.tree_leaves(pair(1, 2)) == [1] and tu.tree_map(lambda x: x + 1, pair(1, 2)) == pair(2, 2)


@pytest.mark.parametrize("found", [None, 5, (1,), (1, 2, 3), [[1.0], None], (5, None), (None, None)])
def test_flatten_functions_give_children_and_metadata(found):
    kind = type("Kind", (), {})
    tu.register_pytree_node(kind, lambda _: found, lambda _aux, _children: kind())
    for flatten in (tu.tree_leaves, tu.tree_structure, tu.tree_flatten_with_path, sw.jit(lambda _: 1.0)):
        with pytest.raises(ValueError, match=r"flatten function of pytree node .*Kind.* should return a tuple"):
            flatten(kind())


@pytest.mark.parametrize("found", [((1.0,), None), (([tu.GetAttrKey("a"), 1.0],), None), (5, None), None])
def test_flatten_functions_with_keys_give_pairs(found):
    kind = type("Kind", (), {})
    tu.register_pytree_with_keys(kind, lambda _: found, lambda _aux, _children: kind(), lambda _: ((1.0,), None))
    assert tu.tree_leaves(kind()) == [1.0]
    with pytest.raises(ValueError, match=r"flatten function .*Kind.* should return"):
        tu.tree_flatten_with_path(kind())


def test_children_may_be_any_iterable():
    kind = type("Kind", (), {})
    tu.register_pytree_node(kind, lambda _: ((i for i in (1.0, 2.0)), None), lambda _aux, _children: kind())
    assert tu.tree_leaves(kind()) == [1.0, 2.0]


def test_classes_whose_values_are_nodes(jtu):
    for kind in (list, dict, tuple, type(None), int, str, np.ndarray, Pair, Config, Point, collections.OrderedDict):
        assert tu.is_tree_node(kind) == jtu.is_tree_node(kind), kind
