"""Operators and methods of arrays, loaded when the first one is used, so that `import shardwise` stays quick.

The NumPy face defines them (`shardwise.numpy.operators`). Until it is imported, each operator is a stand-in that imports
it and calls itself again; other attributes come the same way through `__getattr__`.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

from shardwise.array import ArrayImpl
from shardwise.ir import Array, Tracer

_FACE = "shardwise.numpy"
_BINARY = "add sub mul truediv floordiv mod pow matmul divmod and or xor lshift rshift".split()
# Names from before the arrays became one type, and what they are called now.
_OLDER = {"local_shards": "addressable_shards", "local_data": "addressable_data"}
_NAMES = [f"__{side}{name}__" for name in _BINARY for side in ("", "r")] + [
    f"__{name}__" for name in "eq ne lt le gt ge neg pos abs invert round getitem iter len".split()
]


def _stand_in(name: str) -> Any:
    def operator(self: Array, *args: Any) -> Any:
        importlib.import_module(_FACE)
        return getattr(self, name)(*args)

    operator.__name__ = name
    return operator


def _attribute(self: Array, name: str) -> Any:
    if not name.startswith("__") and _FACE not in sys.modules:
        importlib.import_module(_FACE)
        return getattr(self, name)
    if name in _OLDER:
        warnings.warn(f"Array.{name} is deprecated; it is called {_OLDER[name]}.", DeprecationWarning, stacklevel=2)
        return getattr(self, _OLDER[name])
    raise AttributeError(f"'Array' object has no attribute {name!r}")


def install() -> None:
    """Put the stand-ins in place (done once, by `import shardwise`)."""
    for name in _NAMES:
        setattr(Array, name, _stand_in(name))
    ArrayImpl.__getattr__ = _attribute  # type: ignore[attr-defined]
    concrete_only = Tracer.__getattr__

    def traced(self: Tracer, name: str) -> Any:
        if not name.startswith("_") and _FACE not in sys.modules:
            importlib.import_module(_FACE)
            return getattr(self, name)
        return concrete_only(self, name)

    Tracer.__getattr__ = traced  # type: ignore[method-assign]
