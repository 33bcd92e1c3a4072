"""`shardwise.scipy.cluster`: vector quantization, in `vq`."""

import importlib as _importlib
import typing as _typing

from shardwise.base.listing import package_listing as _package_listing

if _typing.TYPE_CHECKING:  # what `__getattr__` imports
    from shardwise.scipy.cluster import vq as vq

if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name == "vq":
            return _importlib.import_module(f"{__name__}.vq")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__dir__ = _package_listing(__name__, "vq")
