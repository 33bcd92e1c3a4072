"""`iota`: arrays that count along a dim, made from a shape alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, ShapedArray, Shown, SmallForm, bind, define_op
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.devices.split_dims import cut
from shardwise.ops.rules.derivative import later
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.rules.operands import check_kind, requested_dtype
from shardwise.ops.rules.out_sharding import in_context, resolve_out_sharding, with_out_sharding
from shardwise.ops.shapes.broadcast import stretch_view
from shardwise.ops.shapes.transpose import dim_factors
from shardwise.runtime.env import Env
from shardwise.sharding import NamedSharding
from shardwise.sharding.rule import Kind, Rule

__all__ = ["broadcasted_iota", "iota"]


def _iota_type(
    *,
    dtype: Any,
    shape: tuple[int, ...],
    dimension: int,
    out_sharding: NamedSharding | None = None,
    shard_axes: tuple[str, ...] = (),
) -> ShapedArray:
    out = ShapedArray(shape, dtype, vma=frozenset(shard_axes))
    check_kind("iota", out, "iufc")
    if not 0 <= dimension < len(shape):
        raise ValueError(
            f"iota dimension must be one of the shape's dims, got dimension={dimension} for shape={shape}."
        )
    return in_context(with_out_sharding(out, out_sharding))


def _iota_kernel(
    env: Env,
    *,
    dtype: Any,
    shape: tuple[int, ...],
    dimension: int,
    out_sharding: NamedSharding | None = None,
    shard_axes: tuple[str, ...] = (),
) -> Ndarray:
    n = shape[dimension]
    core = [1] * len(shape)
    core[dimension] = n
    begin = env.first_part(shard_axes) if shard_axes and env.lead >= len(env.axis_names) else None
    if begin is not None:  # parts side by side are one row
        own = math.prod(env.extent(a) for a in shard_axes) * n
        core[dimension] = own
        row = _count_from(begin * n, begin * n + own, dtype).reshape((1,) * env.lead + tuple(core))
        values = cut(env, row, tuple(shard_axes if d == dimension else () for d in range(len(shape))))
        loops = values.shape[: env.lead]
    elif shard_axes:
        first = env.index(shard_axes) * np.int64(n)
        loops = first.shape
        count = first.reshape(loops + (1,) * len(shape)) + np.arange(n).reshape(core)
        values = count.astype(dtype)
    else:
        loops = (1,) * env.lead
        values = _count_from(0, n, dtype).reshape(loops + tuple(core))
    return stretch_view(values, loops + shape)


def _count_from(begin: int, end: int, dtype: Any) -> Ndarray:
    """The numbers from `begin` on, before `end`; integers that do not fit wrap around. NumPy rounds each float only if it begins at 0."""
    fits = dtype.itemsize > 2 and (
        not begin if dtype.kind == "f" else dtype.kind in "iu" and end <= np.iinfo(dtype).max
    )
    return np.arange(begin, end, dtype=dtype if fits else np.int64).astype(dtype, copy=False)


def _iota_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    shape = out_types[0].shape
    return Rule((), (dim_factors(shape),), shape, (Kind.PASS,) * len(shape))


def _iota_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    return {**params, "shape": out_types[0].shape, "out_sharding": None}


def _iota_place(params: Params, in_dims: tuple[Spec, ...], out_dims: tuple[Spec, ...]) -> Params:
    """If `dimension` is split, each device starts to count at the first position of its part."""
    return {**params, "shard_axes": out_dims[0][params["dimension"]]}


iota_p = define_op(
    "iota",
    type_rule=_iota_type,
    kernel=_iota_kernel,
    rule=_iota_rule,
    localize=_iota_localize,
    place=_iota_place,
    small=SmallForm(later("shardwise.runtime.small", "constant")),
    shown=Shown(empty=("sharding",)),
)


def iota(dtype: Any, size: int) -> Array:
    """The numbers 0, 1, ..., size - 1 as `dtype`. TypeError for bool and for sizes that are not ints.

    >>> lax.iota(jnp.int32, 3)
    Array([0, 1, 2], dtype=int32)
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int, *, out_sharding: Any = None) -> Array:
    """An array of this shape; each element is its index along `dimension`.

    `out_sharding`: a spec over Explicit axes; by default the result is unsplit.

    >>> lax.broadcasted_iota(jnp.int32, (2, 3), 1)
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    sizes = shape_tuple(shape, "iota shape")
    sharding = resolve_out_sharding(out_sharding, "broadcasted_iota", len(sizes))
    return bind(
        iota_p, dtype=requested_dtype(dtype, "iota"), shape=sizes, dimension=int(dimension), out_sharding=sharding
    )
