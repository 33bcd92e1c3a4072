"""`PartitionSpec` in both dialects."""

# ruff: noqa: SIM201, SIM202, SIM300, RUF005 (both operand orders and all operators are what is tested)

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import optree
import pytest

from shardwise.base.config import use_dialect
from shardwise.sharding import AxisType, NamedSharding, make_mesh
from shardwise.sharding.spec import UNCONSTRAINED, P, PartitionSpec, entry_axes, spec_axes

ENTRIES = [
    (),
    ("x",),
    ("x", None),
    (("x", "y"),),
    (("x",),),
    (["x", "y"],),
    ((),),
    (None,),
    ((None,),),
    (1, 2.5, b"a"),
    ([1],),
    ({},),
    ("", 0),
    (("x", None),),
]
# as JAX 0.5.3 prints them
SEED = [
    "PartitionSpec()",
    "PartitionSpec('x',)",
    "PartitionSpec('x', None)",
    "PartitionSpec(('x', 'y'),)",
    "PartitionSpec('x',)",
    "PartitionSpec(('x', 'y'),)",
    "PartitionSpec(None,)",
    "PartitionSpec(None,)",
    "PartitionSpec(None,)",
    "PartitionSpec(1, 2.5, b'a')",
    "PartitionSpec(1,)",
    "PartitionSpec(None,)",
    "PartitionSpec(None, None)",
    "PartitionSpec(('x', None),)",
]


def test_normalised_and_printed_as_the_seed_does():
    assert [repr(P(*entries)) for entries in ENTRIES] == SEED
    assert repr(P(P.UNCONSTRAINED, "x")) == "PartitionSpec(UNCONSTRAINED, 'x')"


def test_normalised_and_printed_as_jax_does(latest: None):
    jax = pytest.importorskip("jax")
    for entries in ENTRIES:
        assert repr(P(*entries)) == repr(jax.P(*entries))
    for unreduced, reduced in [({"y"}, set()), (set(), {"y"}), ({"y"}, {"z"})]:
        for entries in [(), ("x",), ("x", None)]:
            ours = P(*entries, unreduced=unreduced, reduced=reduced)
            assert repr(ours) == repr(jax.P(*entries, unreduced=unreduced, reduced=reduced))


def test_trailing_none_and_empty_are_kept():
    assert P("x") != P("x", None) and P() != P(None) and P("x") == P(("x",))
    assert len(P("x", None)) == 2 and list(P("x", None)) == ["x", None]


def test_a_tuple_under_the_seed():
    assert P("x") == ("x",) and ("x",) == P("x") and hash(P("x")) == hash(("x",)) and not P("x") != ("x",)
    assert type(P("x") + P("y")) is tuple and P("x") + ("y",) == ("x", "y") and ("y",) + P("x") == ("y", "x")
    assert isinstance(P("x"), tuple) and type(P("x", "y")[:1]) is tuple and P("x", "y")[-1] == "y"
    assert P("x", unreduced={"y"}) != ("x",)
    nested = P((("x", "y"), "z"))
    assert nested[0] == (("x", "y"), "z")

    class Mine(PartitionSpec):
        pass

    assert repr(Mine("x")) == "PartitionSpec('x',)" and Mine("x") is P("x")


def test_equality_with_tuples_normalises_them_under_the_seed():
    assert P("x") == (("x",),) and P(None) == ((),) and P(("x", "y")) == (["x", "y"],) and P("x") != ("x", None)


def test_no_tuple_under_latest(latest: None):
    assert not isinstance(P("x"), tuple) and type(P("x")) is PartitionSpec and not isinstance(P("x"), Sequence)
    assert P("x") != ("x",) and ("x",) != P("x") and not P("x") == ("x",)
    assert P("x") + P("y") == P("x", "y") and P("x") + ("y",) == P("x", "y") and ("y",) + P("x") == P("y", "x")
    assert P("x", unreduced={"y"}) + P("z") == P("x", "z", unreduced={"y"})
    for add in (lambda: P("x") + ["y"], lambda: ["y"] + P("x"), lambda: P("x") + 1):
        with pytest.raises(NotImplementedError, match="Pass a PartitionSpec, or a tuple"):
            add()
    for add in (lambda: P("x", unreduced={"y"}) + ("z",), lambda: ("z",) + P("x", reduced={"y"})):
        with pytest.raises(TypeError, match="add a PartitionSpec"):
            add()
    with pytest.raises(ValueError, match=r"nested tuple"):
        P((("x", "y"), "z"))
    with pytest.raises(TypeError, match="unhashable"):
        P({"x": 1})
    with pytest.raises(TypeError, match="cannot be subclassed"):
        type("Mine", (PartitionSpec,), {})


def test_read_as_a_sequence_under_latest(latest: None):
    spec = P("x", None, ("y", "z"))
    assert len(spec) == 3 and list(spec) == ["x", None, ("y", "z")] == [spec[0], *spec[1:]] and type(spec[1:]) is tuple
    assert "x" in spec and "y" not in spec and spec[-1] == ("y", "z") and P(*spec) is spec and not P() and P(None)
    with pytest.raises(IndexError):
        spec[3]
    first, *_ = spec
    assert first == "x"


def test_reduced_and_unreduced_axes_are_not_lost_under_latest(latest: None):
    for spec in (P("x", unreduced={"y"}), P("x", reduced={"y"})):
        assert len(spec) == 1 and spec.partitions == ("x",)
        for read in (lambda s: s[0], list, lambda s: "x" in s, lambda s: P(*s)):
            with pytest.raises(ValueError, match="lose the unreduced and reduced axes"):
                read(spec)


def test_specs_of_both_dialects():
    seed = P("x", ("y", "z"), unreduced={"w"})
    plain = P("x", None)
    with use_dialect("latest"):
        latest, same = P("x", ("y", "z"), unreduced={"w"}), P("x", None)
        for a, b in [(seed, latest), (plain, same)]:
            assert a == b and b == a and not a != b and not b != a and hash(a) == hash(b) and a is not b
            assert isinstance(a, PartitionSpec) and isinstance(b, PartitionSpec)
            assert type(a.update()) is type(b) is PartitionSpec and pickle.loads(pickle.dumps(a)) is b
        assert repr(seed).startswith("PartitionSpec(") and repr(latest).startswith("P(")
        assert P("x", None) is same
    assert (
        not isinstance(latest.update(), tuple)
        and isinstance(seed.update(), tuple)
        and pickle.loads(pickle.dumps(same)) is plain
    )


def test_shardings_show_specs_of_the_dialect_in_force():
    mesh = make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, P("x"))
    with use_dialect("latest"):
        assert not isinstance(sharding.spec, tuple) and sharding.spec is P("x")
        assert sharding is NamedSharding(mesh, P("x")), "tables that were filled before the switch find it"
    assert sharding.spec is P("x") and isinstance(sharding.spec, tuple)


@pytest.mark.parametrize("dialect", ["seed", "latest"])
def test_imported_under_either_dialect(dialect: str):
    program = (
        "from shardwise.sharding import PartitionSpec as P; from shardwise.base.config import use_dialect\n"
        "for name in ('seed', 'latest', 'seed'):\n"
        "    with use_dialect(name): assert isinstance(P('x'), tuple) == (name == 'seed') and isinstance(P('x'), P)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "SHARDWISE_DIALECT": dialect})


def test_interned_when_made_of_names():
    assert P("x", None, ("x", "y")) is P("x", None, ("x", "y"))
    assert P(1) == P(True) and P(True)[0] is True and P(1)[0] is not True


def test_unreduced_and_reduced():
    spec = P("x", unreduced={"y"})
    assert spec.unreduced == {"y"} and spec.reduced == frozenset() and spec != P("x")
    assert spec.update(partitions=("z",)) == P("z", unreduced={"y"})
    assert spec.update(unreduced=set()) == P("x")
    for bad, error in [
        ({"unreduced": ("y",)}, TypeError),
        ({"unreduced": {"x"}}, ValueError),
        ({"unreduced": {"y"}, "reduced": {"y"}}, ValueError),
        ({"reduced": {None}}, ValueError),
    ]:
        with pytest.raises(error, match="reduced"):
            P("x", **bad)


def test_index_and_count_normalise():
    assert P("x", ("x", "y")).index(["x", "y"]) == 1 and P("x", ("x", "y"), None).count(("x",)) == 1


def test_padded_and_partitions():
    assert P("x").pad_to_rank(3) == P("x", None, None) and P("x").pad_to_rank(0) is P("x")
    assert type(P("x").partitions) is tuple


def test_immutable_copied_and_pickled():
    spec = P("x", ("y", "z"), unreduced={"w"})
    assert copy.deepcopy(spec) is spec and copy.copy(P("x")) is P("x")
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert pickle.loads(pickle.dumps(P("x"))) is P("x")
    assert pickle.loads(pickle.dumps(P(UNCONSTRAINED)))[0] is UNCONSTRAINED
    with pytest.raises(AttributeError, match="cannot assign to field 'foo'"):
        spec.foo = 3
    with pytest.raises(AttributeError, match="cannot delete field 'unreduced'"):
        del spec.unreduced
    with pytest.raises(TypeError):
        P(**{"foo": frozenset()})


def test_a_leaf_of_pytrees():
    tree: Any = [P("x"), (P("x", None), 3)]
    assert optree.tree_leaves(tree, none_is_leaf=True) == [P("x"), P("x", None), 3]


def test_a_leaf_of_pytrees_under_latest(latest: None):
    tree: Any = [P("x"), (P("x", None), 3)]
    assert optree.tree_leaves(tree, none_is_leaf=True) == [P("x"), P("x", None), 3]


def test_axes():
    assert spec_axes(P("x", None, ("y", "z"), UNCONSTRAINED)) == ("x", "y", "z")
    assert entry_axes(None) == entry_axes(UNCONSTRAINED) == ()
