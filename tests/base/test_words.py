"""Names of functions are verbs or nouns, names of classes nouns: none is a bare participle (`joined`, `looked_up`, `Held`), except
those listed here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


def is_participle(word: str) -> bool:
    regular = len(word) > 4 and word.endswith(("ed", "ing")) and not word.endswith("eed")
    return word not in NOUNS and (regular or word in IRREGULAR)


def is_bare(name: str) -> bool:
    """Whether a name is a participle, alone or with adverbs and prepositions behind it."""
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.strip("_"))
    first, *rest = words.lower().split("_")
    return is_participle(first) and all(word in AFTER or is_participle(word) for word in rest)


def definitions(tree: ast.AST) -> Iterator[str]:
    """The names of all classes, functions and methods; a property is a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = " ".join(ast.unparse(d) for d in node.decorator_list)
            if "property" not in marks and "setter" not in marks:
                yield node.name


def bare_names() -> Iterator[str]:
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in definitions(ast.parse(path.read_text(encoding="utf-8"))):
            if not name.startswith("__") and name not in GIVEN and is_bare(name):
                yield f"{module}:{name}"


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
    found = set(bare_names())
    assert found - LEFT == set(), (
        "say what it does (join_axes), what it returns (joined_axes) or what it is (JoinedBlock)"
    )
    assert LEFT - found == set(), "found a name: off the list"
