"""How values are typed over mesh axes: casts between varying, the same everywhere, partial sums and `reduced`; free at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.ir import ShapedArray, define_op, literal
from shardwise.ir.axis_scope import is_checked
from shardwise.ir.op import Params, Types
from shardwise.ops import across
from shardwise.ops import collective_batching as batching
from shardwise.ops.derivative import do
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

Ndarray = np.ndarray[Any, Any]


def same_dims(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Each dim of each operand passes to the result of the same position."""
    shapes = [t.shape for t in in_types]
    inputs, sizes = [], []
    for shape in shapes:
        inputs.append(tuple((len(sizes) + i,) if n != 1 else () for i, n in enumerate(shape)))
        sizes.extend(shape)
    return Rule(tuple(inputs), tuple(inputs), tuple(sizes), (Kind.PASS,) * len(sizes))


def _pvary_type(x: ShapedArray, *, axes: tuple[str, ...]) -> ShapedArray:
    return x.update(vma=x.vma | set(axes), reduced=x.reduced - set(axes))


def _pvary_transpose(ct: Any, x: Any, *, axes: tuple[str, ...]) -> list[Any]:
    """The sum over the axes; left as partial sums where the value is `reduced`."""
    new = tuple(a for a in axes if a not in x.aval.vma and is_checked(a))
    parts = tuple(a for a in new if a in x.aval.reduced)
    summed = tuple(a for a in new if a not in parts)
    ct = do.all_reduce(ct, axes=summed, kind="sum", groups=None) if summed else ct
    return [do.pcast(ct, axes=parts, to="unreduced") if parts else ct]


pvary_op = define_op("pvary", type_rule=_pvary_type, kernel=lambda env, x, axes: x, rule=same_dims, typed=True,
                     collective=True, view=True, jvp="linear", transpose=_pvary_transpose, batch=batching.pointwise("pvary"))  # fmt: skip


def _pcast_type(x: ShapedArray, *, axes: tuple[str, ...], to: str) -> ShapedArray:
    if to == "unreduced":
        return x.update(vma=x.vma - set(axes), unreduced=x.unreduced | set(axes))
    return x.update(reduced=x.reduced | set(axes))


def _pcast_transpose(ct: Any, x: Any, *, axes: tuple[str, ...], to: str) -> list[Any]:
    """Cotangents of partial sums are `reduced`, and those of `reduced` values are partial sums."""
    if to == "unreduced":
        return [do.pvary(ct, axes=axes)]
    parts = tuple(a for a in axes if a in ct.aval.unreduced or a in ct.aval.vma)  # along others it is the sum already
    return [do.all_reduce(ct, axes=parts, kind="sum", groups=None) if parts else ct]


pcast_op = define_op("pcast", type_rule=_pcast_type, kernel=lambda env, x, axes, to: x, rule=same_dims, typed=True,
                     collective=True, jvp="linear", transpose=_pcast_transpose, batch=batching.pointwise("pcast"))  # fmt: skip


def on_first(x: Any, axes: tuple[str, ...]) -> Any:
    """`x` on the first device of `axes`, zeros on the others: parts whose sum is `x`."""
    first = do.eq(do.axis_index(axes=axes), literal(0, np.dtype(np.int32)))
    spread = lambda v: do.broadcast_in_dim(v, shape=x.shape, broadcast_dimensions=(), out_sharding=None)  # noqa: E731
    zeros = spread(literal(np.zeros((), x.dtype)[()], x.dtype, weak_type=x.aval.weak_type))
    return do.select_n(spread(first) if x.ndim else first, zeros, do.pvary(x, axes=axes))


def _first_type(x: ShapedArray, *, axes: tuple[str, ...]) -> ShapedArray:
    return x.update(vma=x.vma - set(axes))


def _first_kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...]) -> Ndarray:
    take = [slice(None)] * x.ndim
    for a in axes:
        take[env.dim(a)] = slice(0, 1)
    return x[tuple(take)]


# The value on the first device of `axes`: what unchecked out_specs promise to be the same everywhere.
first_replica = define_op("first_replica", type_rule=_first_type, kernel=_first_kernel, rule=same_dims, typed=True,
                          collective=True, view=True, jvp="linear", batch=batching.pointwise("first_replica"),
                          transpose=lambda ct, x, axes: [on_first(ct, axes)], across=across.first_replica(_first_kernel))  # fmt: skip
