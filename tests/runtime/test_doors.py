"""The doors of the runtime's rooms: names for type checkers are those that importing finds."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module

import pytest

ROOMS = ["fused", "loops", "machine", "processes", "products", "small"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_door_gives_what_it_lists(room: str) -> None:
    package = import_module(f"shardwise.runtime.{room}")
    tree = ast.parse(inspect.getsource(package))
    listed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (door,) = (node for node in tree.body if isinstance(node, ast.Assign))
    assert isinstance(door.value, ast.Call)
    given = {
        name: f"shardwise.runtime.{room}.{keyword.arg}"
        for keyword in door.value.keywords
        for name in ast.literal_eval(keyword.value).split()
    }
    assert listed == given
    for name, module in given.items():
        assert getattr(package, name) is getattr(import_module(module), name)


@pytest.mark.parametrize("room", ROOMS)
def test_other_names_are_refused(room: str) -> None:
    package = import_module(f"shardwise.runtime.{room}")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.__getattr__("nothing")
