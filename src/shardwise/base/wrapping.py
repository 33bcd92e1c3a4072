"""Copying a function's name, docstring and attributes to the object that wraps it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def name_of(fun: Callable[..., Any]) -> str:
    """The name of a function; that of the function inside for a `functools.partial`, that of the class for other objects."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    name = getattr(fun, "__name__", None)
    return name if isinstance(name, str) else type(fun).__name__


def code_of(fun: Any) -> CodeType | None:
    """The code of a function; None of other objects, whatever they have under that name."""
    code = getattr(fun, "__code__", None)
    return code if isinstance(code, CodeType) else None


def copy_identity(wrapper: Any, fun: Callable[..., Any]) -> None:
    """Give `wrapper` the name, docstring and attributes of `fun`, and `fun` itself as ``__wrapped__``.

    Attributes that the wrapper's class defines stay the class's: a callable object may have state or methods under the same
    names, and they would hide the wrapper's own.
    """
    for name, value in getattr(fun, "__dict__", {}).items():
        if not hasattr(type(wrapper), name):
            wrapper.__dict__[name] = value
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(fun, name):
            # An object may have any value under these names; functions accept strings and dicts only.
            with suppress(TypeError):
                setattr(wrapper, name, getattr(fun, name))
    wrapper.__wrapped__ = fun
    if isinstance(fun, functools.partial):
        wrapper.__name__ = wrapper.__qualname__ = name_of(fun)


def importable_name(x: Any) -> str | None:
    """The name under which the module of `x` has it, as pickle looks functions up; None if it has something else there."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return name if value is x else None


def wraps(fun: Callable[..., Any]) -> Callable[[F], F]:
    """Decorator of a function that wraps `fun`, which may be any callable object: `copy_identity`."""

    def give(wrapper: F) -> F:
        copy_identity(wrapper, fun)
        return wrapper

    return give
