"""`shardwise.scipy.spatial`: rotations of three dimensions, in `transform`."""

import importlib as _importlib
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    if name == "transform":
        return _importlib.import_module(f"{__name__}.transform")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
