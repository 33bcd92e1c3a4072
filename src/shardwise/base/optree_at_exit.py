"""optree forgets every kind of container when the interpreter exits, before exit handlers that were registered earlier run.

Trees must keep their structure for those handlers, so what optree registers for the exit is taken back when it is imported
here. `shardwise.base` imports this before any module that uses optree. Where a program has imported optree before, its
handlers stay.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any


def _import_without_handlers() -> None:
    given: list[Callable[..., Any]] = []
    register = atexit.register

    def note(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        given.append(function)
        return register(function, *args, **kwargs)

    atexit.register = note
    try:
        import optree as optree
    finally:
        atexit.register = register
    _take_back(given)


def _take_back(handlers: list[Any]) -> None:
    """Unregister those that are optree's: functions of an extension module, without a name."""
    for handler in handlers:
        if isinstance(handler, BuiltinFunctionType) and not handler.__name__ and handler.__doc__ == "() -> None\n":
            atexit.unregister(handler)


if "optree" not in sys.modules:  # what was registered before cannot be told from other libraries' handlers
    _import_without_handlers()
