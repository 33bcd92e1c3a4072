"""`shardwise.scipy.cluster`: vector quantization, in `vq`."""

import importlib as _importlib
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    if name == "vq":
        return _importlib.import_module(f"{__name__}.vq")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
