"""`shardwise.interpreters`: rules of new primitives, and paths under which programs of JAX's early years find old types.


In: such a program's imports. Out: `pxla` with the parts of a PmapSharding, and in both modules errors that name what replaces the
old array types.
"""

import importlib as _importlib
from typing import Any as _Any

_MODULES = ("ad", "batching", "mlir", "partial_eval", "pxla", "xla")


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_MODULES)}.")


def __dir__() -> list[str]:
    return list(_MODULES)
