"""Doors of rooms: names for type checkers are those that importing finds; what only its room imports is protected."""

from __future__ import annotations

import ast
import tomllib
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import shardwise
from shardwise.base.doors import open_package

ROOT = Path(shardwise.__file__).parent


def doors() -> dict[str, ast.Call]:
    """The call of `open_door` of each package that has one."""
    found: dict[str, ast.Call] = {}
    for path in sorted(ROOT.rglob("__init__.py")):
        for node in ast.parse(path.read_text()).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(call := node.value, ast.Call)
                and isinstance(call.func, ast.Name)
            ) and call.func.id == "open_door":
                found[".".join(path.parent.relative_to(ROOT.parent).parts)] = call
    return found


DOORS = doors()


@pytest.mark.parametrize("room", DOORS)
def test_a_door_gives_what_it_lists(room: str) -> None:
    package = import_module(room)
    listed = {
        alias.name: node.module
        for block in ast.parse(Path(str(package.__file__)).read_text()).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    given = {
        name: f"{room}.{keyword.arg}"
        for keyword in DOORS[room].keywords
        for name in ast.literal_eval(keyword.value).split()
    }
    assert listed == given
    for name, module in given.items():
        assert getattr(package, name) is getattr(import_module(module), name)


@pytest.mark.parametrize("room", DOORS)
def test_other_names_are_refused(room: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        import_module(room).__getattr__("nothing")


def test_a_room_with_a_door_has_no_other_way_in() -> None:
    """Each of its modules is protected, but for those that others import as modules."""
    text = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())
    contracts = text["tool"]["importlinter"]["contracts"]
    protected = {module for c in contracts if c["type"] == "protected" for module in c["protected_modules"]}
    graph = grimp.build_graph("shardwise", exclude_type_checking_imports=True)
    bare: list[str] = []
    for room in DOORS:
        for module in sorted(graph.find_children(room)):
            users = graph.find_modules_that_directly_import(module) | {room}
            inner = all(user == room or user.startswith(f"{room}.") for user in users)
            if inner and not graph.find_children(module) and not any(fnmatch(module, p) for p in protected):
                bare.append(module)
    assert not bare, f"name these in the contract of their room's door: {bare}"


def test_a_public_package_imports_its_parts_when_they_are_asked_for() -> None:
    find, names = open_package("shardwise.scipy.stats", "norm", summaries="mode sem")
    assert find("norm") is import_module("shardwise.scipy.stats.norm")
    assert find("sem") is import_module("shardwise.scipy.stats.summaries").sem
    assert {"mode", "norm", "sem"} <= set(names())
    with pytest.raises(AttributeError, match="has no attribute 'summaries'"):
        find("summaries")
