"""Functions under a second name: each tells the name it was found under."""

import inspect

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.base.renamed import rename_function


def test_a_second_name_is_a_function_of_its_own():
    def first(x, /, y=1, *, z=2):
        """What it does."""
        return x, y, z

    second = rename_function(first, "second")
    assert second.__name__ == second.__qualname__ == "second" and first.__name__ == "first"
    assert second(0) == first(0) and second(0, z=5) == (0, 1, 5)
    assert second.__doc__ == first.__doc__ and inspect.signature(second) == inspect.signature(first)
    assert rename_function(first, "third", "elsewhere").__module__ == "elsewhere"


def test_classes_are_refused():
    with pytest.raises(TypeError, match="takes a function"):
        rename_function(int, "whole")


@pytest.mark.parametrize("module", [jnp, sw.tree], ids=["numpy", "tree"])
def test_public_functions_have_the_name_they_are_found_under(module):
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    functions = {name: f for name, f in found.items() if inspect.isfunction(f)}
    assert len(functions) > 10
    assert {name: f.__name__ for name, f in functions.items() if f.__name__ != name} == {}
