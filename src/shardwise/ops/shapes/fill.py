"""Arrays of one value: `full`, `full_like`, `empty`, and the dtype of a value."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import canonicalize, dtype_of, is_weak
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Literal, ShapedArray, Tracer, bind, define_op
from shardwise.ir.axis_scope import types_table
from shardwise.ops.devices.layout import reshard_op, sharding_constraint
from shardwise.ops.elementwise.casts import convert, refuse_complex_scalar
from shardwise.ops.rules.convert import wide_int
from shardwise.ops.rules.derivative import do
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.rules.operands import Value, operand, requested_dtype
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.sharding import Mesh, NamedSharding, Sharding
from shardwise.sharding.rule import Rule

__all__ = ["dtype", "empty", "full", "full_like", "zeros_like_array"]


def _stored_fill(env: Env, x: Ndarray, *, shape: tuple[int, ...], axes: tuple[str, ...]) -> Ndarray:
    loops = list(x.shape)
    for a in axes:
        loops[env.dim(a)] = env.extent(a)
    out = pool.empty((*loops, *shape), x.dtype)
    out[...] = x.reshape(x.shape + (1,) * len(shape))
    return out


# A fill whose elements have memory of their own, in the order of rows, so that loops go through it as through rows of an array. Passes
# insert it in per-device programs. Along `axes` each device has its own.
stored_fill = define_op(
    "stored_fill",
    type_rule=lambda x, *, shape, axes: ShapedArray(shape, x.dtype, x.weak_type, vma=x.vma | set(axes)),
    kernel=_stored_fill,
    rule=lambda ins, outs, params: Rule(((),), (((),) * len(params["shape"]),), (), ()),
)


def full_array(shape: tuple[int, ...], value: Value, out_sharding: NamedSharding | None = None) -> Array:
    """The scalar `value` at every position of `shape`; `full` and the other functions here call it."""
    return bind(broadcast_in_dim_p, value, shape=shape, broadcast_dimensions=(), out_sharding=out_sharding)


def filled_like(x: Tracer, value: Value) -> Array:
    """The scalar `value` in the shape and layout of `x`; since JAX 0.10 it also varies over the same mesh axes as `x`."""
    return varying_like(x, full_array(x.shape, value, x.aval.sharding if any(x.aval.spec) else None))


def varying_like(x: Any, made: Array) -> Array:
    """`made` of `x`, an array or a ShapeDtypeStruct: since JAX 0.10 it varies over the mesh axes of `x`, whatever its shape."""
    if not types_table().like_copies_vma:
        return made
    axes = x.aval.vma if isinstance(x, Array) else getattr(x, "vma", None) or frozenset[str]()
    missing_axes = axes - made.aval.vma
    return do.pvary(made, axes=tuple(sorted(missing_axes))) if missing_axes else made


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Sharding | None = None) -> Array:
    """An array of this shape with `fill_value` (a scalar) everywhere; weakly typed if that is a Python number.

    Args:
        dtype: the result's dtype; None for that of `fill_value`.
        sharding: the result's sharding; part of its type on Explicit axes.

    Raises:
        TypeError: `fill_value` is not a scalar, or `shape` is not a sequence of ints.

    >>> lax.full((2,), 7.0)
    Array([7., 7.], dtype=float32, weak_type=True)
    """
    sizes = shape_tuple(shape, "full shape")
    element = None if dtype is None else requested_dtype(dtype, "full")
    value = operand("full", fill_value if element is None else wide_int(fill_value, element))
    if value.shape:
        raise TypeError(
            f"full takes a scalar fill_value, got shape {value.shape}. Use lax.broadcast_in_dim for arrays."
        )
    if element is not None:
        refuse_complex_scalar("lax.full", fill_value, element)
        value = convert(value, element)
    return _fill_in_layout(sizes, value, sharding, "full")


def _fill_in_layout(shape: tuple[int, ...], value: Value, sharding: Any, name: str) -> Array:
    """`full_array` with this sharding: part of the type on Explicit axes, a layout on others."""
    if sharding is None:
        return full_array(shape, value)
    if not isinstance(sharding, Sharding):
        raise TypeError(f"lax.{name} takes a Sharding as sharding=, got {sharding!r}.")
    sharding.shard_shape(shape)  # raises where it does not fit
    if isinstance(sharding, NamedSharding) and sharding.mesh.are_all_axes_explicit:
        explicit_sharding = resolve_out_sharding(sharding, name, len(shape))
        concrete = sharding if isinstance(sharding.mesh, Mesh) else None
        return bind(reshard_op, full_array(shape, value), sharding=explicit_sharding, concrete=concrete)
    return bind(sharding_constraint, full_array(shape, value), sharding=sharding)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Sharding | None = None) -> Array:
    """`fill_value` with the shape, dtype and weak type of `x` by default.

    The result has the sharding of `x` if `x` is committed and has the same shape, or is whole on each device, and
    varies over the axes of its type.

    Raises:
        TypeError: `fill_value` is no scalar.

    >>> lax.full_like(jnp.arange(2), 7)
    Array([7, 7], dtype=int32)
    """
    sizes = tuple(np.shape(x)) if shape is None else shape_tuple(shape, "full_like shape")
    if dtype is None:
        new_dtype, weak = dtype_of(x), is_weak(x)
    else:
        new_dtype, weak = requested_dtype(dtype, "full_like"), False
    value = operand("full_like", wide_int(fill_value, new_dtype))
    if value.shape:
        raise TypeError(f"full_like takes a scalar fill_value, got shape {value.shape}.")
    if not weak:
        refuse_complex_scalar("lax.full_like", fill_value, new_dtype)
    value = convert(value, new_dtype, weak)
    if sharding is None and isinstance(x, Array):
        if isinstance(x, Tracer):
            if sizes == x.shape:
                return filled_like(x, value)
        else:
            sharding = sharding_for(x, sizes)
    return varying_like(x, _fill_in_layout(sizes, value, sharding, "full_like"))


def sharding_for(x: Any, shape: tuple[int, ...]) -> Sharding | None:
    """The sharding of an array of `shape` that is made like the concrete array `x`; None for an uncommitted one."""
    if not getattr(x, "committed", False):
        return None
    sharding: Sharding = x.sharding
    spec = getattr(sharding, "spec", ())
    fits = shape == x.shape or (sharding.is_fully_replicated and len(spec) <= len(shape))
    return sharding if fits else None


def zeros_like_array(x: Any) -> Array:
    """An array of zeros with the shape and type of `x`.

    >>> lax.zeros_like_array(jnp.array([1, 2]))
    Array([0, 0], dtype=int32)
    """
    return full_like(x, 0)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Array:
    """An array of this shape and dtype with unspecified contents: here zeros. `out_sharding`: a spec over Explicit axes.

    >>> lax.empty((2, 3), jnp.float32).shape
    (2, 3)
    """
    sizes = shape_tuple(shape, "empty shape")
    element = requested_dtype(dtype, "empty")
    zero = Literal(np.zeros((), element), operand("empty", 0).aval.update(dtype=element, weak_type=False))
    return full_array(sizes, zero, resolve_out_sharding(out_sharding, "empty", len(sizes)))


def dtype(x: Any) -> Any:
    """The dtype of the value `x` (an array, or a Python or NumPy scalar) as an operand. TypeError for None.

    >>> lax.dtype(jnp.ones(2))
    dtype('float32')
    """
    if x is None:
        raise TypeError("None is no array or scalar and has no dtype.")
    return canonicalize(dtype_of(x))
