"""Values in LLVM text: their types, constants, and `Lane`, a vector of one of them.

Types are those of NumPy by name; float16 and bfloat16 live in float32 lanes, bools in single bits, complex64 in 64, complex128 in 128.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass

TYPES = {
    "bool": "i1", "int8": "i8", "uint8": "i8", "int16": "i16", "uint16": "i16", "int32": "i32", "uint32": "i32",
    "int64": "i64", "uint64": "i64", "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double",
    "complex64": "i64", "complex128": "i128",
}  # fmt: skip
STORED = {**TYPES, "bool": "i8", "float16": "half", "bfloat16": "i16"}  # types in memory
SHORT = {"float": "f32", "double": "f64"}  # of types in the names of intrinsics


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """A vector value: its name or constant in the text, and the dtype's name."""

    ref: str
    dtype: str

    @property
    def type(self) -> str:
        """The LLVM type of one lane."""
        return TYPES[self.dtype]

    @property
    def signed(self) -> bool:
        """Whether an integer has a sign."""
        return self.dtype.startswith("int")

    @property
    def floating(self) -> bool:
        """Whether lanes hold floats."""
        return self.type in ("float", "double")

    @property
    def bits(self) -> int:
        """Bits per lane."""
        return {"float": 32, "double": 64}.get(self.type) or int(self.type[1:])

    @property
    def complex(self) -> bool:
        """Whether lanes hold complex values."""
        return self.dtype.startswith("complex")


def scalar_text(item: Any, type: str) -> str:
    """A scalar constant as LLVM reads it."""
    if isinstance(item, complex):
        item = complex_bits(item, "complex64" if type == "i64" else "complex128")
    if type == "i1":
        return "true" if item else "false"
    if type == "float":
        with np.errstate(all="ignore"):
            item = float(np.float32(item))
    if type in ("float", "double"):
        return f"0x{struct.unpack('>Q', struct.pack('>d', float(item)))[0]:016X}"
    half = 1 << (int(type[1:]) - 1)
    return str((int(item) + half) % (2 * half) - half)


def complex_bits(item: Any, dtype: str) -> int:
    """A complex value as a number of as many bits."""
    with np.errstate(all="ignore"):
        return int.from_bytes(np.asarray(item, dtype).tobytes(), "little", signed=True)


@functools.cache
def itemsize(dtype: str) -> int:
    """Bytes of an element in memory."""
    stored = STORED[dtype]
    return {"half": 2, "float": 4, "double": 8}.get(stored, 0) or int(stored[1:]) // 8
