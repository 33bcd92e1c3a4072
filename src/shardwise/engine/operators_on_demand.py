"""Operators and methods of arrays, loaded when the first one is used, so that `import shardwise` stays quick.

`shardwise.numpy.operators` defines them. Until it is imported, a stand-in for each imports it and looks the attribute up again, on the
class (``jax.Array.sum``) as well as on an array.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array

_FACE = "shardwise.numpy"
_BINARY = "add sub mul truediv floordiv mod pow matmul divmod and or xor lshift rshift".split()
# Old names, from before the arrays became one type, and their new names.
_OLDER = {"local_shards": "addressable_shards", "local_data": "addressable_data"}
_REPLACEMENTS = {"device_buffer": "x.addressable_data(0)", "device_buffers": "[s.data for s in x.addressable_shards]"}
_OPERATORS = [f"__{side}{name}__" for name in _BINARY for side in ("", "r")] + [
    f"__{name}__" for name in "eq ne lt le gt ge neg pos abs invert round getitem iter len contains".split()
]
_METHODS = """T all any argmax argmin argpartition argsort astype at byteswap choose clip compress conj conjugate copy cumprod cumsum
    diagonal dot flat flatten imag mT max mean min nonzero prod ptp ravel real repeat reshape round searchsorted sort squeeze std sum
    swapaxes take to_device trace transpose var view""".split()


# Attributes that concrete arrays have and traced arrays raise for; the class `Array` has them, as JAX's class does.
_CONCRETE = """addressable_data addressable_shards committed copy_to_host_async device global_shards is_fully_addressable
    is_fully_replicated item sharding""".split()


class _StandIn:
    """A placeholder for an attribute of `Array` that `shardwise.numpy` will define."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Array | None, owner: type[Array]) -> Any:
        importlib.import_module(_FACE)
        if vars(Array)[self.name] is self:  # pragma: no cover  the test of the names would have told
            raise AttributeError(f"{_FACE} does not define Array.{self.name}")
        return getattr(owner if instance is None else instance, self.name)


def _concrete(name: str) -> property:
    def absent(self: Array) -> Any:
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")  # __getattr__ says more

    return property(absent, doc=f"Only concrete arrays have `{name}`.")


def _deprecated_property(old: str, new: str) -> property:
    def current(self: Array) -> Any:
        warnings.warn(f"Array.{old} is deprecated; it is called {new}.", DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(current, doc=f"Older name of `{new}`; warns.")


def _gone_property(old: str, new: str) -> property:
    def absent(self: Array) -> Any:
        raise AttributeError(f"Array.{old} is gone from JAX; use {new}.")

    return property(absent, doc=f"Gone: `{new}` is in its place.")


def install() -> None:
    """Put the stand-ins in place (done once, by `import shardwise`)."""
    for name in (*_OPERATORS, *_METHODS):
        setattr(Array, name, _StandIn(name))
    for name in _CONCRETE:
        setattr(Array, name, _concrete(name))
    # Properties, not a `__getattr__`: NumPy asks every array for attributes that it lacks, and a miss must cost no call.
    for old, new in _OLDER.items():
        setattr(ArrayImpl, old, _deprecated_property(old, new))
    for old, new in _REPLACEMENTS.items():
        setattr(ArrayImpl, old, _gone_property(old, new))
