"""`shardwise.interpreters`: rules of new primitives, and paths under which programs of JAX's early years find old types.


In: such a program's imports. Out: `pxla` with the parts of a PmapSharding, and in both modules errors that name what replaces the
old array types.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:  # what `__getattr__` imports
    from shardwise.interpreters import ad as ad
    from shardwise.interpreters import batching as batching
    from shardwise.interpreters import mlir as mlir
    from shardwise.interpreters import partial_eval as partial_eval
    from shardwise.interpreters import pxla as pxla
    from shardwise.interpreters import xla as xla

_MODULES = ("ad", "batching", "mlir", "partial_eval", "pxla", "xla")


if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name in _MODULES:
            return _importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_MODULES)}.")


def __dir__() -> list[str]:
    return list(_MODULES)
