"""Keep optree's node types until the end of the process.

optree clears its registry at interpreter exit, before the exit handlers that were registered earlier.

Those handlers still need trees, so the exit handler that optree registers on import is removed again here. `shardwise.base`
imports this module before any that uses optree. If the program has imported optree earlier, its handlers stay.
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
    """Unregister optree's exit handlers: functions of an extension module, without a name."""
    for handler in handlers:
        if isinstance(handler, BuiltinFunctionType) and not handler.__name__ and handler.__doc__ == "() -> None\n":
            atexit.unregister(handler)


if "optree" not in sys.modules:  # earlier handlers cannot be told from those of other libraries
    _import_without_handlers()
