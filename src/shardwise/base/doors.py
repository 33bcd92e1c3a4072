"""Doors of packages: names that a package offers, imported from its modules when they are first asked for.

Others import the package and not its modules, and start-up imports only the modules it needs. `open_door` makes the door of an internal
room, `open_package` that of a public package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from shardwise.base.gone import no_attribute
from shardwise.base.listing import package_listing


def open_door(package: str, **modules: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Args:
        package: its name.
        modules: by the module's name in the package the names that it gives, separated by blanks.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in places:
            raise no_attribute(package, name)
        value = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find


def open_package(
    package: str, submodules: str = "", **modules: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a public package. Checkers should not see them: names other than these are mistakes.

    Args:
        package: its name.
        submodules: those that are imported when they are first asked for, separated by blanks.
        modules: names that submodules give, as for `open_door`.
    """
    parts, give = submodules.split(), open_door(package, **modules)

    def find(name: str) -> Any:
        return import_module(f"{package}.{name}") if name in parts else give(name)

    return find, package_listing(package, *parts, *" ".join(modules.values()).split())
