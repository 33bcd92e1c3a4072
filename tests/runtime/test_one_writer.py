"""Loops and branches of LLVM text are written in one place, `Flow`; nests are built in one place, `build_nest`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import shardwise

ROOT = Path(shardwise.__file__).parent
WRITER = "runtime/machine/flow.py"
BUILDER = "runtime/loops/build.py"

# What ends a basic block or joins some, what begins one, and how threads count what they take.
CONTROL = re.compile(
    r"\bbr (label|i1)\b|\bindirectbr\b|\bswitch i\d|\binvoke \w|= phi\b|\bphi (ptr|i\d|float|double|<|\[)"
    r"|\blabel %|\batomicrmw\b|^\s*[\w.]+:\n\s+(%|br|ret|store|call)",
    re.MULTILINE,
)

# A file whose source has none of these need not be parsed.
HINT = re.compile(r"\b(br|indirectbr|switch|invoke|phi|label|atomicrmw) |\w:(\\n|\n\s+(%|(br|ret|store|call) ))")


def texts(path: Path) -> list[str]:
    """The strings of a file that are no documentation; of an f-string, each part that is constant."""
    source = path.read_text()
    documents: set[ast.AST] = set()
    strings: list[str] = []
    if not HINT.search(source):
        return strings
    for node in ast.walk(ast.parse(source)):  # parents first
        if isinstance(node, ast.Expr):
            documents.add(node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents:
            strings.append(node.value)
    return strings


def found() -> dict[str, int]:
    """Per file of the package, how often its strings hold control flow."""
    counts = {}
    for path in sorted(ROOT.rglob("*.py")):
        count = sum(len(CONTROL.findall(text)) for text in texts(path))
        if count:
            counts[str(path.relative_to(ROOT))] = count
    return counts


def test_one_file_writes_control_flow() -> None:
    counts = found()
    assert counts.pop(WRITER) > 10, "the pattern finds nothing"
    assert counts == {}, f"say it with the methods of {WRITER}"


@pytest.mark.parametrize(
    "text",
    [
        "br label %done",
        "  br i1 %more, label %loop, label %exit",
        "%i = phi i64 [ 0, %entry ]",
        "phi <8 x float> [",
        "switch i32 %kind, label %other [",
        "%n = atomicrmw add ptr %counter, i64 1 monotonic",
        "take:\n  %n = add i64 1, 2",
    ],
)
def test_control_flow_is_recognized(text: str) -> None:
    assert CONTROL.search(text)


@pytest.mark.parametrize(
    "text", ["branch", "phi (the golden ratio)", "switch on", "load i64, ptr %at", "call void %kernel()"]
)
def test_other_texts_are_not(text: str) -> None:
    assert not CONTROL.search(text)


def builds_nests(text: str) -> bool:
    """Whether a module makes a `Nest`."""
    if "Nest" not in text:
        return False
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return any(ast.unparse(call).split(".")[-1] == "Nest" for call in calls)


def test_one_file_builds_nests() -> None:
    paths = [path for room in ("runtime", "ops", "passes", "engine") for path in (ROOT / room).rglob("*.py")]
    assert [str(p.relative_to(ROOT)) for p in paths if builds_nests(p.read_text())] == [BUILDER]


@pytest.mark.parametrize("text", ["Nest(around, tile)", "x = nest.Nest(**fields)", "replace(Nest(a), tail=WHOLE)"])
def test_nests_are_recognized(text: str) -> None:
    assert builds_nests(text)


@pytest.mark.parametrize("text", ["def f(nest: Nest) -> Nest: ...", "code.nest(extents)", "build_nest(unit, computed)"])
def test_other_code_is_not(text: str) -> None:
    assert not builds_nests(text)
