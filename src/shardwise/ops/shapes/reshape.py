"""`reshape`, its sharding rule, and explicit shardings of dims that split or merge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shardwise.base.errors import ReshapeError
from shardwise.base.shapes import Axes, Ndarray, Shape
from shardwise.ir import Array, ShapedArray, Shown, bind, define_op
from shardwise.ir.explicit import type_error
from shardwise.ir.key_uses import HANDS_ON
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.elementwise import elementwise_ir
from shardwise.ops.rules.batching import in_front
from shardwise.ops.rules.derivative import cotangent_sharding, do, later
from shardwise.ops.rules.dims import int_tuple, shape_tuple
from shardwise.ops.rules.operands import operand
from shardwise.ops.rules.out_sharding import resolve_out_sharding, sharding_spec, with_out_sharding
from shardwise.ops.shapes.transpose import transpose
from shardwise.runtime.copies import reshape_block
from shardwise.runtime.env import Env
from shardwise.sharding import AbstractMesh, NamedSharding
from shardwise.sharding.reshape_rule import reshape_rule
from shardwise.sharding.rule import Rule

__all__ = ["collapse", "reshape"]


def _reshape_type(x: ShapedArray, *, new_sizes: Shape, out_sharding: NamedSharding | None = None) -> ShapedArray:
    if math.prod(new_sizes) != x.size:
        raise ReshapeError(
            f"reshape keeps the number of elements: shape {x.shape} has {x.size}, new_sizes {new_sizes} have "
            f"{math.prod(new_sizes)}."
        )
    return with_out_sharding(ShapedArray(new_sizes, x.dtype, x.weak_type), out_sharding)


def _reshape_kernel(env: Env, x: Ndarray, *, new_sizes: Shape, out_sharding: NamedSharding | None = None) -> Ndarray:
    return reshape_block(x, x.shape[: env.lead] + new_sizes)


def _reshape_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    return reshape_rule(in_types[0].shape, out_types[0].shape)


def _reshape_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    return {**params, "new_sizes": out_types[0].shape, "out_sharding": None}


def _reshape_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    out_sharding = params.get("out_sharding")
    new_sizes = out_types[0].shape
    if out_sharding is not None:
        return (sharding_spec(out_sharding, len(new_sizes)),)
    x = in_types[0]
    if not any(x.spec):
        return (((),) * len(new_sizes),)
    assert x.mesh is not None
    spec = reshaped_spec(x.shape, x.spec, new_sizes, x.mesh)
    if spec is None:
        raise type_error(
            "This reshape is not supported. Please specify the sharding of the output via the `out_sharding` "
            f"argument of lax.reshape. Got operand type: {x.str_short(False)}, new sizes: {new_sizes}"
        )
    return (spec,)


def reshaped_spec(shape: Shape, spec: Spec, new_sizes: Shape, mesh: AbstractMesh) -> Spec | None:
    """The spec after a reshape that splits one dim or merges one group of dims; None if it is ambiguous.

    Dims of size 1 may appear and disappear, and lose their axes if no other dim changes. Splitting a dim distributes its axes
    over the pieces, major first; each piece with axes, except the last one, must be split to size 1. In a merged group the
    sharded dims must come first; their axes are concatenated.
    """
    start, end = _common_ends(shape, new_sizes)
    if [n for n in shape if n != 1] != [n for n in new_sizes if n != 1] and start + end:
        middle_spec = reshaped_spec(
            shape[start : len(shape) - end],
            spec[start : len(spec) - end],
            new_sizes[start : len(new_sizes) - end],
            mesh,
        )
        return None if middle_spec is None else (*spec[:start], *middle_spec, *spec[len(spec) - end :])
    old = [(n, axes) for n, axes in zip(shape, spec, strict=True) if n != 1]
    new = [n for n in new_sizes if n != 1]
    start, end = _common_ends([n for n, _ in old], new)
    group, pieces = old[start : len(old) - end], new[start : len(new) - end]
    middle: list[Axes] | None
    if not group and not pieces:
        middle = []
    elif not any(axes for _, axes in group):
        middle = [()] * len(pieces) if len(group) == 1 or len(pieces) == 1 else None
    elif len(group) == 1:
        middle = _deal_axes(group[0][1], pieces, mesh)
    elif len(pieces) == 1:
        middle = _merge_axes([axes for _, axes in group])
    else:
        middle = None
    if middle is None:
        return None
    new_axes = iter([axes for _, axes in old[:start]] + middle + [axes for _, axes in old[len(old) - end :]])
    return tuple(() if n == 1 else next(new_axes) for n in new_sizes)


def _common_ends(old: Sequence[int], new: Sequence[int]) -> tuple[int, int]:
    """The number of leading sizes that two shapes share, and of trailing ones among the rest."""
    most = min(len(old), len(new))
    start = next((i for i in range(most) if old[i] != new[i]), most)
    end = next((i for i in range(most - start) if old[-1 - i] != new[-1 - i]), most - start)
    return start, end


def _deal_axes(axes: Axes, pieces: list[int], mesh: AbstractMesh) -> list[Axes] | None:
    left = list(axes)
    out: list[Axes] = []
    for size in pieces:
        mine: list[str] = []
        ways = 1
        while left and ways < size:
            mine.append(left.pop(0))
            ways *= mesh.axis_size(mine[-1])
        if size % ways or (left and ways != size):
            return None
        out.append(tuple(mine))
    return None if left else out


def _merge_axes(group: list[Axes]) -> list[Axes] | None:
    split = [bool(axes) for axes in group]
    if split != sorted(split, reverse=True):
        return None
    return [tuple(a for axes in group for a in axes)]


def _reshape_transpose(ct: Any, x: Any, **params: Any) -> list[Any]:
    return [do.reshape(ct, new_sizes=x.aval.shape, out_sharding=cotangent_sharding(x.aval))]


reshape_p = define_op(
    "reshape",
    type_rule=_reshape_type,
    kernel=_reshape_kernel,
    rule=_reshape_rule,
    localize=_reshape_localize,
    partition=later("shardwise.ops.shapes.merge_partition", "reshape_partition"),
    emit=elementwise_ir.MOVE,
    view=True,
    additive=True,
    explicit=_reshape_explicit,
    jvp="linear",
    transpose=_reshape_transpose,
    batch=in_front("reshape", lambda size, new_sizes, **_: {"new_sizes": (size, *new_sizes)}),
    shown=Shown(empty=("dimensions", "sharding")),
    keys=HANDS_ON,
)


def reshape(
    operand: Any, new_sizes: Any, dimensions: Sequence[int] | None = None, *, out_sharding: Any = None
) -> Array:
    """`operand` in another shape with the same number of elements, in row-major order.

    Args:
        new_sizes: the new shape, without -1 (see jnp.reshape).
        dimensions: the order in which to read the operand's dims; None for their own order.
        out_sharding: the result's sharding, a spec over Explicit axes; needed if dims merge or split ambiguously.

    Raises:
        TypeError: sizes are negative or have another product than the operand's, or `dimensions` is not a permutation.
        ValueError: `out_sharding` has unreduced axes.
        ShardingTypeError: the result's explicit sharding is ambiguous.

    >>> lax.reshape(jnp.arange(6), (2, 3))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    x = _operand("reshape", operand)
    sizes = shape_tuple(new_sizes, "reshape new_sizes")
    if dimensions is not None:
        dims = int_tuple(dimensions, "reshape dimensions")
        if sorted(dims) != list(range(x.ndim)):
            raise TypeError(
                f"reshape dimensions must be a permutation of the operand's dims, got {dims} for shape {x.shape}."
            )
        if dims != tuple(range(x.ndim)):
            x = transpose(x, dims)
    sharding = resolve_out_sharding(out_sharding, "reshape", len(sizes))
    if sharding is not None and sharding.spec.unreduced:
        raise ValueError(
            f"out_sharding passed to `reshape` cannot contain unreduced axes. Got {sharding}. Reshape first, and reshard the result."
        )
    if sizes == x.shape and sharding is None and isinstance(x, Array):
        return x
    return bind(reshape_p, x, new_sizes=sizes, out_sharding=sharding)


_operand = operand  # functions here have a parameter of that name


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """The dims of `operand` from `start_dimension` up to `stop_dimension` merged into one: f[a, b, c] with (0, 2) ->
    f[a*b, c].

    Raises:
        ValueError: `stop_dimension` lies before `start_dimension`, or one is out of range.

    >>> lax.collapse(jnp.ones((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    x = _operand("collapse", operand)
    low, high, _ = slice(start_dimension, stop_dimension).indices(x.ndim)
    if high < low:
        raise ValueError(
            f"Invalid dimension range passed to collapse: no dims lie between {start_dimension} and {stop_dimension}; a range runs "
            "upwards."
        )
    return reshape(x, (*x.shape[:low], math.prod(x.shape[low:high]), *x.shape[high:]))
