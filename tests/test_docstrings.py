"""Examples in docstrings print what they show."""

from __future__ import annotations

import builtins
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardwise

ROOT = Path(shardwise.__file__).parent


def _modules_with_examples() -> Iterator[str]:
    for file in sorted(ROOT.rglob("*.py")):
        if ">>>" in file.read_text(encoding="utf-8"):
            parts = file.relative_to(ROOT.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", list(_modules_with_examples()))
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    own = {
        name: value for name, value in vars(module).items() if not hasattr(builtins, name)
    }  # `sum` is Python's, `jnp.sum` ours
    names = {"jax": shardwise, "shardwise": shardwise, "jnp": shardwise.numpy, "lax": shardwise.lax}
    failed, tried = doctest.testmod(
        module, globs=own | names, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert tried, "the examples are where doctest does not look: in a module's own functions, classes and methods"
    assert not failed
