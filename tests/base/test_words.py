"""Names of functions are verbs or nouns, names of classes and of values nouns: none is a bare participle (`joined`, `looked_up`, `Held`),
except those listed and counted here.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

import shardwise

ROOT = Path(shardwise.__file__).parent

# Participles without a regular ending.
IRREGULAR = frozenset(
    (
        "begun bent born bought brought built caught come dealt done drawn fed felt fought found frozen gone got grown held kept known "
        "laid led left lent lost made meant met overwritten paid rebuilt remade said seen sent shown shrunk sold sought spent stood stuck "
        "sunk swept swum taken taught thrown told torn understood unset unsplit won worn woven wound written"
    ).split()
)
# Words with a participle's ending that are nouns or adjectives in the field, or begin a noun phrase there.
NOUNS = frozenset(
    (
        "binding bound bounds children counting crowding encoding hidden indexing king listing mapping meeting nothing padding pooling "
        "ring rounding setting sharding something spacing string thing tiling token tracing warning"
    ).split()
)
# Words that may follow a participle without making it a noun phrase.
AFTER = frozenset(
    (
        "again along anew apart around as at away back before behind beside by down first for from here in inside into last off on once "
        "only onto out outside over through to together up upon with within without"
    ).split()
)

# Names that JAX, NumPy and Python give.
GIVEN = frozenset(
    (
        "Blocked Buffered Chunked Compiled Exported Lowered Malformed Replicated Squeezed Traced Unblocked Unstacked _missing_ "
        "defbroadcasting defvectorized extended fromstring hamming hanning invarying known ragged_all_to_all searchsorted"
    ).split()
)

# Names that are still to find. This list shrinks.
LEFT = frozenset(
    (
        "base.caches:Bounded ir.references:held ir.shown:Shown passes.split:Known planner.pooled:held ref.holder:held ref.places:held "
        "ref.views:held runtime.loops.build:Stored runtime.loops.layout:Met runtime.loops.nest:Saved runtime.loops.stacks:Spaced"
    ).split()
)

# How many bare participles the modules of each room give to values, each counted once a module. These numbers fall: change them by
# hand where they are more than `SLACK` above what is found.
VALUES = {
    "": 3,
    "_src": 3,
    "base": 4,
    "cli": 3,
    "engine": 2,
    "experimental": 4,
    "export": 1,
    "extend": 1,
    "ir": 23,
    "nn": 1,
    "numpy": 4,
    "ops": 4,
    "passes": 57,
    "plan": 6,
    "planner": 77,
    "runtime": 396,
    "scipy": 2,
    "sharding": 13,
    "transforms": 13,
}
SLACK = 5


def is_participle(word: str) -> bool:
    regular = len(word) > 4 and word.endswith(("ed", "ing")) and not word.endswith("eed")
    return word not in NOUNS and (regular or word in IRREGULAR)


def is_bare(name: str) -> bool:
    """Whether a name is a participle, alone or with adverbs and prepositions behind it."""
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.strip("_"))
    first, *rest = words.lower().split("_")
    return is_participle(first) and all(word in AFTER or is_participle(word) for word in rest)


def name_of_definition(node: ast.AST) -> str | None:
    """The name of a class, function or method; a property is a value."""
    if isinstance(node, ast.ClassDef):
        return node.name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        marks = " ".join(ast.unparse(d) for d in node.decorator_list)
        if "property" not in marks and "setter" not in marks:
            return node.name
    return None


@functools.cache
def bare_names() -> tuple[frozenset[str], Counter[str]]:
    """The definitions whose names are bare participles, and per room how many such names modules give to values."""
    found: set[str] = set()
    values: Counter[str] = Counter()
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        given: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store):
                    given.add(node.id)
            elif (
                (name := name_of_definition(node)) and not name.startswith("__") and name not in GIVEN and is_bare(name)
            ):
                found.add(f"{module}:{name}")
        values[parts[0] if len(parts) > 1 else ""] += sum(name != "left" and is_bare(name) for name in given)
    return frozenset(found), values


@pytest.mark.parametrize(
    "name", ["joined", "_held", "looked_up", "taken_along", "gathering", "sent", "Held", "TracedBefore"]
)
def test_the_rule_finds_participles(name: str) -> None:
    assert is_bare(name)


@pytest.mark.parametrize(
    "name",
    ["join_axes", "is_joined", "joined_axes", "padding", "split", "put", "_string", "JoinedBlock", "GSPMDSharding"],
)
def test_the_rule_lets_verbs_and_nouns_pass(name: str) -> None:
    assert not is_bare(name)


def test_no_name_is_a_bare_participle() -> None:
    found, _ = bare_names()
    assert found - LEFT == set(), (
        "say what it does (join_axes), what it returns (joined_axes) or what it is (JoinedBlock)"
    )
    assert LEFT - found == set(), "found a name: off the list"


def test_values_have_names_of_nouns() -> None:
    _, values = bare_names()
    more = {room: count for room, count in values.items() if count > VALUES.get(room, 0)}
    assert not more, "say what it is: found_axes, not found; is_joined, not joined"
    fewer = {room: values[room] for room, count in VALUES.items() if values[room] < count - SLACK}
    assert not fewer, "fewer than they were: lower their numbers here"
