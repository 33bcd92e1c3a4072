"""DLPack's capsules of element types that NumPy does not exchange: bfloat16 and 8-bit floats.

NumPy exchanges their words as unsigned integers; here the capsule's description is read or rewritten, so that it says the true type.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from shardwise.base.dtypes import BY_NAME
from shardwise.base.shapes import Ndarray

_UNSIGNED = 1
CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_NAMES = {code: name for name, code in CODES.items()}


class _Tensor(ctypes.Structure):
    """DLPack's description of an array, as far as its type."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _ManagedTensorVersioned(ctypes.Structure):
    """The struct that a capsule of DLPack 1.0 and later points to."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def _description(capsule: Any) -> _Tensor:
    """The description that a capsule holds, in its memory."""
    name = b"dltensor_versioned"
    if _is_valid(capsule, name):
        return _ManagedTensorVersioned.from_address(_pointer(capsule, name)).tensor
    return _Tensor.from_address(_pointer(capsule, b"dltensor"))


def capsule_of(value: Ndarray, **wanted: Any) -> Any:
    """The capsule of an array; `wanted` as for NumPy's ``__dlpack__``. BufferError for types that DLPack does not have."""
    code = CODES.get(value.dtype.name)
    if code is None:
        return value.__dlpack__(**wanted)
    capsule = value.view(f"u{value.itemsize}").__dlpack__(**wanted)
    _description(capsule).code = code
    return capsule


class _Words:
    """Another library's array, whose elements NumPy takes for words if it does not know their type: `name` is that type then."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.name: str | None = None

    def __dlpack__(self, **wanted: Any) -> Any:
        capsule = self._source.__dlpack__(**wanted)
        described = _description(capsule)
        self.name = _NAMES.get(described.code) if described.lanes == 1 else None
        if self.name is not None:
            described.code = _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._source.__dlpack_device__()


def array_of(source: Any) -> Ndarray:
    """The array of an object with ``__dlpack__``, on its memory."""
    words = _Words(source)
    value = np.from_dlpack(words)
    return value if words.name is None else value.view(BY_NAME[words.name])
