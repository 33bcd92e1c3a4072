"""Files and functions are short enough to be read at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import shardwise

ROOT = Path(shardwise.__file__).parent
FILE = 500  # lines
FUNCTION = 60  # lines, without the docstring

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.rglob("*.py"))
}


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function's code, its head and inner functions included."""
    first, end = function.body[0], function.end_lineno
    assert end is not None
    lines = end - function.lineno + 1
    if ast.get_docstring(function) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def may_have_long_functions(text: str) -> bool:
    """Whether there are as many lines from some `def` to the next line that is no deeper: few files have to be parsed."""
    heads: list[tuple[int, int]] = []  # lines and depths of the functions around a line
    for n, line in enumerate((*text.splitlines(), "end")):
        code = line.lstrip()
        if not code or code[0] in ")]}":
            continue
        depth = len(line) - len(code)
        while heads and heads[-1][1] >= depth:
            if n - heads.pop()[0] > FUNCTION:
                return True
        if code.startswith(("def ", "async def ")):
            heads.append((n, depth))
    return False


def functions(name: str, text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}:{node.name}", lines_of(node)


def test_no_file_is_long() -> None:
    long = {name: count for name, text in MODULES.items() if (count := text.count("\n")) > FILE}
    assert not long, "split them by idea: the first line of a module says what it holds"


def test_no_function_is_long() -> None:
    long = {
        function: count
        for name, text in MODULES.items()
        if may_have_long_functions(text)
        for function, count in functions(name, text)
        if count > FUNCTION
    }
    assert not long, "give its parts names of their own"


def test_the_rule_finds_long_functions() -> None:
    body = "".join(f"        x = {n}\n\n" for n in range(FUNCTION // 2))
    text = f"class A:\n    def f(\n        self,\n    ) -> None:\n{body}\n\ny = 1\n"
    assert may_have_long_functions(text) and dict(functions("m", text))["m:f"] > FUNCTION
    assert not may_have_long_functions("def f():\n    pass\n\n\n" + "x = 1\n" * 100)
