"""`ds`: an index of a static number of positions from a start that may be traced."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import register_pytree_node
from shardwise.ir import Array, Tracer
from shardwise.ops.elementwise.binary import add
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.convert import as_array, as_value


@dataclass(frozen=True)
class Slice:
    """The positions ``start + stride * i`` for i below `size`."""

    start: Any
    size: int
    stride: int = 1

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ValueError(f"slice must have a step >= 1 (found: {self.stride})")
        if self.size < 0:
            raise ValueError(f"a slice has no negative size, got {self.size}.")

    @property
    def is_dynamic_start(self) -> bool:
        """Whether the start is traced."""
        return isinstance(self.start, Tracer)

    def positions(self) -> Array:
        """The positions as an array."""
        steps = as_array(as_value(np.arange(self.size, dtype=np.int32) * np.int32(self.stride)))
        return add(convert(as_array(as_value(self.start)), steps.dtype), steps)


register_pytree_node(Slice, lambda s: ((s.start,), (s.size, s.stride)), lambda kept, start: Slice(*start, *kept))


def ds(start: Any, size: int | None = None, stride: int | None = None) -> Any:
    """An index of `size` positions from `start`, `stride` apart; with one argument of the first `start` positions.

    >>> jnp.arange(6)[jax.ds(2, 3)]
    Array([2, 3, 4], dtype=int32)
    """
    first, count = (0, start) if size is None else (start, size)
    return Slice(first, operator.index(count), 1 if stride is None else operator.index(stride))
