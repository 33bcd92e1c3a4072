"""Examples in docstrings print what they show."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardwise

ROOT = Path(shardwise.__file__).parent


def _modules_with_examples() -> Iterator[str]:
    for file in sorted(ROOT.rglob("*.py")):
        if re.search(r"^ *>>> ", file.read_text(encoding="utf-8"), re.MULTILINE):
            parts = file.relative_to(ROOT.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {"jax": shardwise, "shardwise": shardwise, "jnp": shardwise.numpy, "lax": shardwise.lax}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", list(_modules_with_examples()))
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    own = {
        name: value for name, value in vars(module).items() if not hasattr(builtins, name)
    }  # `sum` is Python's, `jnp.sum` ours
    failed, tried = doctest.testmod(module, globs=own | NAMES, optionflags=FLAGS)
    assert tried, "the examples are where doctest does not look: in a module's own functions, classes and methods"
    assert not failed


def _functions(module: str) -> dict[str, Any]:
    """The public functions of a module, also those that are objects of ours."""
    owner = importlib.import_module(module)
    named = {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_")}
    return {
        name: value
        for name, value in named.items()
        if callable(value)
        and not inspect.isclass(value)
        and (getattr(value, "__module__", None) or "").startswith("shardwise")
    }


def _is_made(function: Any) -> bool:
    """Whether a maker gave the function its docstring, so that `test_examples` does not see it."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    return code is None or code.co_name != inner.__name__


@pytest.mark.parametrize("module", ["shardwise.numpy", "shardwise.lax", "shardwise.nn", "shardwise.ops"])
def test_examples_of_functions_made_from_tables(module: str) -> None:
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    made = {name: f for name, f in _functions(module).items() if _is_made(f) and ">>>" in (f.__doc__ or "")}
    for name, function in made.items():
        runner.run(doctest.DocTestParser().get_doctest(function.__doc__, dict(NAMES), name, None, None))
    assert runner.tries >= len(made) > 0
    assert not runner.failures


# The modules in the reference: all of their functions are held to the same.
REFERENCE = sorted(
    module
    for page in (Path(__file__).parents[1] / "docs" / "api").glob("*.md")
    for module in re.findall(r"^\.\. public-names:: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
)

# Modules for libraries that work on JAX's inside, and for kernels: their docstrings need no examples.
INSIDE = tuple(
    f"shardwise.{name}."
    for name in (
        "api_util",
        "core",
        "example_libraries",
        "extend",
        "ffi",
        "interpreters",
        "lib",
        "experimental.array_serialization.stored_arrays",
        "experimental.mosaic",
        "experimental.pallas",
    )
)


def _shown_modules(name: str) -> Iterator[str]:
    """The modules that `dir` shows below a module, and it."""
    yield name
    owner = importlib.import_module(name)
    for shown in dir(owner):
        inner = None if shown.startswith("_") else getattr(owner, shown, None)
        if inspect.ismodule(inner) and inner.__name__ == f"{name}.{shown}":
            yield from _shown_modules(inner.__name__)


def test_every_module_is_once_in_the_reference() -> None:
    assert len(set(REFERENCE)) == len(REFERENCE)
    shown = {name for name in _shown_modules("shardwise") if not f"{name}.".startswith(INSIDE)}
    assert {name for name in shown if _functions(name)} - set(REFERENCE) == set()


def _parameters(function: Any) -> list[str]:
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    return [name for name in names if not name.startswith("_")]


def _errors(function: Any) -> set[str]:
    """The errors that the function raises itself, by name; those of functions within it and of what it calls are not seen."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return set()
    found: set[str] = set()
    nodes: list[ast.AST] = list(tree.body) if isinstance(tree, ast.FunctionDef) else []
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            found |= {name} if name.endswith("Error") else set()
        nodes += ast.iter_child_nodes(node)
    return found


def _unsaid(function: Any) -> list[str]:
    """What the docstring of a function lacks."""
    text = inspect.getdoc(function) or ""
    lacking = [] if ">>>" in text else ["an example"]
    lacking += [f"the argument {name}" for name in _parameters(function) if not re.search(rf"\b{name}\b", text)]
    return lacking + sorted(name for name in _errors(function) if name not in text)


@pytest.mark.parametrize("module", [m for m in REFERENCE if not f"{m}.".startswith(INSIDE)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_docstrings_of_functions_name_arguments_and_errors_and_show_an_example(module: str) -> None:
    assert {name: lacking for name, function in _functions(module).items() if (lacking := _unsaid(function))} == {}


def test_what_a_docstring_lacks_is_seen() -> None:
    def half(x: float, y: float) -> float:
        """Half of `x`."""
        if y:
            raise ValueError(y)
        return x / 2

    assert _unsaid(half) == ["an example", "the argument y", "ValueError"]
