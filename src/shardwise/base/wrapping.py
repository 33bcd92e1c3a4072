"""Copying a function's name, docstring and attributes to the object that wraps it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def name_of(fun: Callable[..., Any]) -> str:
    """The name of a function; that of the function inside for a `functools.partial`, that of the class for other objects."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__name__", type(fun).__name__)


def copy_identity(wrapper: Any, fun: Callable[..., Any]) -> None:
    """Give `wrapper` the name, docstring and attributes of `fun`, and `fun` itself as ``__wrapped__``.

    Attributes that the wrapper's class defines stay the class's: a callable object may have state or methods under the same
    names, and they would hide the wrapper's own.
    """
    for name, value in getattr(fun, "__dict__", {}).items():
        if not hasattr(type(wrapper), name):
            wrapper.__dict__[name] = value
    functools.update_wrapper(wrapper, fun, updated=())
    if isinstance(fun, functools.partial):
        wrapper.__name__ = wrapper.__qualname__ = name_of(fun)
