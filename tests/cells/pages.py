"""Reading documents: the code of notebooks, of pages in Markdown and reStructuredText, of docstrings and of programs, cell by cell."""

from __future__ import annotations

import ast
import doctest
import json
import re
from dataclasses import dataclass
from pathlib import Path

_TRANSPARENT = re.compile(r"^(\s*)%{1,2}(?:time|timeit|prun)\s+(?:-\w+\s*\d*\s+)*(.*)$")
_FENCE = re.compile(
    r"^(?P<indent>[ ]*)```\{?(?P<kind>[\w-]+)\}?(?P<rest>[^\n]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.M | re.S
)


@dataclass(frozen=True)
class Page:
    """A document: its cells run in order in one namespace."""

    name: str
    cells: tuple[str, ...]


def page(root: Path, path: Path) -> Page:
    """The cells of one document, none where it has no code that can run."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = _of_notebook(text)
    elif path.suffix == ".md":
        cells = _of_markdown(text)
    elif path.suffix == ".rst":
        cells = _examples(text)
    else:
        cells = [text]
    return Page(str(path.relative_to(root)), tuple(python for cell in cells if (python := _python(cell)).strip()))


def docstrings(root: Path, path: Path) -> list[Page]:
    """The examples in the docstrings of a module, a page for each function or class."""
    pages: list[Page] = []
    where = path.relative_to(root)

    def visit(node: ast.Module | ast.ClassDef | ast.FunctionDef, name: str) -> None:
        cells = _examples(ast.get_docstring(node) or "")
        if cells:
            pages.append(Page(f"{where}::{name or '(module)'}", tuple(cells)))
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                visit(child, f"{name}.{child.name}" if name else child.name)

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return pages


def _of_notebook(text: str) -> list[str]:
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"]) for cell in cells]


def _of_markdown(text: str) -> list[str]:
    """The code cells of a page that is a notebook, else its examples and blocks of Python."""
    blocks = [(match["kind"], match["rest"], _dedent(match)) for match in _FENCE.finditer(text)]
    cells = [_without_options(body) for kind, _, body in blocks if kind in ("code-cell", "testcode")]
    if cells:
        return cells
    found: list[str] = []
    for kind, _, body in blocks:
        if ">>>" in body:
            found += _examples(body)
        elif kind in ("python", "py"):
            found.append(body)
    return found


def _dedent(match: re.Match[str]) -> str:
    cut = len(match["indent"])
    return "\n".join(line[cut:] for line in match["body"].splitlines())


def _without_options(body: str) -> str:
    """A cell without the lines of options at its head (`:tags:`, or between `---`)."""
    lines = body.splitlines()
    if lines and lines[0].strip() == "---":
        end = next((i for i in range(1, len(lines)) if lines[i].strip() == "---"), 0)
        return "\n".join(lines[end + 1 :])
    while lines and re.match(r"^:[\w-]+:", lines[0]):
        lines.pop(0)
    return "\n".join(lines)


def _examples(text: str) -> list[str]:
    """The sources of `>>>` lines."""
    try:
        return [example.source for example in doctest.DocTestParser().get_examples(text)]
    except ValueError:
        return []


def _python(cell: str) -> str:
    """The cell without the lines for a notebook program; what `%time` and `%timeit` run stays."""
    if cell.lstrip().startswith(("%%writefile", "%%bash", "%%html", "%%script", "%%latex", "%%javascript", "%%sh")):
        return ""
    lines: list[str] = []
    for line in cell.splitlines():
        transparent = _TRANSPARENT.match(line)
        if transparent:
            lines.append(transparent[1] + transparent[2])
        elif line.lstrip().startswith(("%", "!")) and not _continues(lines):
            lines.append(line[: len(line) - len(line.lstrip())] + "pass")
        else:
            lines.append(line)
    return "\n".join(lines)


def _continues(lines: list[str]) -> bool:
    """Whether the lines so far end within brackets or a string: what follows is no line of its own."""
    try:
        ast.parse("\n".join(lines))
    except SyntaxError as error:
        return "was never closed" in str(error) or "unterminated" in str(error)
    return False
