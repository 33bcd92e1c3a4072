"""The table of the dialects: every field differs and is read, and hardly any code asks for the dialect as a whole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import shardwise
from shardwise.base.config import config, use_dialect
from shardwise.base.dialect import LATEST, SEED

SOURCE = Path(shardwise.__file__).parent
TABLE = SOURCE / "base" / "dialect.py"
GROUPS = [f.name for f in fields(SEED) if hasattr(getattr(SEED, f.name), "__dataclass_fields__")]  # type: ignore[arg-type]
FIELDS = {f.name for f in fields(SEED)} - {"name"}  # type: ignore[arg-type]

# The modules that may ask for the dialect as a whole, each with its reason.
WHOLE = {
    "base/options.py": "the option that chooses the dialect lists them",
    "base/config.py": "follows that option",
    "cli/program.py": "so does the option of the command line",
    "cli/info.py": "tells the user which one is chosen",
    "runtime/processes/announce.py": "processes that compute together must have chosen the same one",
}


# Tables of the era of a name that one era has alone are handed on: to which modules, and how those read them.
HANDED_ON = {
    "shard_map": ("transforms/manual/shard_map", r"\brules\.(\w+)"),
    "explicit": ("transforms/manual/explicit", r"\brules\.(\w+)"),
    "types": ("", r"\btypes_table\(\)\.(\w+)"),
}


def leaves() -> Iterator[tuple[str, Any, Any]]:
    """Path and both values of every field that is no group."""
    for name in GROUPS:
        seed, latest = getattr(SEED, name), getattr(LATEST, name)
        for f in fields(seed):
            yield f"{name}.{f.name}", getattr(seed, f.name), getattr(latest, f.name)
    for f in fields(SEED):  # type: ignore[arg-type]
        if f.name not in GROUPS:
            yield f.name, getattr(SEED, f.name), getattr(LATEST, f.name)


@cache
def sources() -> dict[str, str]:
    return {str(p.relative_to(SOURCE)): p.read_text() for p in sorted(SOURCE.rglob("*.py")) if p != TABLE}


@cache
def read() -> set[str]:
    """The paths of fields that some code reads."""
    found = [re.findall(r"\bconfig\.dialect(?:_of\([^()]*\))?\.((?:\w+\.)?\w+)", text) for text in sources().values()]
    read = {path for paths in found for full in paths for path in (full, full.partition(".")[0])}
    return read | {
        f"{table}.{name}" for table, use in HANDED_ON.items() for path in sources() for name in _uses(path, use)
    }


def _uses(path: str, use: tuple[str, str]) -> list[str]:
    """The fields read of a table that was handed on, under the name that it has in some modules."""
    return re.findall(use[1], sources()[path]) if path.startswith(use[0]) else []


def whole_asks(text: str) -> list[int]:
    """The lines that ask which dialect it is, not for one of its fields."""
    if not re.search(r"dialect|latest|['\"]0\.(5|10)['\"]", text):  # spares most files the parser
        return []
    tree = ast.parse(text)
    inner = {id(n.value): n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    lines: list[int] = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="shardwise.base.dialect", names=names) if any(n.name.isupper() for n in names):
                lines.append(node.lineno)
            case ast.Constant(value="latest" | "0.5" | "0.10" | "shardwise_dialect"):
                lines.append(node.lineno)
            case ast.Attribute(value=ast.Name("config"), attr="latest" | "shardwise_dialect"):
                lines.append(node.lineno)
            case ast.Attribute(value=ast.Name("config"), attr="dialect") if inner.get(id(node)) not in FIELDS:
                lines.append(node.lineno)
            case _:
                pass
    return lines


@pytest.mark.parametrize(("path", "seed", "latest"), list(leaves()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_field_differs_and_is_read(path: str, seed: Any, latest: Any) -> None:
    assert seed != latest or type(seed) is not type(latest)
    assert path in read(), f"nothing reads config.dialect.{path}"


@pytest.mark.parametrize(
    "line",
    [
        "config.latest",
        "config.dialect.name == '0.5'",
        "d = config.dialect",
        "config.shardwise_dialect",
        "kind == 'latest'",
        "from shardwise.base.dialect import SEED",
    ],
)
def test_asking_for_the_whole_is_found(line: str) -> None:
    assert whole_asks(line)


def test_reading_a_field_is_no_such_asking() -> None:
    assert not whole_asks("config.dialect.meshes.frozen_error('no')\nconfig.dialect.jax_version")


def test_few_places_ask_for_the_dialect_as_a_whole() -> None:
    found = {path: lines for path, text in sources().items() if (lines := whole_asks(text))}
    assert len(WHOLE) <= 5
    assert found.keys() == WHOLE.keys(), (
        f"these ask which dialect it is: {found}. Give what differs a field in base/dialect.py, and read config.dialect.<field>."
    )


def test_the_table_follows_the_option() -> None:
    assert config.dialect is SEED
    with use_dialect("latest"):
        assert config.dialect is LATEST
    assert config.dialect is SEED


def test_a_table_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SEED.meshes.entered_by = "with"  # type: ignore[misc]
