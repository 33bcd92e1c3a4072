"""Functions that make JAX values of other things: `stage` of scalars and NumPy arrays, `shape_as_value` of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ir import Array, bind
from shardwise.ops.elementwise.casts import copy_p
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.rules.operands import operand
from shardwise.ops.shapes.fill import full


def stage(x: Any, /) -> Array:
    """`x`, an array or a scalar, as a value of the current trace; outside of one as an array.

    >>> lax.stage(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return bind(copy_p, operand("stage", x))


def shape_as_value(shape: Sequence[int]) -> Array | np.ndarray[Any, Any]:
    """The sizes of a shape as a vector of ints: int32, or int64 where a size needs it.

    >>> lax.shape_as_value((2, 3))
    array([2, 3], dtype=int32)
    """
    sizes = shape_tuple(shape, "shape_as_value")
    dtype = np.dtype(np.int64 if any(n > np.iinfo(np.int32).max for n in sizes) else np.int32)
    return np.asarray(sizes, dtype) if sizes else full((0,), 0, dtype)
