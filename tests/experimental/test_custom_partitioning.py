"""custom_partitioning: its callbacks see shardings, what they give runs on the parts; rules are read as they are written."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from shardwise.sharding.factor_rule import parse_rule
from shardwise.tree_util import tree_map

VALUES = np.arange(512.0, dtype=np.float32).reshape(32, 16)


@pytest.fixture(scope="module")
def mesh():
    return sw.make_mesh((4, 2), ("x", "y"))


def _own(shapes):
    return tree_map(lambda s: s.sharding, shapes)


def test_a_product_of_parts(mesh):
    seen = []

    @functools.partial(custom_partitioning, static_argnums=(2,))
    def product(x, y, scale=1):
        return x @ y * scale

    def partition(scale, mesh, args, result):
        seen.append((scale, args[0].sharding.spec, args[1].sharding.spec, result.sharding.spec))
        lower = lambda x, y: lax.psum(x @ y, "y") * scale  # noqa: E731
        split = (NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("y", None)))
        return mesh, lower, NamedSharding(mesh, P("x", None)), split

    product.def_partition(partition, sharding_rule="i j, j k -> i k")
    x = sw.device_put(VALUES, NamedSharding(mesh, P("x", None)))
    y = sw.device_put(VALUES.T, NamedSharding(mesh, P("y", None)))
    out = sw.jit(lambda x, y: product(x, y, 2))(x, y)
    np.testing.assert_array_equal(np.asarray(out), VALUES @ VALUES.T * 2)
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)
    assert seen[-1] == (2, P("x", None), P("y", None), P("x", None))
    count = len(seen)
    np.testing.assert_array_equal(np.asarray(product(x, y, 3)), VALUES @ VALUES.T * 3)  # eagerly: the function
    sw.jit(product)(VALUES, VALUES.T)  # and on one device
    assert len(seen) == count


def test_results_without_a_rule_lie_as_inferred(mesh):
    double = custom_partitioning(lambda t: t["a"] * 2)
    double.def_partition(
        lambda mesh, args, result: (mesh, lambda t: t["a"] + t["a"], result.sharding, _own(args)),
        infer_sharding_from_operands=lambda mesh, args, result: args[0]["a"].sharding,
    )
    x = sw.device_put(VALUES, NamedSharding(mesh, P("y", "x")))
    out = sw.jit(lambda x: double({"a": x}))(x)
    assert out.sharding == x.sharding
    np.testing.assert_array_equal(np.asarray(out), VALUES * 2)
    with use_dialect("latest"), pytest.raises(NotImplementedError, match="provide sharding_rule"):
        sw.jit(lambda x: double({"a": x}))(sw.device_put(VALUES, NamedSharding(mesh, P("y", "x"))))


def test_what_cannot_be_is_refused(mesh):
    x = sw.device_put(VALUES, NamedSharding(mesh, P("x")))
    whole = custom_partitioning(lambda x: x)
    whole.def_partition(
        lambda mesh, args, result: (mesh, lambda x: x, NamedSharding(mesh, P()), _own(args)), sharding_rule="i j -> i j"
    )
    with pytest.raises(ValueError, match="Mismatch in result shapes"):
        sw.jit(whole)(x)
    with pytest.raises(NotImplementedError, match="custom_vmap"):
        sw.jit(sw.vmap(whole))(x)
    with pytest.raises(ValueError, match="call def_partition"):
        sw.jit(custom_partitioning(jnp.sin))(x)


def test_rules_as_text_and_as_mappings():
    rule = SdyShardingRule((ArrayMapping(BATCHING, CompoundFactor("i", "k"), "j"),), ((BATCHING, "i"),), i=2, k=2)
    text = parse_rule("... (i k) j -> ... i", i=2, k=2)
    shapes = [(3, 4, 5)], [(3, 2)]
    assert rule.rule_for(*shapes) == text.rule_for(*shapes)
    assert parse_rule("i j -> ").rule_for([(2, 3)], [()]).outputs == ((),)
    for wrong in ("i j", "i (j) -> i j", "(i j -> i j", "1 -> i", "i ... -> i"):
        with pytest.raises(ValueError):
            parse_rule(wrong)
    for wrong in ("i -> i j", "i j, k -> i j"):
        with pytest.raises(ValueError, match="the sharding rule"):
            parse_rule(wrong).rule_for([(2, 3)], [(2, 3)])


def test_lower_fn_may_call_compiled_functions(mesh):
    @custom_partitioning
    def double(x):
        return 2 * x

    def partition(mesh, args, result):
        own = args[0].sharding
        inner = sw.jit(lambda y: sw.jit(jnp.add)(y, y))
        return mesh, lambda x: lax.cond(x[0] < 0, inner, inner, inner(x)) / 2, own, (own,)

    double.def_partition(partition, sharding_rule="i -> i")
    x = sw.device_put(VALUES[:, 0], NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(np.asarray(sw.jit(double)(x)), 2 * VALUES[:, 0])


def test_functions_that_make_rules_get_a_list_of_types(mesh):
    seen: list[Any] = []

    @custom_partitioning
    def both(pair):
        return pair["a"] + 1, pair["b"] * 2

    def partition(mesh, args, result):
        kept = {name: part.sharding for name, part in args[0].items()}
        return mesh, both.fun, tuple(kept.values()), (kept,)

    def rule(mesh, args, results):
        seen.append([[t.rank for t in types] for types in (args, results)])
        assert args[0].shape == results[0].shape and args[1].get_dim_size(0) == len(VALUES)
        return ["i j, k -> i j, k", {}]

    both.def_partition(partition, sharding_rule=rule)
    x = sw.device_put(VALUES, NamedSharding(mesh, P("x", "y")))
    plus, twice = sw.jit(both)({"a": x, "b": x[:, 0]})
    assert seen[0] == [[2, 1], [2, 1]]
    np.testing.assert_array_equal(np.asarray(plus), VALUES + 1)
    np.testing.assert_array_equal(np.asarray(twice), VALUES[:, 0] * 2)
