"""`shardwise.scipy`: SciPy's functions on arrays, named as in jax.scipy. Submodules load when they are first used."""

import importlib as _importlib
from typing import Any as _Any

_SUBMODULES = (
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "spatial", "special", "stats",
)  # fmt: skip


def __getattr__(name: str) -> _Any:
    if name in _SUBMODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
