"""`shardwise.scipy.sparse`: iterative solvers, in `linalg`."""

import importlib as _importlib
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    if name == "linalg":
        return _importlib.import_module(f"{__name__}.linalg")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
