"""`scatter_apply`: an elementwise function applied to the elements that a scatter would write, once per covering window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Axes, DimAxes, Ndarray
from shardwise.ir import Array, Literal, Program, ShapedArray, Shown, bind, define_op, subprograms, trace_program
from shardwise.ir.indexed import IndexedWindows
from shardwise.ir.op import Params, Types
from shardwise.ops.indexing.scatter import scatter_add_p, scatter_indexed, scatter_p
from shardwise.ops.indexing.window_numbers import (
    GatherScatterMode,
    ScatterDimensionNumbers,
    check_dimension_numbers,
    scatter_window_dims,
)
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Rule

__all__ = ["scatter_apply"]


# In `update_shape`, the size of a window dim that covers the whole operand dim, with any sharding.
WHOLE = -1


def _updates_type(operand: ShapedArray, indices_shape: tuple[int, ...], params: Params) -> ShapedArray:
    """The type that updates would have: the given window dims and the batch dims of the indices."""
    numbers: ScatterDimensionNumbers = params["dimension_numbers"]
    shape = list(params["update_shape"])
    batch = [u for u in range(len(shape)) if u not in numbers.update_window_dims]
    for u, n in zip(batch, indices_shape[:-1], strict=True):
        shape[u] = n
    for d, u in zip(scatter_window_dims(numbers, operand.ndim), numbers.update_window_dims, strict=True):
        if shape[u] == WHOLE:
            shape[u] = operand.shape[d]
    return ShapedArray(shape, operand.dtype)


def _scatter_params(params: Params) -> dict[str, Any]:
    return {k: v for k, v in params.items() if k not in ("program", "update_shape")}


def _apply_type(operand: ShapedArray, indices: ShapedArray, *captured: ShapedArray, **params: Any) -> ShapedArray:
    del captured
    updates = _updates_type(operand, indices.shape, params)
    return scatter_p.type_rule(operand, indices, updates, **_scatter_params(params))


def _apply_kernel(
    env: Env, operand: Ndarray, indices: Ndarray, *captured: Ndarray, program: Program, **params: Any
) -> Ndarray:
    lead, rank = env.lead, operand.ndim - env.lead
    aval = ShapedArray(operand.shape[lead:], operand.dtype)
    shape = _updates_type(aval, indices.shape[lead:], params).shape
    ones = np.broadcast_to(np.int32(1), (1,) * lead + shape)
    none = np.zeros(operand.shape, np.int32)
    options = {**_scatter_params(params), "combine": "add", "unique_indices": False}
    count = scatter_add_p.block_kernel(env, none, indices, ones, **options)
    elementwise = Env(extra=lead + rank)
    scalars = [c.reshape(c.shape + (1,) * rank) for c in captured]
    out = operand
    with np.errstate(all="ignore"):  # the function also runs on elements whose results are discarded
        for k in range(int(count.max()) if count.size else 0):
            (new_values,) = _evaluate(elementwise, program, [*scalars, out])
            out = np.where(count > k, new_values.astype(operand.dtype, copy=False), out)
    loops = np.broadcast_shapes(out.shape[:lead], indices.shape[:lead])
    return out if out.shape[:lead] == loops else np.broadcast_to(out, loops + out.shape[lead:])


def _evaluate(env: Env, program: Program, blocks: Sequence[Ndarray]) -> list[Ndarray]:
    """The results of a program on scalars, with every dim of the blocks a loop dim."""
    values: dict[Any, Ndarray] = dict(zip(program.inputs, blocks, strict=True))

    def read(atom: Any) -> Ndarray:
        return atom.value.reshape((1,) * env.lead) if isinstance(atom, Literal) else values[atom]

    for eqn in program.equations:
        op, arguments = eqn.op, [read(a) for a in eqn.inputs]
        if op.kernel is not None:
            out = op.kernel(env, *arguments, **eqn.params)
        elif op.ufunc is not None:
            out = op.ufunc(*arguments, **eqn.params)
        else:
            inner = [p for _, p in subprograms(eqn.params)]
            if len(inner) != 1:
                raise NotImplementedError(
                    f"scatter_apply with a function that uses {op.name}; use x.at[...].get, then .set."
                )
            out = _evaluate(env, inner[0], arguments)
        values.update(zip(eqn.outputs, out if isinstance(out, (tuple, list)) else [out], strict=True))
    return [read(a) for a in program.outputs]


def _apply_rule(ins: Types, outs: Types, params: Params) -> Rule:
    updates = _updates_type(ins[0], ins[1].shape, params)
    rule = scatter_p.sharding_rule((ins[0], ins[1], updates), outs, {**params, "combine": ""})
    return Rule((*rule.inputs[:2], *((),) * (len(ins) - 2)), rule.outputs, rule.sizes, rule.kinds, rule.blocked)


def _apply_place(params: Params, in_dims: Sequence[DimAxes], out_dims: Sequence[DimAxes]) -> Params:
    numbers: ScatterDimensionNumbers = params["dimension_numbers"]
    updates: list[Axes] = [()] * len(params["update_shape"])
    for d, u in zip(scatter_window_dims(numbers, len(in_dims[0])), numbers.update_window_dims, strict=True):
        if params["update_shape"][u] == WHOLE:
            updates[u] = in_dims[0][d]
    assert scatter_p.place is not None
    return scatter_p.place(params, (in_dims[0], in_dims[1], tuple(updates)), out_dims)


def _apply_indexed(params: Params, in_types: Types) -> IndexedWindows:
    updates = _updates_type(in_types[0], in_types[1].shape, params)
    return scatter_indexed(params, (*in_types[:2], updates))


scatter_apply_p = define_op(
    "scatter_apply",
    makes_nan=True,
    shown=Shown("scatter-apply"),
    type_rule=_apply_type,
    kernel=_apply_kernel,
    rule=_apply_rule,
    place=_apply_place,
    indexed=_apply_indexed,
)


def apply_at(
    operand: Any,
    indices: Any,
    func: Callable[[Array], Array],
    numbers: ScatterDimensionNumbers,
    update_shape: tuple[int, ...],
    *,
    mode: str | GatherScatterMode | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    wrap_negative: bool = False,
) -> Array:
    """`operand` with `func` applied to the elements in windows, once per window. TypeError if `func` changes the dtype."""
    x = as_array(operand)
    scalar = ShapedArray((), x.dtype, x.weak_type)
    program, captured_values = trace_program(lambda v: [as_value(func(v))], [scalar], getattr(func, "__name__", "func"))
    (out,) = program.out_types
    if out.shape or out.dtype != x.dtype:
        raise TypeError(
            f"scatter_apply: the function must map scalars of {x.dtype.name} to scalars of {x.dtype.name}, but gives "
            f"{out.str_short()}. Cast its result, or use x.at[...].get and .set."
        )
    if any(c.ndim for c in captured_values):
        raise TypeError("scatter_apply: the function may capture scalars only, as it is applied element by element.")
    shape = list(update_shape)
    for d, u in zip(scatter_window_dims(numbers, x.ndim), numbers.update_window_dims, strict=True):
        shape[u] = WHOLE if shape[u] == x.shape[d] else shape[u]
    return bind(
        scatter_apply_p,
        x,
        as_array(indices),
        *captured_values,
        program=program,
        dimension_numbers=numbers,
        update_shape=tuple(shape),
        mode=GatherScatterMode.from_any(mode),
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        wrap_negative=bool(wrap_negative),
        operand_axes=None,
        update_axes=(),
        combine="",
    )


def scatter_apply(
    operand: Array,
    scatter_indices: Array,
    func: Callable[[Array], Array],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """`operand` with elementwise `func` applied to the elements in the windows at `scatter_indices`.

    `func` is applied k times to an element in k windows. `update_shape` is the shape that updates would have.

    Args:
        dimension_numbers: as for `scatter`.
        indices_are_sorted: promises that indices ascend; without effect on the result.
        unique_indices: promises that no element is in two windows, which is faster.
        mode: as for `scatter`.

    >>> rows = lax.ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> lax.scatter_apply(jnp.arange(4), jnp.array([[1], [3]]), lambda x: x * 10, rows, update_shape=(2,))
    Array([ 0, 10,  2, 30], dtype=int32)
    """
    check_dimension_numbers("scatter_apply", dimension_numbers, ScatterDimensionNumbers)
    x, indices = as_array(operand), as_array(scatter_indices)
    updates = ShapedArray(update_shape, x.dtype)
    scatter_p.type_rule(
        x.aval, indices.aval, updates, dimension_numbers=dimension_numbers, operand_axes=None, combine="apply"
    )
    return apply_at(
        x,
        indices,
        func,
        dimension_numbers,
        tuple(update_shape),
        wrap_negative=False,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=mode,
    )
