"""`shardwise.dlpack`: arrays from and to other libraries on the same memory."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from shardwise import numpy
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array

__all__ = ["from_dlpack", "is_supported_dtype", "to_dlpack"]


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """An array of `external_array`, which has ``__dlpack__``, on `device` or the default one; see
    `shardwise.numpy.from_dlpack` for `copy` and errors.

    >>> jax.dlpack.from_dlpack(np.arange(3, dtype=np.int32))
    Array([0, 1, 2], dtype=int32)
    """
    return numpy.from_dlpack(external_array, device=device, copy=copy)


def to_dlpack(
    x: Any,
    stream: Any = None,
    src_device: Any = None,
    dl_device: Any = None,
    max_version: Any = None,
    copy: bool | None = None,
) -> Any:
    """A capsule for a library that takes no objects with ``__dlpack__``.

    `stream` and `max_version` are those of ``x.__dlpack__``; CPU arrays have no stream. `dl_device` can only be (1, 0), host
    memory. With `copy` True the capsule has memory of its own. TypeError unless `x` is an array, ValueError for a `src_device`
    that is not its own, BufferError for an array on several devices and for dtypes that cannot be exported.

    >>> type(jax.dlpack.to_dlpack(jnp.arange(3))).__name__
    'PyCapsule'
    """
    if not isinstance(x, Array):
        raise TypeError(f"Argument to to_dlpack must be a jax.Array, got {type(x)}")
    if src_device is not None and x.devices() != {src_device}:
        raise ValueError(
            f"to_dlpack: x is on {sorted(map(str, x.devices()))}, but src_device={src_device}. Leave src_device out."
        )
    return cast(Any, x).__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype can be exchanged: bools and numbers, bfloat16 among them.

    >>> jax.dlpack.is_supported_dtype(jnp.bfloat16)
    True
    """
    wanted_dtype = np.dtype(dtype)
    return (wanted_dtype.kind in "biufc" and wanted_dtype.isbuiltin == 1) or wanted_dtype.name == "bfloat16"


__dir__ = _listing(__name__)
