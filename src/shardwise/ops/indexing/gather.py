"""`gather`: windows of an array at computed positions, with XLA's dimension numbers.

Comes in: an operand, an integer array of window starts (its last dim has one entry per indexed operand dim), and the dimension
numbers. Goes out: one window per start; the mode decides windows out of bounds.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Axes, DimAxes
from shardwise.ir import Array, ElementRead, Equation, ShapedArray, Shown, SmallForm, bind, define_op
from shardwise.ir.explicit import agreed_split, type_error
from shardwise.ir.indexed import IndexedWindows
from shardwise.ir.key_uses import HANDS_ON
from shardwise.ir.op import Params, Steps, Types
from shardwise.ir.types import Spec
from shardwise.ops.devices.all_reduce import all_reduce, sum_across
from shardwise.ops.elementwise.casts import refuse_complex_scalar
from shardwise.ops.indexing.gather_kernel import fill_number, gather_columns, gather_compile, gather_kernel
from shardwise.ops.indexing.permutation import gather_partition
from shardwise.ops.indexing.shown_starts import counting_windows
from shardwise.ops.indexing.window_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    check_batching,
    check_dimension_numbers,
    check_dims,
    check_indices,
    gather_window_dims,
)
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import do, full_cotangent, later, moved_to_front
from shardwise.ops.shapes.fill import full
from shardwise.sharding.rule import Kind, Rule

__all__ = ["GatherDimensionNumbers", "GatherScatterMode", "gather"]


# -- types -------------------------------------------------------------------------------------


def _gather_type(
    operand: ShapedArray,
    indices: ShapedArray,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: tuple[int, ...],
    operand_axes: DimAxes | None,
    fill_value: Any,
    **params: Any,
) -> ShapedArray:
    del params
    refuse_complex_scalar("gather", fill_value, operand.dtype)
    n = dimension_numbers
    check_indices("gather", indices)
    rank = len(n.offset_dims) + indices.ndim - 1
    check_dims("gather", "offset_dims", n.offset_dims, rank)
    check_batching(
        "gather",
        operand,
        indices,
        n.operand_batching_dims,
        n.start_indices_batching_dims,
        n.collapsed_slice_dims,
        "collapsed_slice_dims",
        n.start_index_map,
        "start_index_map",
    )
    if len(slice_sizes) != operand.ndim:
        raise TypeError(f"gather: slice_sizes {slice_sizes} needs one size per dim of the operand {operand.shape}.")
    window = gather_window_dims(n, operand.ndim)
    if len(window) != len(n.offset_dims):
        raise TypeError(
            f"gather: a window of the operand {operand.shape} has dims {window}, but offset_dims {n.offset_dims} "
            f"places {len(n.offset_dims)}; leave the others to collapsed_slice_dims or operand_batching_dims."
        )
    for d, (size, extent) in enumerate(zip(slice_sizes, operand.shape, strict=True)):
        if not 0 <= size <= extent and operand_axes is None:
            raise TypeError(
                f"gather: slice_sizes {slice_sizes} must lie within the operand {operand.shape}; see dim {d}."
            )
    for d in (*n.collapsed_slice_dims, *n.operand_batching_dims):
        if slice_sizes[d] > 1:
            raise TypeError(
                f"gather: dim {d} is collapsed or a batching dim, so its slice size must be 1, not {slice_sizes[d]}."
            )
    batch = iter(indices.shape[:-1])
    sizes = iter(slice_sizes[d] for d in window)
    shape = tuple(next(sizes) if d in n.offset_dims else next(batch) for d in range(rank))
    return ShapedArray(shape, operand.dtype, operand.weak_type)


# -- sharding -------------------------------------------------------------------------------------


def _gather_rule(ins: Types, outs: Types, params: Params) -> Rule:
    numbers: GatherDimensionNumbers = params["dimension_numbers"]
    operand, indices, out = ins[0].shape, ins[1].shape, outs[0].shape
    slice_sizes: tuple[int, ...] = params["slice_sizes"]
    rank = len(operand)
    sizes = [*operand, *indices]  # one factor per operand dim, then one per dim of the indices
    kinds = [Kind.PASS] * rank + [Kind.PASS] * (len(indices) - 1) + [Kind.REPLICATE]
    blocked_dims: set[int] = set()
    index_factor = {i: rank + i for i in range(len(indices))}
    for d, i in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        index_factor[i] = d
    window = gather_window_dims(numbers, rank)
    for d, size in enumerate(slice_sizes):
        if d in numbers.operand_batching_dims:
            continue
        is_indexed = d in numbers.start_index_map
        if (
            is_indexed and size == 1
        ):  # it may stay split: each device reads from its own part, and a sum completes the result
            kinds[d] = Kind.REDUCE if operand[d] != 1 else Kind.PASS
        elif is_indexed or size != operand[d]:
            kinds[d] = Kind.REPLICATE
            if size != operand[d]:
                blocked_dims.add(d)
    offsets = iter(window)
    batch = iter(range(len(indices) - 1))
    out_dims = [next(offsets) if d in numbers.offset_dims else index_factor[next(batch)] for d in range(len(out))]
    return Rule(
        (
            tuple((d,) if n != 1 else () for d, n in enumerate(operand)),
            tuple((index_factor[i],) if n != 1 else () for i, n in enumerate(indices)),
        ),
        (tuple((f,) if n != 1 else () for f, n in zip(out_dims, out, strict=True)),),
        tuple(sizes),
        tuple(kinds),
        frozenset(blocked_dims),
    )


def _localize(params: Params, ins: Types, outs: Types) -> Params:
    numbers: GatherDimensionNumbers = params["dimension_numbers"]
    sizes = list(params["slice_sizes"])
    for d, o in zip(gather_window_dims(numbers, ins[0].ndim), numbers.offset_dims, strict=True):
        sizes[d] = outs[0].shape[o]
    return {**params, "slice_sizes": tuple(sizes)}


def _place(params: Params, in_dims: Sequence[DimAxes], out_dims: Sequence[DimAxes]) -> Params:
    """Tell the kernel which mesh axes split the indexed operand dims."""
    numbers: GatherDimensionNumbers = params["dimension_numbers"]
    if not in_dims[0]:
        return params
    axes: list[Axes] = [() for _ in in_dims[0]]
    for d in numbers.start_index_map:
        axes[d] = in_dims[0][d]
    del out_dims
    return {**params, "operand_axes": tuple(axes) if any(axes) else None}


def _gather_specs(ins: Types, outs: Types, params: Mapping[str, Any], rule: Rule) -> tuple[Spec, ...]:
    del rule
    numbers: GatherDimensionNumbers = params["dimension_numbers"]
    operand, indices = ins[0], ins[1]
    window = gather_window_dims(numbers, operand.ndim)
    batching_dims = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    whole = {
        d for d, n in enumerate(params["slice_sizes"]) if n == operand.shape[d]
    }  # dims of size 1 among them, if collapsed
    clear = all(not axes or d in whole or d in numbers.operand_batching_dims for d, axes in enumerate(operand.spec))
    clear &= all(not axes or i in batching_dims for i, axes in enumerate(indices.spec))
    together = {i: agreed_split(operand.spec[d], indices.spec[i]) for i, d in batching_dims.items()}
    clear &= None not in together.values()
    if not clear:
        raise type_error(
            f"gather from {operand.str_short()} at {indices.str_short()}: the result's sharding is ambiguous. "
            "Say it with .at[...].get(out_sharding=), or reshard the indexed dims and the indices to None."
        )
    offsets = iter(operand.spec[d] for d in window)
    batch = iter(range(indices.ndim - 1))
    spec: list[Axes] = []
    for d in range(outs[0].ndim):
        if d in numbers.offset_dims:
            spec.append(next(offsets))
        else:
            i = next(batch)
            spec.append(together.get(i) or ())
    return (tuple(spec),)


# -- derivative and batching -------------------------------------------------------------------------------------


def _gather_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The windows of the tangent; zero where the result has the fill value."""
    operand, indices = primals
    fill = 0 if params["mode"] is GatherScatterMode.FILL_OR_DROP else None
    return do.gather(operand, indices, **params), do.gather(tangents[0], indices, **{**params, "fill_value": fill})


def _gather_transpose(
    ct: Any,
    operand: Any,
    indices: Any,
    *,
    dimension_numbers: GatherDimensionNumbers,
    mode: GatherScatterMode,
    **params: Any,
) -> list[Any]:
    """Add each window's cotangent at the position from which the window was read."""
    n = dimension_numbers
    numbers = ScatterDimensionNumbers(
        n.offset_dims, n.collapsed_slice_dims, n.start_index_map, n.operand_batching_dims, n.start_indices_batching_dims
    )
    mode = GatherScatterMode.CLIP if mode is GatherScatterMode.PROMISE_IN_BOUNDS else mode
    kept_params = {k: params[k] for k in ("indices_are_sorted", "unique_indices", "wrap_negative")}
    zeros = full_cotangent(operand.aval.update(weak_type=False))
    return [
        do.scatter_add(
            zeros,
            indices,
            ct,
            dimension_numbers=numbers,
            mode=mode,
            operand_axes=None,
            update_axes=(),
            combine="add",
            **kept_params,
        ),
        None,
    ]


def _gather_batch(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Any:
    """One gather. The mapped dim becomes a window dim if only the operand has it, a batch dim if only the indices have it, and a
    pair of batching dims if both have it."""
    (operand, indices), (left, right) = values, dims
    n: GatherDimensionNumbers = params["dimension_numbers"]
    up = lambda ds: tuple(d + 1 for d in ds)  # noqa: E731
    offset, collapsed_dims, mapped_dims = up(n.offset_dims), n.collapsed_slice_dims, n.start_index_map
    ours, theirs, sizes = n.operand_batching_dims, n.start_indices_batching_dims, params["slice_sizes"]
    if left is not None:
        operand = moved_to_front(operand, left)
        collapsed_dims, mapped_dims, ours = up(collapsed_dims), up(mapped_dims), up(ours)
        sizes = (min(size, 1) if right is not None else size, *sizes)
    if right is not None:
        indices = moved_to_front(indices, right)
        theirs = up(theirs)
    if left is not None and right is not None:
        ours, theirs = (0, *ours), (0, *theirs)
    elif left is not None:
        offset = (0, *offset)
    numbers = GatherDimensionNumbers(offset, collapsed_dims, mapped_dims, ours, theirs)
    promises = {} if right is None else {"indices_are_sorted": False, "unique_indices": False}
    return [
        do.gather(operand, indices, **{**params, **promises, "dimension_numbers": numbers, "slice_sizes": sizes})
    ], [0]


def _indexing_of(params: Params, in_types: Types) -> IndexedWindows:
    dims, sizes = params["dimension_numbers"].start_index_map, params["slice_sizes"]
    drops = params["mode"] is GatherScatterMode.FILL_OR_DROP
    return IndexedWindows(1, True, dims, [sizes[d] for d in dims], [params["wrap_negative"]] * len(dims), drops)


def _gather_algorithm(ins: Types, outs: Types, params: Params) -> Steps:
    """Elements of rows that have positions of their own: along the last dim, or "inner" along others."""
    n: GatherDimensionNumbers = params["dimension_numbers"]
    if not n.operand_batching_dims or len(n.start_index_map) != 1 or n.offset_dims:
        return Steps("", 0.0)
    last = n.start_index_map[0] == ins[0].ndim - 1
    return Steps("take_along" if last else "take_along/inner", float(outs[0].size), size=ins[0].nbytes)


def _element_read(eqn: Equation) -> ElementRead | None:
    """None where other devices have elements."""
    params, table, rank = eqn.params, eqn.inputs[0].aval, eqn.outputs[0].aval.ndim
    n: GatherDimensionNumbers = params["dimension_numbers"]
    if params["operand_axes"] or params.get("sum_axes") or not n.start_index_map or not table.size:
        return None
    along: list[int | None] = [None] * table.ndim
    for d, o in zip(gather_window_dims(n, table.ndim), n.offset_dims, strict=True):
        along[d] = o
    batch = [o for o in range(rank) if o not in n.offset_dims]
    for d, i in zip(n.operand_batching_dims, n.start_indices_batching_dims, strict=True):
        along[d] = batch[i]
    fills = params["mode"] is GatherScatterMode.FILL_OR_DROP
    fill = fill_number(params["fill_value"], table.dtype).item() if fills else None
    spans = tuple(params["slice_sizes"][d] for d in n.start_index_map)
    dims = tuple(along), n.start_index_map, spans
    return ElementRead(*dims, params["wrap_negative"], fill, n.operand_batching_dims)


_small_gather = later("shardwise.runtime.small", "gather")


def _write_small(body: Any, eqn: Equation, values: Any, wanted: Any) -> Any:
    fill = fill_number(eqn.params["fill_value"], eqn.outputs[0].aval.dtype)
    return _small_gather(body, eqn, values, wanted, fill, eqn.params["mode"] is not GatherScatterMode.FILL_OR_DROP)


gather_p = define_op(
    "gather",
    type_rule=_gather_type,
    kernel=gather_kernel,
    compile=gather_compile,
    columns=gather_columns,
    element_read=_element_read,
    across=sum_across(gather_kernel, gather_compile),
    absorbs=all_reduce,
    rule=_gather_rule,
    localize=_localize,
    place=_place,
    explicit=_gather_specs,
    partition=gather_partition,
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
    keys=HANDS_ON,
    indexed=_indexing_of,
    algorithm=_gather_algorithm,
    shown=Shown(
        empty=("fill_value",),
        absent={"wrap_negative": False, "operand_axes": None},
        parts=counting_windows(lambda: gather_p, "start_index_map"),
    ),
    extracts="copies",
    small=SmallForm(
        _write_small,
        later("shardwise.runtime.small", "windows_fit"),
        sums=later("shardwise.runtime.small", "axes_joined"),
        calls=16,
    ),
)


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Array:
    """Windows of `operand`, of `slice_sizes` at `start_indices`; `dimension_numbers`, a `GatherDimensionNumbers`,
    describes the correspondence of dims.

    `mode` decides windows out of bounds: 'fill', 'clip', or the default 'promise_in_bounds', which clips too. With
    'fill' they hold `fill_value` (default: NaN, the least signed or greatest unsigned integer, True). Raises
    TypeError if shapes and numbers do not fit.

    Args:
        unique_indices: promises that no index occurs twice, which is faster.
        indices_are_sorted: promises that indices ascend; without effect on the result.

    >>> rows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(jnp.arange(6).reshape(3, 2), jnp.array([[2], [0]]), rows, slice_sizes=(1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    options: dict[str, Any] = dict(
        unique_indices=unique_indices, indices_are_sorted=indices_are_sorted, mode=mode, fill_value=fill_value
    )
    check_dimension_numbers("gather", dimension_numbers, GatherDimensionNumbers)
    operand, start_indices = as_array(operand), as_array(start_indices)
    within = [min(size, extent) for size, extent in zip(slice_sizes, operand.shape, strict=False)]
    if 0 not in start_indices.shape[:-1] or within == list(slice_sizes[: operand.ndim]):
        return gather_windows(operand, start_indices, dimension_numbers, slice_sizes, **options)
    # Without indices a window may be larger than the operand: nothing is read.
    windows = gather_windows(operand, start_indices, dimension_numbers, within, **options)
    shape = list(windows.shape)
    for d, window in zip(
        dimension_numbers.offset_dims, gather_window_dims(dimension_numbers, operand.ndim), strict=True
    ):
        shape[d] = slice_sizes[window]
    return full(tuple(shape), 0, windows.dtype)


def gather_windows(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
    wrap_negative: bool = False,
) -> Array:
    """`gather`, where `wrap_negative` counts negative starts from the end."""
    parsed_mode = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    if parsed_mode is GatherScatterMode.ONE_HOT:
        raise NotImplementedError(
            "gather with mode='one_hot' is not implemented; use mode='fill' with fill_value=0, which gives the same values."
        )
    params = gather_params(
        dimension_numbers,
        slice_sizes,
        parsed_mode,
        fill_value,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        wrap_negative=wrap_negative,
    )
    return bind(gather_p, as_array(operand), as_array(start_indices), **params)


def gather_params(
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    mode: GatherScatterMode,
    fill_value: Any = None,
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    wrap_negative: bool = False,
) -> dict[str, Any]:
    """The params of the gather op."""
    if fill_value is not None:
        fill_value = np.asarray(fill_value).item()
        if not isinstance(fill_value, bool | int | float | complex):
            raise TypeError(f"gather: fill_value={fill_value!r} is no number.")
        if fill_value != fill_value and isinstance(fill_value, float):
            fill_value = math.nan  # always the same object, so that equal params compare equal
    return dict(
        dimension_numbers=numbers,
        slice_sizes=tuple(operator.index(n) for n in slice_sizes),
        mode=mode,
        fill_value=fill_value if mode is GatherScatterMode.FILL_OR_DROP else None,
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        wrap_negative=bool(wrap_negative),
        operand_axes=None,
    )
