"""`shardwise.scipy.spatial`: rotations of three dimensions, in `transform`."""

import importlib as _importlib
import typing as _typing

from shardwise.base.listing import package_listing as _package_listing

if _typing.TYPE_CHECKING:  # what `__getattr__` imports
    from shardwise.scipy.spatial import transform as transform

if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name == "transform":
            return _importlib.import_module(f"{__name__}.transform")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__dir__ = _package_listing(__name__, "transform")
