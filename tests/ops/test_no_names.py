"""Nobody outside of `ops` knows an op by its name: a name is printed and hashed, never compared nor looked up in a table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import shardwise

ROOT = Path(shardwise.__file__).parent
FILES = sorted(p for p in ROOT.rglob("*.py") if p.relative_to(ROOT).parts[0] != "ops")

OWNERS = ("op", "maker", "primitive")
NAMING = re.compile(rf"\b({'|'.join(OWNERS)})\.name\b")  # without it there is nothing to look for
QUESTIONS = ("get", "startswith", "endswith", "index", "count", "find", "match", "removeprefix", "removesuffix")


def is_name_of_op(node: ast.AST, aliases: set[str]) -> bool:
    """``op.name``, ``eqn.op.name``, ``self.op.name``, and local names for them."""
    if isinstance(node, ast.Name):
        return node.id in aliases
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    return (isinstance(owner, ast.Name) and owner.id in OWNERS) or (
        isinstance(owner, ast.Attribute) and owner.attr == "op"
    )


def aliases_of(function: ast.AST) -> set[str]:
    """Local names that stand for an op's name."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for target, value in zip(targets, values, strict=False):
                if isinstance(target, ast.Name) and is_name_of_op(value, set()):
                    found.add(target.id)
    return found


def questions(tree: ast.AST) -> Iterator[ast.AST]:
    """Places where an op's name decides something."""
    scopes = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    seen: set[int] = set()
    for scope in (*scopes, tree):
        aliases = aliases_of(scope) if scope is not tree else set()
        for node in ast.walk(scope):
            asked: list[ast.AST] = []
            if isinstance(node, ast.Compare):
                asked = [node.left, *node.comparators]
            elif isinstance(node, ast.Subscript):
                asked = [node.slice]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUESTIONS:
                asked = [node.func.value, *node.args]
            if any(is_name_of_op(a, aliases) for a in asked) and id(node) not in seen:
                seen.add(id(node))
                yield node


def test_the_check_finds_what_it_is_for():
    for text in (
        "def f(eqn):\n    return eqn.op.name == 'psum'",
        "def f(eqn):\n    name, params = eqn.op.name, eqn.params\n    return TABLE.get(name)",
        "def f(op):\n    return op.name in TABLE",
        "def f(op):\n    return TABLE[op.name]",
        "def f(op):\n    return op.name.startswith('scatter')",
    ):
        assert list(questions(ast.parse(text))), text
    assert not list(questions(ast.parse("def f(eqn):\n    return f'{eqn.op.name} of {eqn.params}'")))


def test_no_loop_is_known_by_its_params():
    """Passes and the runtime ask `Op.region` which programs an equation runs, how often and on what."""
    params = {"num_consts", "num_carry", "cond_consts", "body_consts", "branches", "body", "length"}
    rooms = ("passes", "runtime", "engine", "ir")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] in rooms
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.expr) and keys_of(node) & params
    ]
    assert not found, "a param of scan, while or cond is asked for; make it a field of `Loop`:\n" + "\n".join(found)


def keys_of(node: ast.expr) -> set[object]:
    """The constants by which a node looks something up."""
    if isinstance(node, ast.Subscript):
        asked = [node.slice]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        asked = node.args[:1]
    elif isinstance(node, ast.Compare):
        asked = [node.left]
    else:
        asked = []
    return {a.value for a in asked if isinstance(a, ast.Constant)}


def test_no_name_decides():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]
        for path in FILES
        if NAMING.search(text := path.read_text())
        for node in questions(ast.parse(text))
    ]
    assert not found, "an op's name is asked for; make it a field of Op:\n" + "\n".join(found)
