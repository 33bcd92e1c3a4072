"""The table of calls: which function of which namespace is called with what, of both libraries.

A line is ``names: (arguments); (arguments); ...``. Letters among the arguments are the arrays of `OPERANDS`; an argument in
which one occurs is an array or a tree of arrays to the transformations, any other one is static.
"""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.calls import lax_calls, numpy_calls, other_calls

OPERANDS: dict[str, np.ndarray] = {
    "v": np.array([-1.25, 0.75, 2.0], np.float32),
    "w": np.array([0.5, 1.75, 3.0], np.float32),
    "p": np.array([0.25, 0.5, 0.875], np.float32),
    "m": np.array([[0.5, -1.5, 2.25], [1.0, 0.25, -0.75]], np.float32),
    "s": np.array([[4.0, 0.5, 0.25], [0.5, 3.0, -1.0], [0.25, -1.0, 5.0]], np.float32),
    "t": (np.arange(12, dtype=np.float32) * 0.375 - 2).reshape(2, 2, 3),
    "q": (np.arange(16, dtype=np.float32) * 0.125 - 1).reshape(1, 2, 2, 4),
    "x": np.sin(np.arange(8, dtype=np.float32)),
    "a": np.array(0.5, np.float32),
    "a32": np.array(1, np.int32),
    "i": np.array([2, 0, 1], np.int32),
    "j": np.array([3, -2, 0], np.int32),
    "n": np.array([-3, 1, 2], np.int32),
    "u": np.array([1, 200, 3], np.uint8),
    "b": np.array([True, False, True]),
    "c": np.array([1 + 2j, -0.5j, 0.25], np.complex64),
    "h": np.array([0.5, 1.5, 2.0], ml_dtypes.bfloat16),
    "gap": np.array([np.nan, -np.inf, 1.5, np.inf], np.float32),
}
KEYS = ("k", "K")


@dataclass(frozen=True)
class Argument:
    """One argument of a call: its source, its keyword, and the letters in it."""

    source: str
    keyword: str | None
    letters: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """One call of one function; with `then`, what it gives is called with these arguments."""

    module: str
    name: str
    source: str
    arguments: tuple[Argument, ...]
    then: str = ""

    def __repr__(self) -> str:
        return f"{self.module}.{self.name}{self.source}"


def calls(module: str, lines: str) -> Iterator[Call]:
    """The calls that a text of lines stands for."""
    for line in lines.strip().splitlines():
        names, _, texts = line.partition(":")
        for source, arguments, then in _parsed(texts):
            for name in names.split():
                yield Call(module, name, source, arguments, then)


def _parsed(texts: str) -> Iterator[tuple[str, tuple[Argument, ...], str]]:
    for text in texts.split("; "):
        node = ast.parse("f" + text.strip(), mode="eval").body
        assert isinstance(node, ast.Call), text
        then = ""
        if isinstance(node.func, ast.Call):  # what a first call gives is called
            then, node = ", ".join(ast.unparse(a) for a in node.args), node.func
        given = [(a, None) for a in node.args] + [(k.value, k.arg) for k in node.keywords]
        yield text.strip(), tuple(Argument(ast.unparse(a), k, _letters(a)) for a, k in given), then


def _letters(node: ast.AST) -> tuple[str, ...]:
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & {*OPERANDS, *KEYS}
    inner = {a.arg for n in ast.walk(node) if isinstance(n, ast.Lambda) for a in n.args.args}
    return tuple(sorted(found - inner))


def skipped(reasons: dict[str, str]) -> set[str]:
    """The names in a table of reasons."""
    return {name for names in reasons.values() for name in names.split()}


def public(module: types.ModuleType) -> list[str]:
    """The public callables of a namespace of JAX, modules and aliases of types for annotations left out."""
    found = []
    for name in dir(module):
        value = getattr(module, name)
        if not name.startswith("_") and callable(value) and not isinstance(value, types.ModuleType):
            found.append(name)
    return found


def _distributions() -> dict[str, tuple[str, set[str]]]:
    stats: Any = importlib.import_module("jax.scipy.stats")
    found = {}
    for name in dir(stats):
        value = getattr(stats, name)
        if isinstance(value, types.ModuleType) and not name.startswith("_"):
            found[f"scipy.stats.{name}"] = (other_calls.distribution(name, public(value)), set())
    return found


def tables() -> dict[str, tuple[str, set[str]]]:
    """For each namespace its lines and the names that are skipped."""
    found = {
        "numpy": (numpy_calls.NUMPY, skipped(numpy_calls.NUMPY_SKIPPED)),
        "numpy.linalg": (numpy_calls.LINALG, set()),
        "numpy.fft": (numpy_calls.FFT, set()),
        "lax": (lax_calls.LAX, skipped(lax_calls.LAX_SKIPPED)),
        "lax.linalg": (lax_calls.LAX_LINALG, skipped(lax_calls.LAX_LINALG_SKIPPED)),
        "nn": (other_calls.NN, skipped(other_calls.NN_SKIPPED)),
        "nn.initializers": (other_calls.INITIALIZERS, skipped(other_calls.INITIALIZERS_SKIPPED)),
        "random": (other_calls.RANDOM, set()),
        "scipy.special": (other_calls.SPECIAL, set()),
        "scipy.linalg": (other_calls.SCIPY_LINALG, set()),
    }
    for module in sorted({*other_calls.SCIPY, *other_calls.SCIPY_SKIPPED}):
        reasons = other_calls.SCIPY_SKIPPED.get(module, {})
        found[module] = (other_calls.SCIPY.get(module, ""), skipped(reasons))
    return found | _distributions()
