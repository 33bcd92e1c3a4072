"""Views that repeat values: `broadcast_in_dim` and the functions built on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.shapes import Axes, Ndarray, Shape
from shardwise.ir import Array, Box, Equation, Literal, ShapedArray, Shown, bind, define_op
from shardwise.ir.explicit import type_error
from shardwise.ir.key_uses import HANDS_ON
from shardwise.ir.op import Params, Types
from shardwise.ir.showing import SHOWING
from shardwise.ir.types import Spec
from shardwise.ops.elementwise import elementwise_ir
from shardwise.ops.rules.batching import in_front, up
from shardwise.ops.rules.bodies import define_shown
from shardwise.ops.rules.derivative import do, unbroadcast
from shardwise.ops.rules.dims import dim_indices, int_tuple, shape_tuple
from shardwise.ops.rules.operands import operand
from shardwise.ops.rules.out_sharding import in_context, resolve_out_sharding, sharding_spec, with_out_sharding
from shardwise.ops.shapes.reshape import reshape
from shardwise.ops.shapes.transpose import transpose
from shardwise.runtime.env import Env
from shardwise.sharding import NamedSharding
from shardwise.sharding.rule import Kind, Rule

__all__ = [
    "broadcast",
    "broadcast_in_dim",
    "broadcast_like",
    "broadcast_shapes",
    "broadcast_to_rank",
    "expand_dims",
    "tile",
]

_operand = operand  # functions below have a parameter of that name


def _broadcast_type(
    x: ShapedArray, *, shape: Shape, broadcast_dimensions: tuple[int, ...], out_sharding: NamedSharding | None = None
) -> ShapedArray:
    name, dims = "broadcast_in_dim", broadcast_dimensions
    if len(dims) != x.ndim:
        raise TypeError(
            f"{name}: broadcast_dimensions must have length equal to operand ndim, {x.ndim}: one dim of the result for each, "
            f"got {dims}."
        )
    if len(shape) < x.ndim:
        raise TypeError(f"{name}: the target shape {shape} has fewer dims than the operand, whose shape is {x.shape}.")
    if any(not 0 <= d < len(shape) for d in dims):
        raise TypeError(f"{name}: broadcast_dimensions {dims} must be dims of the result, whose shape is {shape}.")
    if any(n not in (1, shape[d]) for n, d in zip(x.shape, dims, strict=True)):
        raise TypeError(
            f"{name}: each dim of the operand must be 1 or equal its dim of the target; got operand shape {x.shape}, "
            f"target shape {shape}, broadcast_dimensions {dims}."
        )
    if any(b <= a for a, b in itertools.pairwise(dims)):
        problem = "must increase" if len(set(dims)) == len(dims) else "must not contain duplicates"
        raise TypeError(f"{name} broadcast_dimensions {problem}, got {dims}.")
    out = with_out_sharding(ShapedArray(shape, x.dtype, x.weak_type), out_sharding)
    return in_context(out) if x.mesh is None else out


def _broadcast_kernel(
    env: Env,
    x: Ndarray,
    *,
    shape: Shape,
    broadcast_dimensions: tuple[int, ...],
    out_sharding: NamedSharding | None = None,
) -> Ndarray:
    lead = x.shape[: env.lead]
    return stretch_view(x.reshape(lead + _spread(x.shape[env.lead :], shape, broadcast_dimensions)), lead + shape)


def _spread(sizes: Shape, shape: Shape, dims: tuple[int, ...]) -> Shape:
    """The operand's sizes at their result dims, 1 at the others."""
    core = [1] * len(shape)
    for n, d in zip(sizes, dims, strict=True):
        core[d] = n
    return tuple(core)


def _broadcast_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[[Ndarray], Ndarray]:
    shape, lead = params["shape"], env.lead
    core = _spread(in_types[0].shape, shape, params["broadcast_dimensions"])
    if core == shape:  # nothing repeats
        return lambda x: x.reshape(x.shape[:lead] + core)
    return lambda x: stretch_view(x.reshape(x.shape[:lead] + core), x.shape[:lead] + shape)


def stretch_view(x: Ndarray, shape: Shape) -> Ndarray:
    """A read-only view of `x` with size-1 dims repeated to fill `shape`: a faster `np.broadcast_to`."""
    if x.shape == shape:
        return x
    if not x.flags.c_contiguous:
        return np.broadcast_to(x, shape)
    strides = tuple([0 if have != want else s for have, want, s in zip(x.shape, shape, x.strides, strict=True)])
    view: Ndarray = np.ndarray(shape, x.dtype, x, 0, strides)  # type: ignore[arg-type]
    view.flags.writeable = False
    return view


def _broadcast_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Operand and result share the factors of dims that keep their size; the result's other dims have their own factors."""
    out = out_types[0].shape
    operand_factors = tuple(
        (d,) if n == out[d] else () for n, d in zip(in_types[0].shape, params["broadcast_dimensions"], strict=True)
    )
    return Rule((operand_factors,), (tuple((d,) for d in range(len(out))),), out, (Kind.PASS,) * len(out))


def _broadcast_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    return {**params, "shape": out_types[0].shape, "out_sharding": None}


def _broadcast_boxes(eqn: Equation) -> tuple[tuple[Box]] | None:
    shape = eqn.outputs[0].aval.shape
    return None if eqn.inputs[0].aval.ndim else ((Box(0, (), (0,) * len(shape), shape),),)


def _broadcast_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    out_sharding = params.get("out_sharding")
    if out_sharding is not None:
        return (sharding_spec(out_sharding, out_types[0].ndim),)
    spec: list[Axes] = [()] * out_types[0].ndim
    for axes, d in zip(in_types[0].spec, params["broadcast_dimensions"], strict=True):
        spec[d] = axes  # a dim that grows is split only over axes of size 1, and keeps them
    return (tuple(spec),)


def _broadcast_transpose(
    ct: Any, x: Any, *, shape: Shape, broadcast_dimensions: tuple[int, ...], **_: Any
) -> list[Any]:
    """The sum over new dims and over dims that grew from size 1."""
    new = tuple(d for d in range(len(shape)) if d not in broadcast_dimensions)
    summed_ct = do.reduce_sum(ct, axes=new) if new else ct
    return [unbroadcast(summed_ct, x.aval)]


def _broadcast_mapped(size: int, shape: Shape, broadcast_dimensions: tuple[int, ...], **_: Any) -> dict[str, Any]:
    return {"shape": (size, *shape), "broadcast_dimensions": (0, *up(broadcast_dimensions))}


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    if config.dialect.jaxprs.broadcast_shows_all:
        return {**shown, "sharding": shown.get("sharding")}
    return {k: v for k, v in shown.items() if k != "shape" and v != ()}


def _parts(values: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """A number as an array without dims is the number."""
    (x,) = values
    return x if isinstance(x, Literal) and not params["shape"] and x.aval.mesh is None else None


broadcast_in_dim_p = define_op(
    "broadcast_in_dim",
    type_rule=_broadcast_type,
    kernel=_broadcast_kernel,
    compile=_broadcast_compile,
    rule=_broadcast_rule,
    emit=elementwise_ir.MOVE,
    view=True,
    additive=True,
    localize=_broadcast_localize,
    boxes=_broadcast_boxes,
    explicit=_broadcast_explicit,
    jvp="linear",
    transpose=_broadcast_transpose,
    batch=in_front("broadcast_in_dim", _broadcast_mapped),
    shown=Shown(renamed={"out_sharding": "sharding"}, change=_shown_params, parts=_parts),
    keys=HANDS_ON,
)


def broadcast_in_dim(
    operand: Any, shape: Any, broadcast_dimensions: Sequence[int], *, out_sharding: Any = None
) -> Array:
    """`operand` repeated to `shape`; its dim i becomes dim ``broadcast_dimensions[i]``, and size 1 may grow.

    `out_sharding` (a spec over Explicit axes, or a NamedSharding) is the result's sharding; by default the operand's dims
    keep their axes and new dims are unsplit. TypeError where dims do not fit.

    >>> lax.broadcast_in_dim(jnp.array([1, 2]), (2, 3), (0,))
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    x = _operand("broadcast_in_dim", operand)
    sizes = shape_tuple(shape, "broadcast_in_dim shape")
    dims = int_tuple(broadcast_dimensions, "broadcast_in_dim broadcast_dimensions")
    sharding = resolve_out_sharding(out_sharding, "broadcast_in_dim", len(sizes))
    if sizes == x.shape and sharding is None and isinstance(x, Array) and dims == tuple(range(len(sizes))):
        return x
    if len(dims) == x.ndim and len(set(dims)) == len(dims):
        order = tuple(sorted(range(len(dims)), key=dims.__getitem__))
        if order != tuple(range(len(dims))):
            x, dims = transpose(x, order), tuple(sorted(dims))
    return bind(broadcast_in_dim_p, x, shape=sizes, broadcast_dimensions=dims, out_sharding=sharding)


def broadcast(operand: Any, sizes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """`operand` repeated along new major dims: f[n] with sizes (a, b) -> f[a, b, n].

    Args:
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    Raises:
        TypeError: `sizes` is no sequence of ints.

    >>> lax.broadcast(jnp.array([1, 2]), (2,))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x = _operand("broadcast", operand)
    if not hasattr(sizes, "__len__"):
        raise TypeError(f"broadcast takes a sequence of sizes, got {sizes!r}.")
    new = shape_tuple(sizes, "broadcast sizes")
    if not new and out_sharding is None and isinstance(x, Array):
        return x
    dims = tuple(range(len(new), len(new) + x.ndim))
    return broadcast_in_dim(x, new + x.shape, dims, out_sharding=out_sharding)


def broadcast_like(arr: Any, like_arr: Any) -> Array:
    """`arr` broadcast to the shape of `like_arr` by NumPy's rules, and on Explicit axes sharded like it.

    ValueError if the shapes do not allow it.

    >>> lax.broadcast_like(jnp.array([1, 2]), jnp.zeros((2, 2)))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x, like = operand("broadcast_like", arr), operand("broadcast_like", like_arr, 1)
    new = like.ndim - x.ndim
    if new < 0 or any(n not in (1, m) for n, m in zip(x.shape, like.shape[new:], strict=True)):
        raise ValueError(f"broadcast_like: shape {x.shape} does not broadcast to {like.shape}.")
    require_kept_axes("broadcast_like", x, like.aval.spec, like.aval.str_short())
    sharding = like.aval.sharding if like.aval.mesh is not None and any(like.aval.spec) else None
    return broadcast_in_dim(x, like.shape, range(new, like.ndim), out_sharding=sharding)


def require_kept_axes(name: str, x: Any, wanted: Spec, shown: Any) -> None:
    """ValueError if a dim of `x` is split, and otherwise than `wanted` says for the last dims of the result."""
    if any(
        axes and axes != kept_axes for axes, kept_axes in zip(x.aval.spec, wanted[len(wanted) - x.ndim :], strict=True)
    ):
        raise ValueError(
            f"{name}: incompatible types: {x.aval.str_short()} is split otherwise than {shown} in the dims that they share. Reshard one."
        )


def broadcast_to_rank(x: Any, rank: int) -> Array:
    """`x` with leading dims of size 1 added up to `rank` dims; `x` itself if it has that rank.

    >>> lax.broadcast_to_rank(jnp.arange(3), 2).shape
    (1, 3)
    """
    value = operand("broadcast_to_rank", x)
    return expand_dims(value, range(rank - value.ndim))


def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """`array` with dims of size 1 at the positions `dimensions` of the result. ValueError for repeated or
    out-of-range positions.

    >>> lax.expand_dims(jnp.arange(3), (0,)).shape
    (1, 3)
    """
    x = operand("expand_dims", array)
    if not len(dimensions) and isinstance(x, Array):
        return x
    ndim = x.ndim + len(dimensions)
    new = dim_indices(dimensions, ndim, "lax.expand_dims")
    kept_dims = tuple(d for d in range(ndim) if d not in new)
    shape = [1] * ndim
    for n, d in zip(x.shape, kept_dims, strict=True):
        shape[d] = n
    return broadcast_in_dim(x, tuple(shape), kept_dims)


def tile(operand: Any, reps: Sequence[int]) -> Array:
    """`operand` repeated ``reps[d]`` times along each dim: f[a, b] with (2, 3) -> f[2a, 3b]. TypeError unless one per dim.

    ShardingTypeError if a repeated dim is split over an Explicit axis.

    >>> lax.tile(jnp.array([1, 2]), (2,))
    Array([1, 2, 1, 2], dtype=int32)
    """
    x = _operand("tile", operand)
    times = shape_tuple(reps, "tile reps")
    if len(times) != x.ndim:
        raise TypeError(f"tile takes one count for each of the operand's {x.ndim} dims, got {times}.")
    if any(axes and n != 1 for axes, n in zip(x.aval.spec, times, strict=True)):
        raise type_error(
            f"tile repeats a dim that is split: got {x.aval.str_short()} with reps {times}. Reshard it to None first."
        )
    return bind(_tile_p, x, reps=times) if shows_joins() else _tile(x, reps=times)


def shows_joins() -> bool:
    """Whether programs have ops for `stack`, `unstack` and `tile`: those that are traced to be shown, as JAX's of today."""
    return SHOWING.get() and config.dialect.jaxprs.joins_are_ops


def _tile(x: Any, reps: tuple[int, ...]) -> Array:
    pairs = [size for n, m in zip(reps, x.shape, strict=True) for size in (n, m)]
    wide = broadcast_in_dim(x, tuple(pairs), tuple(range(1, 2 * x.ndim, 2)))
    return reshape(wide, tuple(n * m for n, m in zip(reps, x.shape, strict=True)))


def _transpose_tile(ct: Any, x: Any, reps: tuple[int, ...]) -> list[Any]:
    pairs = [size for n, m in zip(reps, x.aval.shape, strict=True) for size in (n, m)]
    return [do.reduce_sum(reshape(ct, tuple(pairs)), axes=tuple(range(0, 2 * len(reps), 2)))]


_tile_p = define_shown("tile", _tile, jvp="linear", transpose=_transpose_tile)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape to which `shapes` broadcast by NumPy's rules: (2, 1), (3,) -> (2, 3). ValueError if they do not.

    >>> lax.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    read = [shape_tuple(s, "broadcast_shapes") for s in shapes]
    try:
        return np.broadcast_shapes(*read)
    except ValueError as error:
        raise ValueError(f"Incompatible shapes for broadcasting: shapes={read}") from error
