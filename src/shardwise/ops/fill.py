"""Arrays of one value: `full`, `full_like`, `empty`, and what values have for a dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import canonicalize, dtype_of, is_weak
from shardwise.ir import Array, Literal, bind
from shardwise.ops.broadcast import broadcast_in_dim_p
from shardwise.ops.casts import convert
from shardwise.ops.dims import shape_tuple
from shardwise.ops.operands import Value, operand, requested_dtype
from shardwise.ops.out_sharding import resolve_out_sharding
from shardwise.sharding import NamedSharding, Sharding

__all__ = ["dtype", "empty", "full", "full_like", "zeros_like_array"]


def filled(shape: tuple[int, ...], value: Value, out_sharding: NamedSharding | None = None) -> Array:
    """The scalar `value` at every position of `shape`; what `full` and its like come down to."""
    return bind(broadcast_in_dim_p, value, shape=shape, broadcast_dimensions=(), out_sharding=out_sharding)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Sharding | None = None) -> Array:
    """An array of this shape with `fill_value` (a scalar) everywhere; weakly typed if that is a Python number.

    Args:
        dtype: the result's; None for that of `fill_value`.
        sharding: how the result is split, a NamedSharding over Explicit axes.

    Raises:
        TypeError: `fill_value` is no scalar, or `shape` no sequence of ints.
    """
    sizes = shape_tuple(shape, "full shape")
    value = operand("full", fill_value)
    if value.shape:
        raise TypeError(
            f"full takes a scalar fill_value, got shape {value.shape}. Use lax.broadcast_in_dim for arrays."
        )
    if dtype is not None:
        value = convert(value, requested_dtype(dtype, "full"))
    return filled(sizes, value, _explicit(sharding, len(sizes)))


def _explicit(sharding: Any, ndim: int) -> NamedSharding | None:
    if sharding is None:
        return None
    if isinstance(sharding, NamedSharding) and sharding.mesh.are_all_axes_explicit:
        return resolve_out_sharding(sharding, "full", ndim)
    raise NotImplementedError(f"lax.full takes sharding= over a mesh whose axes are all Explicit, got {sharding}. "
                              "Use jnp.full(..., device=sharding), or device_put on the result.")  # fmt: skip


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Sharding | None = None) -> Array:
    """`full` with the shape, dtype and weak type of `x`, where these are not given.

    On Explicit axes the result is split as `x` is, if it has the same shape.
    """
    sizes = tuple(np.shape(x)) if shape is None else shape_tuple(shape, "full_like shape")
    if dtype is None:
        new_dtype, weak = dtype_of(x), is_weak(x)
    else:
        new_dtype, weak = requested_dtype(dtype, "full_like"), False
    value = operand("full_like", fill_value)
    if value.shape:
        raise TypeError(f"full_like takes a scalar fill_value, got shape {value.shape}.")
    spec = _explicit(sharding, len(sizes))
    if spec is None and isinstance(x, Array) and any(x.aval.spec) and sizes == x.shape:
        spec = x.aval.sharding
    return filled(sizes, convert(value, new_dtype, weak), spec)


def zeros_like_array(x: Any) -> Array:
    """An array of zeros with the shape and type of `x`."""
    return full_like(x, 0)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Array:
    """An array of this shape and dtype with any contents: here zeros. `out_sharding`: a spec over Explicit axes."""
    sizes = shape_tuple(shape, "empty shape")
    element = requested_dtype(dtype, "empty")
    zero = Literal(np.zeros((), element), operand("empty", 0).aval.update(dtype=element, weak_type=False))
    return filled(sizes, zero, resolve_out_sharding(out_sharding, "empty", len(sizes)))


def dtype(x: Any) -> Any:
    """The dtype that the value `x` (an array, or a Python or NumPy scalar) has as an operand. TypeError for None."""
    if x is None:
        raise TypeError("None is no array or scalar and has no dtype.")
    return canonicalize(dtype_of(x))
