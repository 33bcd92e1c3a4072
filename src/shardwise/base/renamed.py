"""Functions under a second name, as functions of their own: tables and tests that go by `__name__` tell the two apart."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from shardwise.base.signatures import P, R


def rename_function(fun: Callable[P, R], name: str, module: str | None = None) -> Callable[P, R]:
    """`fun` under another `name`, in `module` if given.

    >>> from shardwise.base.renamed import rename_function
    >>> rename_function(sorted.__class__, "kind")
    Traceback (most recent call last):
    ...
    TypeError: rename_function takes a function, got <class 'type'>.
    """
    if not isinstance(fun, FunctionType):
        raise TypeError(f"rename_function takes a function, got {type(fun)}.")
    new_function: Any = FunctionType(fun.__code__, fun.__globals__, name, fun.__defaults__, fun.__closure__)
    new_function.__kwdefaults__ = fun.__kwdefaults__
    new_function.__dict__.update(fun.__dict__)
    new_function.__annotations__ = fun.__annotations__
    new_function.__doc__, new_function.__qualname__, new_function.__module__ = (
        fun.__doc__,
        name,
        module or fun.__module__,
    )
    return cast("Callable[P, R]", new_function)
