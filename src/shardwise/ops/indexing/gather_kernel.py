"""The kernel of `gather`: windows read from blocks, as whole rows where possible.

Where mesh axes split an indexed dim, each device reads from its own part and the sum over these axes completes the result. If the
kernel computes the sum (`sum_axes`), it reads each window once from the joined parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.dtypes import DType, KeyDtype, iinfo, is_key_dtype, isdtype, physical
from shardwise.base.shapes import Axes, DimAxes, Ndarray
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.split_dims import OwnParts, own_parts, reduce_axes
from shardwise.ops.indexing.mapped_rows import MOST_KEPT, POSITIONS, first_rows
from shardwise.ops.indexing.row_loops import RowTaker, row_taker, taken_rows
from shardwise.ops.indexing.row_places import PositionDims, joined_columns
from shardwise.ops.indexing.taken_along import take_along
from shardwise.ops.indexing.window_numbers import GatherDimensionNumbers, GatherScatterMode
from shardwise.ops.indexing.windows import in_bounds, linear_index, read_windows
from shardwise.runtime.address import address
from shardwise.runtime.copies import row_major, take_positions
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool


class _WindowReads(NamedTuple):
    """How windows are read: with `lead` leading dims, and as the params of `gather` say."""

    lead: int
    numbers: GatherDimensionNumbers
    slice_sizes: tuple[int, ...]
    mode: GatherScatterMode
    fill_value: Any
    wrap: bool

    def fill(self, dtype: DType) -> Ndarray | None:
        """The value of windows out of bounds; None where windows are moved into bounds."""
        return fill_number(self.fill_value, dtype) if self.mode is GatherScatterMode.FILL_OR_DROP else None


def gather_kernel(
    env: Env,
    operand: Ndarray,
    indices: Ndarray,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: tuple[int, ...],
    mode: GatherScatterMode,
    fill_value: Any,
    wrap_negative: bool,
    operand_axes: DimAxes | None,
    sum_axes: Axes = (),
    **promises: Any,
) -> Ndarray:
    """The windows at `indices`; with `sum_axes`, the sum over these axes of the devices' partial windows."""
    del promises
    numbers = dimension_numbers
    if not all(slice_sizes[d] for d in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)):
        # The windows are empty although the result is not: they lie beyond the end of an empty dim. A window of fill values replaces them.
        operand = _fill_window(env, operand.dtype, slice_sizes, mode, fill_value, operand_axes)
        slice_sizes = tuple(n or 1 for n in slice_sizes)
        indices, mode, operand_axes = np.zeros_like(indices), GatherScatterMode.CLIP, None
    complete = {a for axes in operand_axes or () for a in axes} == set(sum_axes)
    parts = own_parts(env, operand, operand_axes, indices, joins=complete)
    if sum_axes and not parts.are_joined:
        given: Params = dict(dimension_numbers=numbers, slice_sizes=slice_sizes, mode=mode, fill_value=fill_value)
        part = gather_kernel(env, operand, indices, **given, wrap_negative=wrap_negative, operand_axes=operand_axes)
        return sum_over_axes(env, part, sum_axes)
    how = _WindowReads(env.lead, numbers, slice_sizes, mode, fill_value, wrap_negative)
    if not parts.begins:
        rows = _gather_rows(how, parts.block, [indices[..., c] for c in range(indices.shape[-1])])
        if rows is not None:
            return rows
        along = _gather_along(how, parts.block, indices)
        if along is not None:
            return along
    return _gather_windows(how, parts, indices)


def _fill_window(
    env: Env,
    dtype: np.dtype[Any],
    slice_sizes: Sequence[int],
    mode: GatherScatterMode,
    fill_value: Any,
    split: DimAxes | None,
) -> Ndarray:
    """One window of fill values: on one device only along the axes that `split` the operand, as results are added over these."""
    fill = fill_number(fill_value, dtype) if mode is GatherScatterMode.FILL_OR_DROP else np.zeros((), dtype)
    for axes in split or ():
        fill = np.where(env.index(axes) == 0, fill, absent(dtype)) if axes else fill
    fill = fill.reshape(fill.shape or (1,) * env.lead)
    sizes = tuple(n or 1 for n in slice_sizes)
    return np.broadcast_to(fill.reshape(*fill.shape, *(1,) * len(sizes)), (*fill.shape, *sizes))


def _gather_windows(how: _WindowReads, parts: OwnParts, indices: Ndarray) -> Ndarray:
    """The general case."""
    lead, numbers, sizes, mode, _, wrap = how
    operand = parts.block
    starts: dict[int, Ndarray] = {}
    outside: Ndarray | None = None  # True where a window is out of the operand's bounds
    foreign: Ndarray | None = None  # True where a window lies on another device
    extra: tuple[int, ...] = (1,) * lead
    first: Ndarray | None = None  # True on the one device that contributes fill values
    for i, d in enumerate(numbers.start_index_map):
        start, inside = in_bounds(indices[..., i], parts.sizes[d], parts.sizes[d] - sizes[d], wrap)
        if inside is not None and mode is GatherScatterMode.FILL_OR_DROP:
            outside = ~inside if outside is None else outside | ~inside
        if d in parts.begins:
            begin, part_size = parts.begins[d], operand.shape[lead + d]
            extra = np.broadcast_shapes(extra, begin.shape)
            wide = begin.reshape(begin.shape + (1,) * (indices.ndim - 1 - lead))
            start = start - wide
            own = (start >= 0) & (start < part_size)
            foreign = ~own if foreign is None else foreign | ~own
            start = np.clip(start, 0, part_size - 1)
            first = wide == 0 if first is None else first & (wide == 0)
        starts[d] = start
    index_shape = (*np.broadcast_shapes(indices.shape[:lead], extra), *indices.shape[lead:-1])
    pairs = tuple(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    out = read_windows(operand, lead, starts, sizes, pairs, index_shape)
    batch = indices.ndim - 1 - lead
    out = _place_window(out, lead, batch, numbers, operand.ndim - lead)
    widen = lambda mask: _place_mask(mask, lead, numbers, out.ndim - lead)  # noqa: E731
    if foreign is not None:
        out = np.where(widen(foreign), absent(out.dtype), out)
    if outside is not None:
        value = fill_number(how.fill_value, out.dtype)
        if first is not None:
            value = np.where(widen(np.broadcast_to(first, index_shape)), value, absent(out.dtype))
        out = np.where(widen(outside), value, out)
    return out


def gather_columns(env: Env, params: Params) -> Callable[..., Ndarray]:
    """`Op.columns` of `gather`."""
    return partial(_gather_columns, env, params)


def _gather_columns(env: Env, params: Params, operand: Ndarray, *columns: Ndarray) -> Ndarray:
    """The windows at vectors of positions that are given column by column, each ``loops + batch + (1,)``."""
    if not params["operand_axes"] and not params.get("sum_axes"):
        same = np.broadcast_arrays(*(c[..., 0] for c in columns))
        names = "dimension_numbers", "slice_sizes", "mode", "fill_value", "wrap_negative"
        rows = _gather_rows(_WindowReads(env.lead, *[params[k] for k in names]), operand, same)
        if rows is not None:
            return rows
    return gather_kernel(env, operand, joined_columns(columns), **params)


def absent(dtype: np.dtype[Any]) -> Ndarray:
    """The addend of a device for an element that others have: -0.0, which leaves each value as it is, -0.0 too; 0.0 would not."""
    zero = -np.zeros((), np.float32)
    return zero.astype(dtype) if dtype.kind != "c" else np.asarray(complex(zero, zero)).astype(dtype)


def sum_over_axes(env: Env, x: Ndarray, axes: Axes) -> Ndarray:
    """The sum over this process's devices along `axes`; it begins with -0.0, as NumPy's 0.0 would change -0.0."""
    dims = [env.dim(a) for a in axes]
    if any(x.shape[d] != env.extent(a) for a, d in zip(axes, dims, strict=True)):
        return reduce_axes(env, x, axes, "sum")
    return np.add.reduce(x, tuple(dims), x.dtype, keepdims=True, initial=absent(x.dtype))


def gather_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Ndarray]:
    """The kernel with its params bound; the dims that whole rows are read by are found out once."""
    del out_types
    dtype = in_types[0].dtype
    if is_key_dtype(dtype) and params["mode"] is GatherScatterMode.FILL_OR_DROP:
        fill_scalar = fill_number(params["fill_value"], dtype)
        params = {**params, "fill_value": fill_scalar.item() if fill_scalar.dtype.kind == "u" else params["fill_value"]}
    kernel = partial(gather_kernel, env, **params)
    operand, indices = (t.shape for t in in_types)
    run = _run_of_rows(params["dimension_numbers"], operand, params["slice_sizes"], len(indices) - 1)
    if run is None or params["operand_axes"] or params.get("sum_axes") or math.prod(operand[: run[0]]) != 1:
        return kernel
    first, rows, rest = run
    grid = PositionDims.of(rows, [d - first for d in params["dimension_numbers"].start_index_map])
    fills = params["mode"] is GatherScatterMode.FILL_OR_DROP
    fill = fill_number(params["fill_value"], physical(dtype)) if fills else None
    table, shape = (math.prod(rows), math.prod(rest)), (*operand[:first], *indices[:-1], *rest)
    return _RowReader(kernel, env.lead, shape, table, grid, fill, params["wrap_negative"])


class _RowReader:
    """Reads whole rows at positions of `grid` in a table, or in the one that each device has, by code that is found once for operands and
    positions that lie alike; `kernel` does the rest.

    Args:
        kernel: for all operands and positions.
        lead: the number of loop dims.
        shape: of a device's result.
        table: rows of a device's table, and elements of a row.
        grid: the dims that positions count in.
        fill: the value of rows out of bounds; None where positions are clamped.
        wrap: whether negative positions count from the end.
    """

    __slots__ = ("_fill", "_grid", "_kernel", "_known", "_lead", "_shape", "_table", "_wrap")

    def __init__(
        self,
        kernel: Callable[..., Ndarray],
        lead: int,
        shape: tuple[int, ...],
        table: tuple[int, int],
        grid: PositionDims,
        fill: Ndarray | None,
        wrap: bool,
    ) -> None:
        self._kernel, self._lead, self._shape, self._table = kernel, lead, shape, table
        self._grid, self._fill, self._wrap = grid, fill, wrap
        self._known: Bounded[tuple[Any, ...], RowTaker] = Bounded(LAYOUTS)  # if it reads positions where they lie

    def __call__(self, operand: Ndarray, indices: Ndarray) -> Ndarray:
        tables, here = operand.shape[: self._lead], indices.shape[: self._lead]
        loops, count = tuple(map(max, tables, here)), indices.shape[-1]
        operand = _dense(operand, math.prod(loops) * math.prod(self._shape))
        if not operand.flags.c_contiguous:
            return self._kernel(operand, indices)
        taker = self._known.get((tables, indices.shape, indices.strides))
        if taker is None:
            return self._first_call(operand, indices, loops)
        # The columns of one array lie one number apart; behind them is that of where each device's table begins.
        out, first = pool.empty(loops + self._shape, operand.dtype), address(indices)
        columns = range(first, first + count * indices.strides[-1], indices.strides[-1]) if count > 1 else (first,)
        taker.call(address(operand), address(out), address(taker.fills), *columns, *map(address, taker.columns))
        return out

    def _first_call(self, operand: Ndarray, indices: Ndarray, loops: tuple[int, ...]) -> Ndarray:
        count, tables, (size, width) = indices.shape[-1], operand.shape[: self._lead], self._table
        own = np.broadcast_to(indices, loops + indices.shape[self._lead :]).reshape(-1, count)
        columns, grid, n = [own[:, c] for c in range(count)], self._grid, math.prod(tables)
        if n > 1:
            if own.dtype not in POSITIONS or n * size >= 1 << 31:
                return self._kernel(operand, indices)
            begins = np.empty(own.shape, own.dtype)[:, 0]  # as far apart as the numbers of other columns
            steps = tuple((d, k, math.prod(tables[d + 1 :]) * size) for d, k in enumerate(tables) if k > 1)
            begins[...] = first_rows(steps, loops + indices.shape[self._lead : -1], own.dtype)
            columns.append(begins)
            grid = PositionDims((*grid.sizes, n * size), (*grid.steps, 1))
        taker = row_taker((n * size, width), operand.dtype, columns, self._fill, grid=grid, wrap=self._wrap)
        if taker is None:
            return self._kernel(operand, indices)
        places = [address(indices) + c * indices.strides[-1] for c in range(count)]
        if [address(c) for c in taker.columns[:count]] == places and (n == 1 or len(own) <= MOST_KEPT):
            self._known[tables, indices.shape, indices.strides] = taker._replace(columns=taker.columns[count:])
        return taker.take(operand.reshape(n * size, width)).reshape(loops + self._shape)


def _dense(operand: Ndarray, elements: int) -> Ndarray:
    """A part of a larger array, say, as a C-contiguous table, if no fewer elements than it has are read: loops read those only."""
    return operand if operand.flags.c_contiguous or operand.size > elements else row_major(operand)


def _run_of_rows(
    numbers: GatherDimensionNumbers, shape: Sequence[int], slice_sizes: Sequence[int], batch: int
) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """Of windows that are whole rows at positions in a run of dims: the first one, the sizes of the run, and those of a row."""
    first, shape = run_of_dims(numbers, len(shape), batch), tuple(shape)
    if first is None:
        return None
    end = first + len(numbers.start_index_map)
    if shape[:first] != tuple(slice_sizes[:first]) or shape[end:] != tuple(slice_sizes[end:]):
        return None
    return first, shape[first:end], shape[end:]


def default_fill(dtype: Any) -> Any:
    """The default fill value for windows out of bounds: NaN, the least signed or greatest unsigned integer, True."""
    if isdtype(dtype, "bool"):
        return True
    if isdtype(dtype, "signed integer"):
        return iinfo(dtype).min
    if isdtype(dtype, "unsigned integer"):
        return iinfo(dtype).max
    return np.nan if isdtype(dtype, ("real floating", "complex floating")) else 0


def fill_number(fill_value: Any, dtype: DType) -> Ndarray:
    """The value of windows out of bounds: `fill_value`, or the dtype's default for None. Of keys it is the value of each word."""
    stored_dtype = dtype.physical if isinstance(dtype, KeyDtype) else dtype
    if stored_dtype is not dtype or stored_dtype.type is np.void:  # small floats are of kind "V", too
        word = iinfo("uint32").max if fill_value is None else fill_value
        words = np.full(stored_dtype.itemsize // 4, word, np.uint32)
        return words.view(stored_dtype).reshape(()) if words.size else np.zeros((), stored_dtype)
    value = default_fill(dtype) if fill_value is None else fill_value
    return np.asarray(value).astype(stored_dtype)


def run_of_dims(numbers: GatherDimensionNumbers, ndim: int, batch: int) -> int | None:
    """The first indexed dim, if the indexed dims are adjacent, collapsed and replaced by the batch dims in the result."""
    dims = numbers.start_index_map
    if not dims or numbers.operand_batching_dims:
        return None
    first, count = min(dims), len(dims)
    if numbers.collapsed_slice_dims != tuple(range(first, first + count)) or set(dims) != {
        *numbers.collapsed_slice_dims
    }:
        return None
    rest = range(first + batch, batch + ndim - count)
    return first if numbers.offset_dims == (*range(first), *rest) else None


def _gather_rows(how: _WindowReads, operand: Ndarray, columns: Sequence[Ndarray]) -> Ndarray | None:
    """The common case: whole rows at positions in a run of dims. None in other cases.

    `columns` are the positions' numbers for each indexed dim, of one shape. If these differ between devices, the operand may not.
    """
    if not columns:
        return None
    lead, numbers, slice_sizes, mode, fill_value, wrap = how
    loops, batch = columns[0].shape[:lead], columns[0].shape[lead:]
    rank, shape = operand.ndim - lead, operand.shape[lead:]
    run_of_rows = _run_of_rows(numbers, shape, slice_sizes, len(batch))
    if run_of_rows is None:
        return None
    (first, run, rest), count = run_of_rows, len(numbers.start_index_map)
    operand = _dense(operand, columns[0].size * math.prod(rest))
    if math.prod(operand.shape[: lead + first]) == 1 and operand.flags.c_contiguous:
        table = operand.reshape(math.prod(run), math.prod(rest))
        grid = PositionDims.of(run, [d - first for d in numbers.start_index_map])
        rows_read = taken_rows(table, [c.reshape(-1) for c in columns], how.fill(operand.dtype), grid=grid, wrap=wrap)
        if rows_read is not None:
            return rows_read.reshape(*loops, *shape[:first], *batch, *rest)
    if math.prod(loops) != 1:
        return None
    starts: list[Ndarray] = list(columns)
    outside: Ndarray | None = None
    for column, d in zip(columns, numbers.start_index_map, strict=True):
        starts[d - first], inside = in_bounds(column.reshape(batch), shape[d], shape[d] - 1, wrap)
        if inside is not None and mode is GatherScatterMode.FILL_OR_DROP:
            outside = ~inside if outside is None else outside | ~inside
    before = lead + first
    if operand.flags.c_contiguous:
        position = linear_index(starts, shape[first : first + count], starts[0].shape)
        sizes = operand.shape
        flat = operand.reshape((*sizes[:before], math.prod(shape[first : first + count]), *sizes[before + count :]))
        out = take_positions(flat, position, before)
    else:
        out = operand[(slice(None),) * before + tuple(starts)]
    if outside is None:
        return out
    return np.where(
        outside.reshape(outside.shape + (1,) * (rank - first - count)), fill_number(fill_value, out.dtype), out
    )


def _gather_along(how: _WindowReads, operand: Ndarray, indices: Ndarray) -> Ndarray | None:
    """Elements along the last dim, with all other dims aligned, as for `take_along_axis`. None in other cases."""
    numbers = how.numbers
    others = tuple(range(operand.ndim - how.lead - 1))
    along = (len(others),)
    if (
        numbers.start_index_map != along
        or numbers.collapsed_slice_dims != along
        or numbers.operand_batching_dims != others
        or numbers.start_indices_batching_dims != others
        or any(n != 1 for n in how.slice_sizes)
        or indices.ndim != operand.ndim + 1
        or operand.shape[:-1] != indices.shape[:-2]
        or not operand.flags.c_contiguous
    ):
        return None
    table, position = operand.reshape(-1, operand.shape[-1]), indices.reshape(-1, indices.shape[-2])
    elements = take_along(table, position, how.fill(operand.dtype), wrap=how.wrap)
    return None if elements is None else elements.reshape(indices.shape[:-1])


def _place_window(out: Ndarray, lead: int, batch: int, numbers: GatherDimensionNumbers, operand_ndim: int) -> Ndarray:
    """Reorder ``loops + batch + every unpaired operand dim`` to the result's dims."""
    unpaired_dims = [d for d in range(operand_ndim) if d not in numbers.operand_batching_dims]
    collapsed_axes = tuple(lead + batch + i for i, d in enumerate(unpaired_dims) if d in numbers.collapsed_slice_dims)
    if collapsed_axes:
        out = out[tuple(0 if a in collapsed_axes else slice(None) for a in range(out.ndim))]
    offset = iter(range(lead + batch, out.ndim))
    index = iter(range(lead, lead + batch))
    order = [next(offset) if d in numbers.offset_dims else next(index) for d in range(out.ndim - lead)]
    return out.transpose((*range(lead), *order))


def _place_mask(mask: Ndarray, lead: int, numbers: GatherDimensionNumbers, rank: int) -> Ndarray:
    """A mask ``loops + batch`` reshaped to broadcast against the result."""
    shape = iter(mask.shape[lead:])
    return mask.reshape((*mask.shape[:lead], *(1 if d in numbers.offset_dims else next(shape) for d in range(rank))))
