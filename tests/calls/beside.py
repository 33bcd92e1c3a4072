"""Both libraries in one process: a call's arguments, its outcome, and what of two outcomes differs."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.calls.table import KEYS, OPERANDS, Argument, Call
from tests.differential.oracle import NAMED_ERRORS, check_values


class Library:
    """JAX or shardwise, with the names that arguments are written in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jax = importlib.import_module(name)
        for module in ("scipy.linalg", "scipy.special", "scipy.stats", "scipy.signal", "experimental"):
            importlib.import_module(f"{name}.{module}")
        jax = self.jax
        self.names = {"jax": jax, "jnp": jax.numpy, "lax": jax.lax, "np": np}
        arrays = {letter: jax.numpy.asarray(x) for letter, x in OPERANDS.items()}
        self.keys = {"k": jax.random.key(7), "K": jax.random.PRNGKey(7)}
        self.arrays = self.names | arrays | self.keys
        self.hosts = self.names | OPERANDS | {"k": self.keys["k"], "K": np.asarray(self.keys["K"])}
        self.forms = {
            "arrays": self.arrays,
            "scalars": self.names | self.keys | SCALARS,
            "lists": self.names | self.keys | LISTS,
        }

    @functools.cache  # noqa: B019  there are two libraries
    def function(self, module: str, name: str) -> Any:
        """The object itself."""
        return getattr(importlib.import_module(f"{self.name}.{module}"), name)

    def value(self, argument: Argument, names: dict[str, Any]) -> Any:
        """What an argument is under these names."""
        return eval(argument.source, dict(names))

    def bound(self, call: Call, names: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments by position and by keyword."""
        args = [self.value(a, names) for a in call.arguments if a.keyword is None]
        return args, {a.keyword: self.value(a, names) for a in call.arguments if a.keyword is not None}

    def run(self, call: Call, names: dict[str, Any], wrap: Callable[[Any], Any] = lambda f: f) -> Any:
        """The function of a call, wrapped, called with what these names give."""
        args, kwargs = self.bound(call, names)
        result = wrap(self.function(call.module, call.name))(*args, **kwargs)
        return result(*eval(f"({call.then},)", names)) if call.then else result


@dataclass
class Failure:
    """An error: its classes and its text."""

    classes: list[str]
    builtin: str
    text: str


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the `Failure` it ends in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            kinds = type(error).__mro__
            builtin = next(k.__name__ for k in kinds if k.__module__ == "builtins")
            return Failure([k.__name__ for k in kinds], builtin, f"{type(error).__name__}: {str(error)[:300]}")


def difference(ours: Any, theirs: Any, sw: Library, jax: Library, *, values: bool = True, ulps: float = 8) -> str:
    """What differs between two outcomes, or an empty text."""
    if isinstance(theirs, Failure):
        if not isinstance(ours, Failure):
            return f"only JAX raises {theirs.text}"
        if theirs.builtin not in ours.classes or not NAMED_ERRORS & set(theirs.classes) <= set(ours.classes):
            return f"raises {ours.text}\n    JAX {theirs.text}"
        return ""
    if isinstance(ours, Failure):
        return f"raises {ours.text}"
    mine, my_tree = sw.jax.tree.flatten(ours)
    real, tree = jax.jax.tree.flatten(theirs)
    if _structure(my_tree) != _structure(tree):
        return f"is a {my_tree}, JAX's {tree}"
    for a, b in zip(mine, real, strict=True):
        found = _leaf_difference(a, b, sw, jax, values, ulps)
        if found:
            return found
    return ""


def _structure(tree: Any) -> str:
    return str(tree).replace("shardwise", "jax")


def _leaf_difference(ours: Any, theirs: Any, sw: Library, jax: Library, values: bool, ulps: float) -> str:
    if not hasattr(theirs, "dtype") or not hasattr(theirs, "shape"):
        a, b = (repr(x).replace("shardwise", "jax").split(" at 0x")[0] for x in (ours, theirs))
        return "" if a == b else f"is {a}, JAX's {b}"
    if not hasattr(ours, "dtype"):
        return f"is {ours!r}, JAX's {theirs!r}"
    facts = [(str(x.dtype), tuple(x.shape), bool(getattr(x, "weak_type", False))) for x in (ours, theirs)]
    if facts[0] != facts[1]:
        return f"has (dtype, shape, weak) {facts[0]}, JAX {facts[1]}"
    if not values:
        return ""
    if str(theirs.dtype).startswith("key<"):
        ours, theirs = sw.jax.random.key_data(ours), jax.jax.random.key_data(theirs)
    try:
        check_values(np.asarray(ours), np.asarray(theirs), "", ulps)
    except AssertionError as error:
        return str(error)
    return ""


def python_scalars(tree: Any) -> Any:
    """Arrays of numbers as Python's numbers: the first element."""
    return tree.reshape(-1)[0].item() if isinstance(tree, np.ndarray) else tree


SCALARS = {letter: python_scalars(x) if letter != "h" else float(x[0]) for letter, x in OPERANDS.items()}
LISTS = {letter: x.tolist() for letter, x in OPERANDS.items()}
assert not set(KEYS) & set(OPERANDS)
