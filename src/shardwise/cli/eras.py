"""The dialect that a program asks for by the names that it uses.

In: a program, unread. Out: the era whose names it and the installed libraries that it imports use, with the name that shows it. Only
sources are read, so that the answer is the same in every run.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from shardwise.base.config import BEFORE, TODAY
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.cli.era_names import ONLY_BEFORE, ONLY_TODAY

_ERA: dict[str, str] = {**dict.fromkeys(ONLY_BEFORE, BEFORE), **dict.fromkeys(ONLY_TODAY, TODAY)}
_LAST_NAMES = sorted({re.split(r"[.(]", name.replace("=)", ""))[-1] for name in _ERA})
_MENTION_PATTERN = re.compile(r"\b(?:" + "|".join(_LAST_NAMES) + r")\b")
_GUARDS = re.compile(r"hasattr|getattr|version|TYPE_CHECKING|find_spec")
# Distributions with other names than their modules; to ask for those of all modules reads all that is installed.
_DISTRIBUTIONS = {"haiku": "dm-haiku", "orbax": "orbax-checkpoint", "ott": "ott-jax"}
_BEFORE = tuple(map(int, BEFORE.split(".")))
_ANY_ERA = frozenset({"shardwise", "jax", "jaxlib"})


@dataclass(frozen=True)
class Sign:
    """A name that one era has alone, and where it is used."""

    era: str
    name: str
    place: str

    def __str__(self) -> str:
        return f"{self.place} uses {self.name}"


@dataclass
class _SourceReader(ast.NodeVisitor):
    """The signs and imports of one source. A name that the source tries, or asks for before it uses it, is no sign."""

    file: str
    bound: dict[str, str] = field(default_factory=dict[str, str])
    imports: dict[str, None] = field(default_factory=dict[str, None])
    signs: list[Sign] = field(default_factory=list[Sign])
    guarded: int = 0
    at_import: bool = False  # whether only code that runs at import is read

    def add(self, name: str, node: ast.AST) -> None:
        """Take down a use of a dotted name."""
        era = _ERA.get(name)
        if era is not None and not self.guarded:
            self.signs.append(Sign(era, name, f"{self.file}:{getattr(node, 'lineno', 0)}"))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imports[alias.name] = None
            root = alias.name.partition(".")[0]
            self.bound[alias.asname or root] = alias.name if alias.asname else root
            self.add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            for alias in node.names:
                self.imports["." * node.level + (node.module or alias.name)] = None
            return
        module = node.module or ""
        self.imports[module] = None
        self.add(module, node)
        for alias in node.names:
            self.imports[f"{module}.{alias.name}"] = None
            self.bound[alias.asname or alias.name] = f"{module}.{alias.name}"
            self.add(f"{module}.{alias.name}", node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self.path(node)
        if path is None:
            self.generic_visit(node)
        else:
            self.add(path, node)

    def visit_Call(self, node: ast.Call) -> None:
        path = self.path(node.func)
        if path is not None:
            if path.rpartition(".")[2] == "partial" and node.args:
                path = self.path(node.args[0]) or path
            for keyword in node.keywords:
                self.add(f"{path}({keyword.arg}=)", node)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if not self.at_import:
            self.generic_visit(node)
            return
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        if not self.at_import:
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not self.at_import:
            self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)

    def visit_Try(self, node: ast.Try) -> None:
        self.guarded += bool(node.handlers)
        self.generic_visit(node)
        self.guarded -= bool(node.handlers)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        asks = bool(_GUARDS.search(ast.unparse(node.test)))
        self.guarded += asks
        self.generic_visit(node)
        self.guarded -= asks

    visit_IfExp = visit_If

    def path(self, node: ast.expr) -> str | None:
        """The dotted name that an expression means; None if it is no name of an import."""
        if isinstance(node, ast.Name):
            return self.bound.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.path(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None


def chosen_era(sources: Sequence[tuple[str, str]], folders: Sequence[Path]) -> Sign | None:
    """The sign that decides for the program of these texts, each with its name; None where no name decides.

    The program's own sources come first, with the modules beside it in `folders`; where they say nothing, what the libraries say that
    they import. Of several signs the era with more names is taken.
    """
    own: list[Sign] = []
    libraries: dict[str, None] = {}
    waiting_sources, seen_paths = list(sources), set[Path]()
    while waiting_sources:
        name, text = waiting_sources.pop(0)
        reader = _read(name, text)
        own += reader.signs
        for module in reader.imports:
            file = beside(module, folders, Path(name))
            if file is None:
                libraries[module.partition(".")[0]] = None
            elif file not in seen_paths:
                seen_paths.add(file)
                waiting_sources += _texts([file])
    return _majority(own) or _majority([sign for name in sorted(libraries) for sign in _of_library(name)])


def _majority(signs: Sequence[Sign]) -> Sign | None:
    names = {sign.name: sign for sign in reversed(signs)}  # of each name its first use
    count = Counter(sign.era for sign in names.values())
    if not count or count[BEFORE] == count[TODAY]:
        return None
    era = TODAY if count[TODAY] > count[BEFORE] else BEFORE
    return next(sign for sign in signs if sign.era == era)


def _read(name: str, text: str, at_import: bool = False) -> _SourceReader:
    reader = _SourceReader(name, at_import=at_import)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # the run will tell
        return reader
    reader.visit(tree)
    return reader


def _texts(files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def beside(module: str, folders: Sequence[Path], source: Path | None = None) -> Path | None:
    """The source of a module of the program's own."""
    level = len(module) - len(module.lstrip("."))
    if level:
        above = source.resolve().parents if source is not None else ()
        folders = [above[level - 1]] if len(above) >= level else []
    parts = module.lstrip(".").split(".")
    for folder in folders:
        for stop in range(len(parts), 0, -1):
            place = folder.joinpath(*parts[:stop])
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file() and "site-packages" not in file.parts:
                    return file
    return None


def _of_library(name: str) -> list[Sign]:
    """The signs of an installed library that needs JAX: the releases that it asks for, and the names that its sources use at import.

    Names inside its functions are none: the program may never call those.
    """
    requirements = [] if name in _ANY_ERA or name in sys.stdlib_module_names else _needed_of_jax(name)
    if not requirements:
        return []
    least = [
        tuple(map(int, match.groups())) for line in requirements if (match := re.search(r">=?\s*(\d+)\.(\d+)", line))
    ]
    if least and max(least) > _BEFORE:
        return [Sign(TODAY, f"JAX {'.'.join(map(str, max(least)))} or newer", name)]
    try:
        spec = importlib.machinery.PathFinder.find_spec(name)
    except (ImportError, ValueError):
        return []
    signs: list[Sign] = []
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        files = [f for f in sorted(Path(folder).rglob("*.py")) if "test" not in f.name and "tests" not in f.parts]
        for file, text in _texts(files):
            if "jax" in text and _MENTION_PATTERN.search(text):
                signs += _read(f"{name}/{Path(file).relative_to(folder).as_posix()}", text, at_import=True).signs
    return signs


def _needed_of_jax(name: str) -> list[str]:
    """The requirements on JAX in a library's installation."""
    try:
        requirements = importlib.metadata.requires(_DISTRIBUTIONS.get(name, name)) or ()
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return []
    return [line for line in requirements if re.match(r"jax(lib)?\b(?!-)", line) and "extra ==" not in line]
