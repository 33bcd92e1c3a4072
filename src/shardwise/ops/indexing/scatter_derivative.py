"""Derivatives of the scatters: overwritten elements have zero derivative, combined ones that of the combination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.ir import ShapedArray
from shardwise.ir.op import Params
from shardwise.ops.indexing.window_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    scatter_window_dims,
)
from shardwise.ops.rules.derivative import do, full_cotangent, is_linear


def _read(x: Any, indices: Any, updates: ShapedArray, params: Params) -> Any:
    """The elements of `x` in the windows that updates of this type write; zeros for dropped windows."""
    n: ScatterDimensionNumbers = params["dimension_numbers"]
    numbers = GatherDimensionNumbers(
        tuple(n.update_window_dims),
        tuple(n.inserted_window_dims),
        tuple(n.scatter_dims_to_operand_dims),
        tuple(n.operand_batching_dims),
        tuple(n.scatter_indices_batching_dims),
    )
    sizes = [1] * x.ndim
    for d, u in zip(scatter_window_dims(n, x.ndim), n.update_window_dims, strict=True):
        sizes[d] = updates.shape[u]
    clips = params["mode"] is GatherScatterMode.CLIP
    mode = GatherScatterMode.CLIP if clips else GatherScatterMode.FILL_OR_DROP
    kept_params = {k: params[k] for k in ("indices_are_sorted", "unique_indices", "wrap_negative")}
    return do.gather(
        x,
        indices,
        dimension_numbers=numbers,
        slice_sizes=tuple(sizes),
        mode=mode,
        fill_value=None if clips else 0,
        operand_axes=None,
        **kept_params,
    )


def _last_written(x: ShapedArray, indices: Any, updates: ShapedArray, params: Params) -> Any:
    """True for the elements of the updates that no later update overwrites."""
    order = do.reshape(
        do.iota(dtype=np.dtype(np.int32), shape=(updates.size,), dimension=0, out_sharding=None),
        new_sizes=updates.shape,
        out_sharding=None,
    )
    last_numbers = do.scatter(full_cotangent(ShapedArray(x.shape, np.dtype(np.int32)), -1), indices, order, **params)
    return do.eq(_read(last_numbers, indices, updates, params), order)


def put_transpose(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> list[Any]:
    """Overwritten operand elements, and updates that later ones overwrite, have zero cotangent."""
    left, right = None, None
    if is_linear(operand):
        left = do.scatter(ct, indices, full_cotangent(updates.aval), **params)
    if is_linear(updates):
        right = _read(ct, indices, updates.aval, params)
        if not params["unique_indices"]:
            right = do.select_n(_last_written(operand.aval, indices, updates.aval, params), 0, right)
    return [left, None, right]


def sum_transpose(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> list[Any]:
    """An update has the cotangent of the element to which it is added."""
    right = _read(ct, indices, updates.aval, params) if is_linear(updates) else None
    if right is not None and params["combine"] == "sub":
        right = do.neg(right)
    return [ct if is_linear(operand) else None, None, right]


def product_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The product rule; tangents of updates are supported if each element is multiplied once."""
    operand, indices, updates = primals
    t, _, s = tangents
    out = do.scatter_mul(*primals, **params)
    total = None if t is None else do.scatter_mul(t, indices, updates, **params)
    if s is not None:
        if not params["unique_indices"]:
            raise NotImplementedError("scatter_mul is differentiable in its updates only with unique_indices=True.")
        scattered_sum = do.scatter_add(full_cotangent(operand.aval), indices, s, **{**params, "combine": "add"})
        part = do.mul(operand, scattered_sum)
        total = part if total is None else do.add(total, part)
    return out, total


def product_transpose(ct: Any, operand: Any, indices: Any, updates: Any, **params: Any) -> list[Any]:
    """Linear in the operand alone."""
    return [do.scatter_mul(ct, indices, updates, **params), None, None]


def extremum_jvp(name: str) -> Callable[..., Any]:
    """The mean of the tangents of the elements that are the extremum."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        operand, indices, updates = primals
        t, _, s = tangents
        out = getattr(do, name)(*primals, **params)
        weight = lambda mask: do.convert_element_type(mask, new_dtype=out.dtype, weak_type=False)  # noqa: E731
        add_params = {**params, "combine": "add"}
        same = do.or_(do.eq(operand, out), do.ne(operand, operand))  # NaN stays
        stays, enters = weight(same), weight(do.eq(updates, _read(out, indices, updates.aval, params)))
        count = do.scatter_add(stays, indices, enters, **add_params)
        tangent_sum = full_cotangent(operand.aval) if t is None else do.mul(t, stays)
        if s is not None:
            tangent_sum = do.scatter_add(tangent_sum, indices, do.mul(s, enters), **add_params)
        return out, do.div(tangent_sum, do.max(count, full_cotangent(count.aval, 1)))  # no NaN enters

    return jvp
