"""The array API's description of the namespace: version, dtypes, devices and capabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import default_dtype
from shardwise.sharding import devices as _devices

__all__ = ["__array_api_version__", "__array_namespace_info__"]

__array_api_version__ = (
    "2024.12"  # the version that our functions implement; it includes 2023.12, which JAX 0.5.3 reports
)

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = (*_KINDS["signed integer"], *_KINDS["unsigned integer"])
_KINDS["numeric"] = (*_KINDS["integral"], *_KINDS["real floating"], *_KINDS["complex floating"])
_WIDE = frozenset({"int64", "uint64", "float64", "complex128"})  # there only while 64-bit types are on


class __array_namespace_info__:
    """Answers the standard's questions; made without arguments."""

    def capabilities(self) -> dict[str, Any]:
        """What functions may do while they are traced."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None: arrays made without a device may lie on any."""
        return None

    def devices(self) -> list[Any]:
        """None, then every device."""
        return [None, *_devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of arrays made without one, by kind."""
        letters = {"real floating": "f", "complex floating": "c", "integral": "i", "indexing": "i"}
        return {kind: default_dtype(letter) for kind, letter in letters.items()}

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes that there are now, by name; of one kind or of several if `kind` says so."""
        kinds = ("bool", "numeric") if kind is None else (kind,) if isinstance(kind, str) else kind
        names = [name for k in kinds for name in _KINDS[k] if config.jax_enable_x64 or name not in _WIDE]
        return {name: np.dtype(name) for name in names}
