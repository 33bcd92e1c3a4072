"""Running the code cells of an .ipynb file, in order, as a notebook shows them: the last expression is displayed.

A cell is plain Python. Lines that speak to the notebook program (`!pip install ...`, `%matplotlib inline`) are left
out with a note on stderr; `%time` and `%%time` run the code after them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import pprint
import re
import sys
import tokenize
from pathlib import Path
from typing import Any

_SKIPPED_MAGICS = ("autoreload", "cd", "conda", "config", "load_ext", "matplotlib", "pip", "reload_ext", "env", "xmode")
_TRANSPARENT = ("time", "timeit")
_MAGIC_OPTIONS = re.compile(r"(-\w+\s+(\d+\s+)?)*")


class NotebookError(Exception):
    """The file is no notebook that can be run here; the message is for the user."""


def run(path: Path, namespace: dict[str, Any]) -> None:
    """Run the code cells of the notebook at `path` in `namespace`, printing what each displays.

    Raises:
        NotebookError: the file is no Python notebook, or a cell needs IPython.
    """
    namespace["display"] = display
    for number, source in enumerate(_code_cells(path), start=1):
        cell = _python_source(source, f"{path}, cell {number}")
        _run_cell(cell, f"{path.absolute()}, cell {number}", namespace)  # as Python has it in tracebacks
        sys.stdout.flush()


def texts(path: Path) -> list[tuple[str, str]]:
    """The cells as Python, each with its name; none where the file is no notebook, or a cell is for IPython."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # the run will name the cells left out
            names = [f"{path}, cell {number}" for number in range(1, len(_code_cells(path)) + 1)]
            return [(name, _python_source(cell, name)) for name, cell in zip(names, _code_cells(path), strict=True)]
    except (NotebookError, OSError):
        return []


def display(*values: Any) -> None:
    """Show values as a notebook does: containers over several lines where they are long, all else by `repr`."""
    for value in values:
        print(value.__repr__() if isinstance(value, str) else pprint.pformat(value, width=80, sort_dicts=False))


def _code_cells(path: Path) -> list[str]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        language = document.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
        sources = [cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"]) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotebookError(f"{path} is not a notebook in format 4 or later ({error!r})") from None
    if language.lower() != "python":
        raise NotebookError(f"{path} is written in {language}; only Python notebooks can be run")
    return sources


def _python_source(source: str, name: str) -> str:
    """The cell without its lines for the notebook program; line numbers stay."""
    lines = source.splitlines()
    for i, line in enumerate(lines):
        text = line.strip()
        if not text.startswith(("%", "!")) or _inside_expression(lines[:i]):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        word, _, rest = text.lstrip("%").partition(" ")
        if text.startswith("!") or word in _SKIPPED_MAGICS:
            print(f"{name}: left out: {text}", file=sys.stderr)
            lines[i] = indent + "pass"
        elif word in _TRANSPARENT:
            statement = "" if text.startswith("%%") else _MAGIC_OPTIONS.sub("", rest)
            lines[i] = indent + (statement or "pass")
        else:
            raise NotebookError(f"{name}, line {i + 1}: {text.split()[0]} needs IPython; take the line out")
    return "\n".join(lines) + "\n"


def _inside_expression(lines: list[str]) -> bool:
    """Whether the next line continues a bracket or string, so that a leading % is an operator or text."""
    try:
        list(tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline))
    except (tokenize.TokenError, IndentationError) as error:
        return "EOF in multi-line" in str(error)
    return bool(lines) and lines[-1].rstrip().endswith("\\")


def _run_cell(source: str, name: str, namespace: dict[str, Any]) -> None:
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    body = ast.parse(source, name)
    last = body.body[-1] if body.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(body, name, "exec", dont_inherit=True), namespace)
        return
    body.body.pop()
    exec(compile(body, name, "exec", dont_inherit=True), namespace)
    value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), namespace)
    if value is not None:
        namespace["_"] = value
        if not _ends_with_semicolon(source):
            display(value)


def _ends_with_semicolon(source: str) -> bool:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    words = [token.string for token in tokens if token.type not in layout]
    return bool(words) and words[-1] == ";"
