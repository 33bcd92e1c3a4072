"""Collections that users give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

import shardwise as sw
from shardwise.base.collections_given import given_items, given_keys


def test_what_was_expected_and_given_is_said() -> None:
    assert given_items(iter("ab"), "x") == given_keys(["a", "b"], "x") == ("a", "b")
    with pytest.raises(TypeError, match="a mesh takes names; got 3 of type int"):
        given_items(3, "a mesh takes names")
    with pytest.raises(TypeError, match=r"a mesh takes names; got \[\] of type list, which is mutable"):
        given_keys(["a", []], "a mesh takes names")


DOORS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda m: sw.sharding.Mesh(m.devices, 1.5), "a tuple of axis names; got 1.5 of type float"),
    (lambda m: sw.sharding.AbstractMesh((2,), ({},)), "axis names; got {} of type dict"),
    (lambda m: sw.make_mesh((2,), "x", devices=cast(Any, 1)), "make_mesh takes a sequence of devices; got 1"),
    (lambda m: m.abstract_mesh.update_axis_types("x"), "takes a dict from axis names to types; got 'x'"),
    (lambda m: sw.pmap(abs, devices=cast(Any, ["cpu"])), r"takes devices, as devices\(\) lists them; got"),
    (lambda m: sw.vmap(abs, spmd_axis_name=1), "takes an axis name, or a tuple of them; got 1"),
    (lambda m: sw.jit(abs, static_argnames=1), "static_argnames takes a str or a collection of strs; got 1"),
    (lambda m: sw.NamedSharding(m, sw.P("x")).shard_shape(cast(Any, 2)), "shard_shape takes a tuple of ints; got 2"),
]


@pytest.mark.parametrize(("call", "words"), DOORS)
def test_doors(call: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call(sw.sharding.Mesh(sw.devices()[:2], "x"))
