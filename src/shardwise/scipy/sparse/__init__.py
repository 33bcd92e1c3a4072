"""`shardwise.scipy.sparse`: iterative solvers, in `linalg`."""

import importlib as _importlib
import typing as _typing

from shardwise.base.listing import package_listing as _package_listing

if _typing.TYPE_CHECKING:  # what `__getattr__` imports
    from shardwise.scipy.sparse import linalg as linalg

if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name == "linalg":
            return _importlib.import_module(f"{__name__}.linalg")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__dir__ = _package_listing(__name__, "linalg")
