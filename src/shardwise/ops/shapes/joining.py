"""Joining arrays along a dim (concatenate, stack) and splitting them into rows (unstack)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Box, Equation, ShapedArray, SmallForm, bind, define_op
from shardwise.ir.explicit import type_error
from shardwise.ir.key_uses import HANDS_ON, KeyUses, UsesOf
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.rules import batching
from shardwise.ops.rules.bodies import define_shown
from shardwise.ops.rules.derivative import do, full_cotangent, is_linear, later
from shardwise.ops.rules.dims import dim_index
from shardwise.ops.rules.operands import check_same_dtype, operand, operands
from shardwise.ops.shapes.broadcast import expand_dims, shows_joins, stretch_view
from shardwise.ops.shapes.pieces import split
from shardwise.ops.shapes.transpose import dim_factors, squeeze
from shardwise.runtime.copies import concatenate_blocks
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

__all__ = ["concatenate", "stack", "unstack"]

Boxes = tuple[tuple[Box, ...], ...]  # of each result
_operands = operands  # functions below have a parameter of that name


def _concatenate_type(*xs: ShapedArray, dimension: int) -> ShapedArray:
    shapes = [x.shape for x in xs]
    first = shapes[0]
    shapes_text = ", ".join(map(str, shapes))
    if any(len(s) != len(first) for s in shapes):
        raise TypeError(f"Cannot concatenate arrays with different numbers of dimensions: got shapes {shapes_text}.")
    if not 0 <= dimension < len(first):
        raise TypeError(f"concatenate dimension out of bounds: dimension {dimension} for shapes {shapes_text}.")
    if any(n != m for s in shapes for d, (n, m) in enumerate(zip(s, first, strict=True)) if d != dimension):
        raise TypeError(
            f"concatenate along dim {dimension} takes shapes that agree in all other dims, got {shapes_text}."
        )
    check_same_dtype("concatenate", xs)
    total = sum(s[dimension] for s in shapes)
    return ShapedArray((*first[:dimension], total, *first[dimension + 1 :]), xs[0].dtype, all(x.weak_type for x in xs))


def _concatenate_kernel(env: Env, *xs: Ndarray, dimension: int) -> Ndarray:
    lead = env.lead
    if len(xs) == 1:
        return xs[0]
    loops = {x.shape[:lead] for x in xs}
    if len(loops) > 1:
        common = np.broadcast_shapes(*loops)
        xs = tuple(stretch_view(x, common + x.shape[lead:]) for x in xs)
    return concatenate_blocks(xs, lead + dimension)


def _concatenate_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    dim, out = params["dimension"], out_types[0].shape
    kinds = tuple(Kind.REPLICATE if d == dim else Kind.PASS for d in range(len(out)))
    return Rule(tuple(dim_factors(t.shape) for t in in_types), (dim_factors(out),), out, kinds)


def _concatenate_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    """All operands and the result have the same sharding; operands without a mesh adapt."""
    specs = {t.spec for t in in_types if t.mesh is not None}
    if len(specs) > 1:
        specs_text = ", ".join(str(t.sharding.spec) for t in in_types)
        raise type_error(f"concatenate takes operands of one sharding, got {specs_text}. Reshard some of them.")
    return (specs.pop(),)


def _concatenate_transpose(ct: Any, *xs: Any, dimension: int) -> list[Any]:
    parts = do.split(ct, sizes=tuple(x.aval.shape[dimension] for x in xs), axis=dimension)
    return [part if is_linear(x) else None for x, part in zip(xs, parts, strict=True)]


def _concatenate_boxes(eqn: Equation) -> Boxes:
    dim, place, boxes = eqn.params["dimension"], 0, []
    for i, x in enumerate(eqn.inputs):
        shape = x.aval.shape
        origin = (0,) * len(shape)
        boxes.append(Box(i, origin, (*origin[:dim], place, *origin[dim + 1 :]), shape))
        place += shape[dim]
    return (tuple(boxes),)


def _concatenate_keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    if len(eqn.inputs) == 1:
        return HANDS_ON
    return KeyUses(dict.fromkeys(range(len(eqn.inputs)), True), frozenset({0}))


concatenate_p = define_op(
    "concatenate",
    type_rule=_concatenate_type,
    kernel=_concatenate_kernel,
    rule=_concatenate_rule,
    explicit=_concatenate_explicit,
    boxes=_concatenate_boxes,
    small=SmallForm(later("shardwise.runtime.small", "write_concatenate"), calls=lambda eqn, _: 1 + len(eqn.inputs)),
    additive=True,
    jvp="linear",
    transpose=_concatenate_transpose,
    batch=batching.concatenate,
    keys=_concatenate_keys,
)


def concatenate(operands: Any, dimension: int) -> Array:
    """The operands (a sequence, or the rows of one array) joined along `dimension`: f[a, n], f[b, n] -> f[a+b, n].

    ValueError for no operands; TypeError unless dtypes, ranks and all other dims agree.

    >>> lax.concatenate([jnp.array([1]), jnp.array([2, 3])], 0)
    Array([1, 2, 3], dtype=int32)
    """
    if isinstance(operands, Array):
        operands = unstack(operands)
    if not len(operands):
        raise ValueError("concatenate requires a non-empty sequence of arrays, got none.")
    return bind(concatenate_p, *_operands("concatenate", *operands), dimension=operator.index(dimension))


def stack(operands: Any, axis: int = 0) -> Array:
    """The operands joined along a new dim `axis`: k of f[n] -> f[k, n].

    Raises:
        ValueError: there are no operands. TypeError: shapes or dtypes differ.

    >>> lax.stack([jnp.array([1]), jnp.array([2])])
    Array([[1],
           [2]], dtype=int32)
    """
    xs = _operands("stack", *operands)
    if len(xs) == 0:
        raise ValueError("stack takes at least one array, got none.")
    d = dim_index(axis, xs[0].ndim + 1, "stack")
    if shows_joins():
        return bind(_stack_p, *xs, axis=d)
    return _stack(*xs, axis=d)


def _stack(*xs: Any, axis: int) -> Array:
    return concatenate([expand_dims(x, (axis,)) for x in xs], axis)


def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    """The slices of `x` along `axis`, without that dim: f[k, n] -> k of f[n]. ShardingTypeError if it is explicitly split.

    Raises:
        ValueError: `x` has no dims.

    >>> lax.unstack(jnp.array([1, 2]))
    (Array(1, dtype=int32), Array(2, dtype=int32))
    """
    value = operand("unstack", x)
    if not value.ndim:
        raise ValueError("unstack takes an array of at least one dim, got a scalar.")
    d = dim_index(axis, value.ndim, "unstack")
    if value.aval.spec[d]:
        raise type_error(
            f"unstack operand cannot be sharded on the unstacking axis {d}. Got {value.aval.str_short()}; reshard "
            "that dim to None first."
        )
    return tuple(bind(_unstack_p, value, axis=d) if shows_joins() else _unstack(value, axis=d))


def _unstack(x: Any, axis: int) -> list[Array]:
    return [squeeze(part, (axis,)) for part in split(x, (1,) * x.shape[axis], axis)]


def _transpose_stack(ct: Any, *xs: Any, axis: int) -> list[Any]:
    return [part if is_linear(x) else None for part, x in zip(unstack(ct, axis), xs, strict=True)]


def _transpose_unstack(cts: Any, x: Any, axis: int) -> list[Any]:
    like = x.aval.update(shape=(*x.aval.shape[:axis], *x.aval.shape[axis + 1 :]))
    return [stack([full_cotangent(like) if ct is None else ct for ct in cts], axis)]


_stack_p = define_shown("stack", _stack, jvp="linear", transpose=_transpose_stack)
_unstack_p = define_shown("unstack", _unstack, several=True, jvp="linear", transpose=_transpose_unstack)
