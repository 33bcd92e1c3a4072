"""The memory of kernels: `MemoryRef` and the memory spaces. A CPU has one memory, so that a space is a name only."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import canonicalize
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array, ShapedArray
from shardwise.ref import AbstractRef

# What semaphores count in, as in JAX's interpreter.
SEMAPHORE_DTYPE = np.dtype(np.int16)


@dataclass(frozen=True)
class MemoryRef:
    """The shape and dtype of memory in a space.

    Attributes:
        inner_aval: the type of the array.
        memory_space: its space.
    """

    inner_aval: ShapedArray
    memory_space: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.inner_aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""
        return self.inner_aval.dtype

    def get_array_aval(self) -> ShapedArray:
        """The type of the array."""
        return self.inner_aval

    def get_ref_aval(self) -> AbstractRef:
        """The type of a Ref to it."""
        return AbstractRef(self.inner_aval)


class Space(enum.Enum):
    """A memory space; called with a shape and a dtype it gives a `MemoryRef`."""

    def __call__(self, shape: Sequence[int], dtype: Any) -> MemoryRef:
        return self.from_type(ShapedArray(tuple(shape), canonicalize(dtype)))

    def from_type(self, ty: Any) -> MemoryRef:
        """A `MemoryRef` of the shape and dtype of `ty`."""
        return MemoryRef(ShapedArray(tuple(ty.shape), np.dtype(ty.dtype)), self)

    def __str__(self) -> str:
        return str(self.value)


class MemorySpace(Space):
    """The spaces that every device has."""

    ANY = "any"
    DEFAULT = "default"
    ERROR = "error"
    INDEX = "index"
    KEY = "key"
    HOST = "host"


def uninitialized_array(shape: Sequence[int], dtype: Any) -> Array:
    """Memory before it is written: NaN, the least integer, False, and zero for int16, the dtype of semaphores.

    NotImplementedError for other dtypes.
    """
    kind = np.dtype(dtype)
    if jnp.issubdtype(kind, jnp.floating):
        value: Any = np.nan
    elif kind == SEMAPHORE_DTYPE or kind == np.bool_:
        value = 0
    elif jnp.issubdtype(kind, jnp.integer):
        value = jnp.iinfo(kind).min
    else:
        raise NotImplementedError(
            f"pallas: memory of {kind} that is not written yet has no value to show. Use two real arrays, or alias the output to an input."
        )
    return jnp.full(tuple(shape), value, kind)
