"""Classes that register how vmap maps their values, as JAX's do: values enter and leave as wholes."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise.interpreters import batching
from tests.oracles import require


@dataclass
class Pair:
    """Elements that are mapped, and something that is not."""

    each: Any
    shared: Any
    number: Any = None


def register(batching: ModuleType) -> None:
    def enter(part: Any, index: Any, pair: Pair, spec: Any) -> Pair:
        each = part(pair.each, spec)
        assert each.ndim == pair.each.ndim - 1  # classes check their parts
        return Pair(each, pair.shared, index())

    def leave(stack: Any, size: int, pair: Pair, spec: Any) -> Pair:
        return Pair(stack(size, 2 * pair.each / 2, spec), pair.shared, size)  # leaving may compute, too

    batching.register_vmappable(Pair, int, int, enter, leave, None)


@pytest.fixture
def pairs():
    register(batching)
    yield
    batching.unregister_vmappable(Pair)


def mapped_pairs(jax: Any, in_axis: int, out_axis: int) -> list[Any]:
    """The result of a mapped function of a pair in a tree, with a plain array beside it."""
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)

    def f(tree: dict[str, Any], scale: Any) -> tuple[Any, Any]:
        pair = tree["pair"]
        return Pair(pair.each * scale + pair.number, pair.shared), pair.shared + scale

    scale = np.arange(float(x.shape[in_axis]), dtype=np.float32)
    pair, total = jax.vmap(f, in_axes=(in_axis, 0), out_axes=(out_axis, 0))({"pair": Pair(x, 7.0)}, scale)
    return [np.asarray(pair.each), pair.shared, pair.number, np.asarray(total)]


@pytest.mark.parametrize(("in_axis", "out_axis"), [(0, 0), (1, 0), (1, 1), (-1, -1)])
def test_values_are_mapped_as_wholes(pairs, in_axis, out_axis):
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    each, shared, number, total = mapped_pairs(sw, in_axis, out_axis)
    size = x.shape[in_axis]
    numbers = np.arange(size, dtype=np.float32)
    columns = np.moveaxis(x, in_axis, -1) * numbers + numbers
    np.testing.assert_array_equal(each, np.moveaxis(columns, -1, out_axis))
    assert (shared, number) == (7.0, size)
    np.testing.assert_array_equal(total, 7.0 + numbers)


def test_as_jax_does(pairs):
    require("latest")
    import jax
    from jax.interpreters import batching as jax_batching

    register(jax_batching)
    for axes in [(0, 0), (1, 0), (1, 1)]:
        for ours, theirs in zip(mapped_pairs(sw, *axes), mapped_pairs(jax, *axes), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_sizes_of_parts_must_agree(pairs):
    with pytest.raises(ValueError, match="inconsistent sizes"):
        sw.vmap(lambda pair, x: x)(Pair(np.ones(2), 0), np.ones(3))


@sw.tree_util.register_pytree_node_class
class Node(Pair):
    """A pair that is a node of trees."""

    def tree_flatten(self) -> Any:
        return (self.each, self.shared), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Any) -> Node:
        return cls(*children)


def test_nodes_of_trees_may_be_registered(pairs):
    node = Node(np.ones((2, 3)), 7.0)
    assert sw.vmap(lambda p: p.each, in_axes=(Node(1, None),))(node).shape == (3, 2)

    batching.register_vmappable(
        Node, int, int, lambda part, _, p, axis: Node(part(p.each, axis), p.shared),
        lambda stack, size, p, axis: Node(stack(size, p.each, axis), p.shared), None,
    )  # fmt: skip
    try:
        result, _ = sw.vmap(lambda p, x: (p, x), in_axes=(1, 0), out_axes=(0, 0))(node, np.ones(3))
    finally:
        batching.unregister_vmappable(Node)
    assert result.each.shape == (3, 2)
    assert result.shared == 7.0


def test_unregistered_classes_are_no_arguments():
    with pytest.raises(TypeError):
        sw.vmap(lambda pair: pair)(Pair(np.ones(2), 0))
