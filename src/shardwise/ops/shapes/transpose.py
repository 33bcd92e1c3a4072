"""Views that permute, remove or reverse dims: `transpose`, `squeeze`, `rev`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, ShapedArray, bind, define_op
from shardwise.ir.key_uses import HANDS_ON
from shardwise.ir.op import Params, Types
from shardwise.ops.elementwise import elementwise_ir
from shardwise.ops.rules.batching import in_front, shift_dims_rule, up
from shardwise.ops.rules.derivative import do
from shardwise.ops.rules.dims import dim_indices, int_tuple
from shardwise.ops.rules.operands import operand
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule, TensorFactors, own_factors

__all__ = ["squeeze", "transpose"]

_operand = operand  # functions below have a parameter of that name


def dim_factors(shape: tuple[int, ...]) -> TensorFactors:
    """Factor d for dim d; none for dims of size 1."""
    return tuple((d,) if n != 1 else () for d, n in enumerate(shape))


def _transpose_type(x: ShapedArray, *, permutation: tuple[int, ...]) -> ShapedArray:
    if sorted(permutation) != list(range(x.ndim)):
        raise TypeError(
            f"transpose permutation isn't a permutation of the operand's dims: got {permutation} for shape {x.shape}."
        )
    return ShapedArray(tuple(x.shape[d] for d in permutation), x.dtype, x.weak_type)


def _transpose_kernel(env: Env, x: Ndarray, *, permutation: tuple[int, ...]) -> Ndarray:
    lead = env.lead
    return x.transpose(*range(lead), *[lead + d for d in permutation])


def _transpose_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    shape = in_types[0].shape
    factors = own_factors(shape)
    return Rule((factors,), (tuple(factors[d] for d in params["permutation"]),), shape, (Kind.PASS,) * len(shape))


def _transpose_transpose(ct: Any, x: Any, *, permutation: tuple[int, ...]) -> list[Any]:
    back = tuple(permutation.index(d) for d in range(len(permutation)))
    return [do.transpose(ct, permutation=back)]


transpose_p = define_op(
    "transpose",
    type_rule=_transpose_type,
    kernel=_transpose_kernel,
    rule=_transpose_rule,
    jvp="linear",
    transpose=_transpose_transpose,
    view=True,
    additive=True,
    batch=in_front("transpose", lambda size, permutation: {"permutation": (0, *up(permutation))}),
    keys=HANDS_ON,
)


def transpose(operand: Any, permutation: Sequence[int]) -> Array:
    """`operand` with its dims permuted: dim i of the result is dim ``permutation[i]``. f[a, b] with (1, 0) -> f[b, a].

    TypeError unless `permutation` has each dim of the operand exactly once.

    >>> lax.transpose(jnp.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    x = _operand("transpose", operand)
    order = int_tuple(permutation, "transpose permutation")
    if order == tuple(range(x.ndim)) and isinstance(x, Array):
        return x
    return bind(transpose_p, x, permutation=order)


def _squeeze_type(x: ShapedArray, *, dimensions: tuple[int, ...]) -> ShapedArray:
    if any(x.shape[d] != 1 for d in dimensions):
        raise ValueError(f"squeeze removes dims of size 1, got shape={x.shape} and dimensions={dimensions}.")
    return ShapedArray(tuple(n for d, n in enumerate(x.shape) if d not in dimensions), x.dtype, x.weak_type)


def _squeeze_kernel(env: Env, x: Ndarray, *, dimensions: tuple[int, ...]) -> Ndarray:
    return x[_without(env, dimensions)]


def _without(env: Env, dimensions: tuple[int, ...]) -> tuple[Any, ...]:
    """The index by which NumPy squeezes."""
    dims = [0 if d in dimensions else slice(None) for d in range(max(dimensions, default=-1) + 1)]
    return (*[slice(None)] * env.lead, *dims, ...)


def _squeeze_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    shape = in_types[0].shape
    factors = tuple(() if d in params["dimensions"] else f for d, f in enumerate(own_factors(shape)))
    kept_factors = tuple(f for d, f in enumerate(factors) if d not in params["dimensions"])
    return Rule((factors,), (kept_factors,), shape, (Kind.PASS,) * len(shape))


def _squeeze_transpose(ct: Any, x: Any, *, dimensions: tuple[int, ...]) -> list[Any]:
    kept_dims = tuple(d for d in range(x.aval.ndim) if d not in dimensions)
    return [do.broadcast_in_dim(ct, shape=x.aval.shape, broadcast_dimensions=kept_dims, out_sharding=None)]


squeeze_p = define_op(
    "squeeze",
    type_rule=_squeeze_type,
    kernel=_squeeze_kernel,
    compile=lambda env, in_types, out_types, params: itemgetter(_without(env, **params)),
    rule=_squeeze_rule,
    jvp="linear",
    emit=elementwise_ir.MOVE,
    view=True,
    additive=True,
    transpose=_squeeze_transpose,
    batch=shift_dims_rule("squeeze", "dimensions"),
    keys=HANDS_ON,
)


def squeeze(array: Any, dimensions: Sequence[int]) -> Array:
    """`array` without the dims `dimensions`, of size 1. ValueError if one has another size, is out of range, or is
    repeated.

    >>> lax.squeeze(jnp.ones((1, 3)), (0,)).shape
    (3,)
    """
    x = operand("squeeze", array)
    dims = tuple(sorted(dim_indices(dimensions, x.ndim, "squeeze")))
    if not dims and isinstance(x, Array):
        return x
    return bind(squeeze_p, x, dimensions=dims)
