"""The names that `dir` shows of a public module: those that it offers, without those that it needs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType


def listing(name: str) -> Callable[[], list[str]]:
    """A `__dir__` for the module `name`."""
    return functools.partial(public_names, name)


def package_listing(name: str, *later: str) -> Callable[[], list[str]]:
    """A `__dir__` for the package `name`, whose own modules are not shown. `later`: names, of modules too, imported when first used."""

    def names() -> list[str]:
        own = {
            n
            for n, value in vars(sys.modules[name]).items()
            if not isinstance(value, ModuleType) and not n.startswith("_")
        }
        return sorted({*own, *later})

    return names


def public_names(name: str) -> list[str]:
    """The names that the module `name` offers, sorted: those of its `__all__`, else those that its text defines, or imports as
    themselves (`from a import b as b`), without those that begin with an underscore.
    """
    module = sys.modules[name]
    own_list: list[str] | None = getattr(module, "__all__", None)
    return sorted(n for n in (_written_names(name) if own_list is None else own_list) if not n.startswith("_"))


@functools.cache
def _written_names(name: str) -> tuple[str, ...]:
    import ast  # start-up time: `dir` is for people
    import importlib.util  # likewise

    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return tuple(vars(sys.modules[name]))
    names: list[str] = []
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=n) | ast.ClassDef(name=n) | ast.AnnAssign(target=ast.Name(id=n)):
                names.append(n)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names += [alias.name for alias in aliases if alias.asname == alias.name]
            case ast.Assign(targets=targets):
                for target in targets:
                    parts = target.elts if isinstance(target, ast.Tuple) else [target]
                    names += [part.id for part in parts if isinstance(part, ast.Name)]
            case _:
                pass
    return tuple(names)
