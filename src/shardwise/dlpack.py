"""`shardwise.dlpack`: arrays from and to other libraries on the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.ir import Array

__all__ = ["from_dlpack", "is_supported_dtype", "to_dlpack"]


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """An array of anything with ``__dlpack__``, on `device` or the default one. ``copy=True`` asks for memory of its own."""
    from shardwise.numpy import from_dlpack

    return from_dlpack(external_array, device=device, copy=copy)


def to_dlpack(x: Any, stream: Any = None, src_device: Any = None, dl_device: Any = None, max_version: Any = None,
              copy: bool | None = None) -> Any:  # fmt: skip
    """A capsule for a library that takes no objects with ``__dlpack__``. TypeError for an array on several devices."""
    return x.__dlpack__()


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype can be exchanged: bools and numbers, bfloat16 among them."""
    wanted = np.dtype(dtype)
    return (wanted.kind in "biufc" and wanted.isbuiltin == 1) or wanted.name == "bfloat16"
