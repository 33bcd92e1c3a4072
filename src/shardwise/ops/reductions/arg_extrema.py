"""Positions of extrema along a dim: `argmax`, `argmin`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.shapes import Ints, Ndarray
from shardwise.ir import Array, ShapedArray, bind, define_op
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.reductions.extremum_partition import along_split_dims
from shardwise.ops.reductions.positions import extremum_positions
from shardwise.ops.reductions.reduce import reduce_max_p, reduce_min_p, reduce_rule
from shardwise.ops.rules.batching import shift_dims_rule
from shardwise.ops.rules.dims import int_tuple
from shardwise.ops.rules.operands import check_kind, dtype_kind, operand, requested_dtype
from shardwise.runtime import folds
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

__all__ = ["argmax", "argmin"]

_operand = operand  # functions below have a parameter of that name


def _arg_type(name: str) -> Callable[..., ShapedArray]:
    def rule(x: ShapedArray, *, axes: Ints, index_dtype: Any) -> ShapedArray:
        (axis,) = axes
        check_kind(name, x, "biuf")
        if not 0 <= axis < x.ndim:
            raise ValueError(f"{name}: Invalid axis {axis} for operand shape {x.shape}.")
        if dtype_kind(index_dtype) not in "iu":
            raise TypeError(f"{name}: index_dtype must be an integer type, but got {index_dtype.name}.")
        if not x.shape[axis]:
            raise ValueError(f"{name} needs at least one element to choose from: operand.shape={x.shape} axis={axis}.")
        return ShapedArray((*x.shape[:axis], *x.shape[axis + 1 :]), index_dtype)

    return rule


def _arg_kernel(largest: bool) -> Callable[..., Ndarray]:
    def kernel(env: Env, x: Ndarray, *, axes: Ints, index_dtype: Any) -> Ndarray:
        return np.asarray(extremum_positions(x, env.lead + axes[0], largest)).astype(index_dtype)

    return kernel


def _arg_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """The rule of a reduction whose reduced dim must be whole: positions count along all of it."""
    rule = reduce_rule(in_types, out_types, params)
    kinds = tuple(Kind.REPLICATE if k is Kind.REDUCE else k for k in rule.kinds)
    return Rule(rule.inputs, rule.outputs, rule.sizes, kinds)


def _arg_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    (axis,) = params["axes"]
    spec = in_types[0].spec
    return ((*spec[:axis], *spec[axis + 1 :]),)


argmax_p = define_op(
    "argmax",
    type_rule=_arg_type("argmax"),
    kernel=_arg_kernel(largest=True),
    rule=_arg_rule,
    fold=folds.ARGMAX,
    partition=along_split_dims(reduce_max_p, "max"),
    explicit=_arg_explicit,
    batch=shift_dims_rule("argmax", "axes"),
)
argmin_p = define_op(
    "argmin",
    type_rule=_arg_type("argmin"),
    kernel=_arg_kernel(largest=False),
    rule=_arg_rule,
    fold=folds.ARGMIN,
    partition=along_split_dims(reduce_min_p, "min"),
    explicit=_arg_explicit,
    batch=shift_dims_rule("argmin", "axes"),
)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Array:
    """Position in `operand` along `axis` of the first maximum, or of the first NaN, as integers `index_dtype`: f[a,
    b] -> i[a].

    ValueError for a missing or empty dim, TypeError for complex operands or other index dtypes.

    >>> lax.argmax(jnp.array([1, 9, 3]), 0, jnp.int32)
    Array(1, dtype=int32)
    """
    dtype = requested_dtype(index_dtype, "argmax")
    return bind(argmax_p, _operand("argmax", operand), axes=int_tuple((axis,), "argmax axis"), index_dtype=dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Array:
    """Position in `operand` along `axis` of the first minimum, or of the first NaN, as integers `index_dtype`: f[a,
    b] -> i[a].

    ValueError for a missing or empty dim, TypeError for complex operands or other index dtypes.

    >>> lax.argmin(jnp.array([1, 9, 3]), 0, jnp.int32)
    Array(0, dtype=int32)
    """
    dtype = requested_dtype(index_dtype, "argmin")
    return bind(argmin_p, _operand("argmin", operand), axes=int_tuple((axis,), "argmin axis"), index_dtype=dtype)
