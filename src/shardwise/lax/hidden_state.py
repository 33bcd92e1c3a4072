"""`rng_uniform`: random numbers from a state that the process keeps, the same on all processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import isdtype
from shardwise.base.locks import free_lock
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.ir import Array, bind
from shardwise.ops.control.callback import io_callback
from shardwise.ops.rules.bodies import define_shown
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.rules.operands import operands

# All processes run the same calls in the same order, and so draw the same numbers.
_generator = np.random.Generator(np.random.Philox(0))
_lock = free_lock()


def _draw_numbers(low: Any, high: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    least, end = np.asarray(low), np.asarray(high)
    with _lock:
        parts = _generator.random(shape)
    if least.dtype.kind in "iu":
        below = np.minimum(np.floor(parts * (end.astype(object) - least)), float(end.astype(object) - least - 1))
        return (least + below.astype(least.dtype)).astype(least.dtype)
    wide = least.astype(np.float64) + parts * (end.astype(np.float64) - least.astype(np.float64))
    numbers = wide.astype(least.dtype)
    return np.where(numbers >= end, np.maximum(np.nextafter(end, least), least), numbers).astype(least.dtype)


def _body(low: Any, high: Any, *, shape: tuple[int, ...]) -> Array:
    like = ShapeDtypeStruct(shape, low.aval.dtype)
    return io_callback(lambda a, b: _draw_numbers(a, b, shape), like, low, high)


_rng_uniform_p = define_shown("rng_uniform", _body, effects=True)


def rng_uniform(a: Any, b: Any, shape: Sequence[int]) -> Array:
    """Uniform numbers of this shape from `a` up to `b`, scalars of one dtype, from a hidden state: each call gives others.

    They are not JAX's. `random.uniform` draws from a key. ValueError for operands that are no scalars of one real dtype.

    >>> lax.rng_uniform(0.0, 1.0, (2,)).shape
    (2,)
    """
    low, high = operands("rng_uniform", a, b)
    if low.dtype != high.dtype or low.ndim or high.ndim or not isdtype(low.dtype, ("real floating", "integral")):
        raise ValueError(
            f"rng_uniform takes two scalars of one real dtype, got {low.aval.str_short()} and {high.aval.str_short()}."
        )
    return as_array(bind(_rng_uniform_p, low, high, shape=shape_tuple(shape, "rng_uniform shape")))
