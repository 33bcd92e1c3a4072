"""The kernel of `scatter`: windows of updates put or combined into blocks, as whole rows where possible.

Where mesh axes split the updates, each device applies its own updates, all but one device to an identity operand, and a reduction
completes the result. If the kernel does the reduction (`sum_axes`), it applies all devices' updates to one operand, in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.shapes import Axes, DimAxes, Ndarray
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.split_dims import OwnParts, cut, move_axes_in, own_parts, reduce_axes
from shardwise.ops.indexing.mapped_rows import (
    MappedCombiner,
    MappedPositions,
    combined_mapped_rows,
    loops_in_rows,
    mapped_combiner,
)
from shardwise.ops.indexing.one_window import OneWindow
from shardwise.ops.indexing.row_loops import RowCombiner, row_combiner
from shardwise.ops.indexing.row_places import PositionDims
from shardwise.ops.indexing.window_numbers import GatherScatterMode, ScatterDimensionNumbers, scatter_window_dims
from shardwise.ops.indexing.windows import OverwritingKernel, combine_rows, in_bounds, linear_index, write_windows
from shardwise.runtime.address import address
from shardwise.runtime.blocks import expand_dim
from shardwise.runtime.copies import reshape_block, row_major
from shardwise.runtime.env import Env
from shardwise.runtime.monoids import MONOIDS

_ONE_THREAD = 1 << 16  # elements of a window; more are divided among threads
_FEW = 1 << 10  # updates that are copied in less time than it takes to find out how they lie

# The reduction that combines the devices' results.
REDUCTIONS = {"": "sum", "add": "sum", "sub": "sum", "mul": "prod", "min": "min", "max": "max"}
_UFUNCS: dict[str, Callable[..., Any] | None] = {
    "": None,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


class _DirectCall(NamedTuple):
    """Rows are combined with a table of that shape, on the addresses of blocks.

    `columns`: of each column the number of a block of positions, and bytes in it. `begins`: that of where each device's table begins, if
    devices have tables of their own, which lie as `tables` says.
    """

    combiner: RowCombiner
    table: tuple[int, ...]
    columns: tuple[tuple[int, int], ...]
    begins: Sequence[Ndarray]
    tables: MappedCombiner | None

    def run(self, operand: Ndarray, positions: Sequence[Ndarray], updates: Ndarray, owned: bool) -> Ndarray:
        """The operand with the updates put or combined into it."""
        tables, places = self.tables, [address(positions[i]) + offset for i, offset in self.columns]
        if tables is not None:
            work = tables.memory(operand, owned)
        else:
            work = operand if owned and operand.flags.c_contiguous else row_major(operand)
        self.combiner.combine_at(work.reshape(self.table), address(updates), [*places, *map(address, self.begins)])
        return work if tables is None else tables.block(work)


class ScatterKernel(OverwritingKernel):
    """The kernel with its params bound; vectors of positions are one block, or one for each of their columns."""

    def __init__(self, env: Env, params: Params) -> None:
        self._env, self._params = env, params
        self._one: OneWindow | None = None
        split = params["operand_axes"] or ()
        self._sum_axes: Axes = params.get("sum_axes") or ()
        # Where results are summed, the updates of all devices go into one operand: the one that they share, or the sum of theirs.
        self._own_operands = tuple(a for a in self._sum_axes if a not in params["update_axes"])
        joins = set(self._sum_axes) >= set(params["update_axes"]) and (not self._sum_axes or env.processes is None)
        self._is_whole = not any(split) and joins
        self._direct = Bounded[tuple[Any, ...], _DirectCall | None](LAYOUTS)

    def run(self, blocks: tuple[Ndarray, ...], owned: bool) -> Ndarray:
        """The operand with the updates put or combined into it."""
        operand, *positions, updates = blocks
        if self._is_whole and not self._sum_axes and all(p.size == p.shape[-1] for p in positions):
            one = self._one or self._one_window(operand, positions, updates)
            if one is not None:
                return one.write_window(operand, [n for p in positions for n in p.reshape(-1).tolist()], updates, owned)
        result = self._run_direct(operand, positions, updates, owned) if self._is_whole else None
        return (
            _scatter(self._env, operand, positions, updates, **self._params, owned=owned) if result is None else result
        )

    def _run_direct(
        self, operand: Ndarray, positions: Sequence[Ndarray], updates: Ndarray, owned: bool
    ) -> Ndarray | None:
        """The result by one call on the blocks where they lie; None if there is none."""
        if self._own_operands:
            own, kind = operand, REDUCTIONS[self._params["combine"]]
            operand = reduce_axes(self._env, own, self._own_operands, kind)
            owned = owned and operand is own
        # One number for all elements, say; where devices' updates follow each other, it is left one number.
        if updates.size <= _FEW and not updates.flags.c_contiguous and not self._sum_axes:
            updates = np.ascontiguousarray(updates)
        lies = operand.strides if self._env.lead else ()
        key = (operand.shape, lies, updates.shape, updates.strides, *[(p.shape, p.strides) for p in positions])
        try:
            direct = self._direct[key]
        except KeyError:
            direct = self._direct[key] = self._find_direct(operand, positions, updates)
        return None if direct is None else direct.run(operand, positions, updates, owned)

    def _find_direct(self, operand: Ndarray, positions: Sequence[Ndarray], updates: Ndarray) -> _DirectCall | None:
        """The call that combines rows with the operand, where it reads positions and updates where they lie."""
        params, numbers = self._params, self._params["dimension_numbers"]
        blocks = [*positions, updates]
        if self._sum_axes:
            if any(operand.shape[self._env.dim(a)] != 1 for a in self._sum_axes):
                return None
            numbers, positions, updates = _one_after_other(
                self._env, numbers, positions, updates, self._sum_axes, params["combine"]
            )
            if any(address(x) != address(y) for x, y in zip([*positions, updates], blocks, strict=True)):
                return None
        mode, combine = params["mode"], _UFUNCS[params["combine"]]
        how = _WindowWrites(
            self._env.lead, numbers, mode, params["unique_indices"], params["wrap_negative"], combine, False
        )
        places = [(i, c) for i, p in enumerate(positions) for c in range(p.shape[-1])]
        columns = _columns(positions)
        rows = _as_rows(how, operand, columns, updates)
        if rows is None or not operand.size or not columns[0].size:
            return None
        apart = bool(rows.pairs) or rows.has_loops
        tables = rows.tables(operand, updates) if apart else None
        if apart and tables is None:
            return None
        combiner = rows.combiner(operand.dtype, updates)[0] if tables is None else tables.combiner
        if combiner is None or address(combiner.rows) != address(updates):
            return None
        offsets = [address(c) - address(positions[i]) for c, (i, _) in zip(combiner.columns, places, strict=False)]
        if any(at != c * positions[i].strides[-1] for at, (i, c) in zip(offsets, places, strict=True)):
            return None  # a copy
        begins, given = (
            combiner.columns[len(places) :],
            tuple((i, at) for at, (i, _) in zip(offsets, places, strict=True)),
        )
        # What each call brings is not kept.
        combiner = combiner._replace(rows=combiner.rows[:0, :0].copy(), columns=())
        if tables is not None:
            tables = tables._replace(combiner=combiner)
        return _DirectCall(combiner, rows.table if tables is None else tables.table, given, begins, tables)

    def _one_window(self, operand: Ndarray, positions: Sequence[Ndarray], updates: Ndarray) -> OneWindow | None:
        """How the only window is written; None where rows are combined by threads, or by code that knows which of two zeros is less."""
        combine, dtype = self._params["combine"], operand.dtype
        is_ordered = combine in ("min", "max") and dtype.kind not in "biu"
        lead, numbers = self._env.lead, self._params["dimension_numbers"]
        batch = [n for d, n in enumerate(updates.shape[lead:]) if d not in numbers.update_window_dims]
        if is_ordered or not all(p.shape[-1] for p in positions) or math.prod(batch) != 1 or updates.size > _ONE_THREAD:
            return None
        shape, update = operand.shape[lead:], updates.shape[lead:]
        wrap, clip = self._params["wrap_negative"], self._params["mode"] is GatherScatterMode.CLIP
        self._one = OneWindow(lead, shape, update, numbers, wrap=wrap, clip=clip, combine=_UFUNCS[combine])
        return self._one


def scatter_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> ScatterKernel:
    """`compile` of the scatters."""
    del in_types, out_types
    return ScatterKernel(env, params)


def scatter_kernel(env: Env, operand: Ndarray, indices: Ndarray, updates: Ndarray, **params: Any) -> Ndarray:
    """The operand with the updates put or combined into it."""
    return _scatter(env, operand, [indices], updates, **params)


def _scatter(
    env: Env,
    operand: Ndarray,
    positions: Sequence[Ndarray],
    updates: Ndarray,
    *,
    dimension_numbers: ScatterDimensionNumbers,
    mode: GatherScatterMode,
    unique_indices: bool,
    wrap_negative: bool,
    operand_axes: DimAxes | None,
    update_axes: Axes,
    combine: str,
    sum_axes: Axes = (),
    owned: bool = False,
    **promises: Any,
) -> Ndarray:
    """`positions`, ``loops + batch + numbers`` each: some of the numbers of all positions, in order.

    `owned`: the kernel may overwrite the operand.
    """
    del promises
    numbers = dimension_numbers
    if update_axes or sum_axes:
        operand = _count_once(env, operand, update_axes, sum_axes, combine)
    if sum_axes:
        unique_indices = unique_indices and set(sum_axes) <= set(update_axes)
        numbers, positions, updates = _one_after_other(env, numbers, positions, updates, sum_axes, combine)
    how = _WindowWrites(env.lead, numbers, mode, unique_indices, wrap_negative, _UFUNCS[combine], owned)
    parts = own_parts(env, operand, operand_axes, *positions, updates)
    columns = _columns(positions)
    index_shape = np.broadcast_shapes(*(p.shape[:-1] for p in positions))
    out = None if parts.begins else _scatter_rows(how, parts.block, columns, updates)
    if out is None:
        out = _scatter_windows(how, parts, columns, updates, index_shape[: env.lead])
    return cut(env, out, operand_axes) if parts.are_joined and operand_axes is not None else out


def _columns(positions: Sequence[Ndarray]) -> list[Ndarray]:
    """The numbers of all positions for each indexed dim, of one shape."""
    if len(positions) == 1:
        return [positions[0][..., c] for c in range(positions[0].shape[-1])]
    shape = np.broadcast_shapes(*(p.shape[:-1] for p in positions))
    return [np.broadcast_to(p[..., c], shape) for p in positions for c in range(p.shape[-1])]


class _WindowWrites(NamedTuple):
    """How windows are written: with `lead` leading dims, and as the params of the scatters say."""

    lead: int
    numbers: ScatterDimensionNumbers
    mode: GatherScatterMode
    unique: bool
    wrap: bool
    ufunc: Callable[..., Any] | None
    is_owned: bool


def _scatter_windows(
    how: _WindowWrites, parts: OwnParts, columns: Sequence[Ndarray], updates: Ndarray, index_loops: tuple[int, ...]
) -> Ndarray:
    """The general case. `index_loops` are the leading dims of the positions, of which there may be none."""
    lead, numbers, mode, unique, wrap, ufunc, is_owned = how
    operand = parts.block
    rank = operand.ndim - lead
    window = scatter_window_dims(numbers, rank)
    sizes = [1] * rank
    for d, u in zip(window, numbers.update_window_dims, strict=True):
        sizes[d] = updates.shape[lead + u]
    keep: Ndarray | None = None
    starts: dict[int, Ndarray] = {}
    for column, d in zip(columns, numbers.scatter_dims_to_operand_dims, strict=True):
        starts[d], inside = in_bounds(column, parts.sizes[d], parts.sizes[d] - sizes[d], wrap)
        if inside is not None and mode is not GatherScatterMode.CLIP:
            keep = inside if keep is None else keep & inside
    batch = [u for u in range(updates.ndim - lead) if u not in numbers.update_window_dims]
    order = [*range(lead), *(lead + u for u in batch), *(lead + u for u in numbers.update_window_dims)]
    rows = updates.transpose(order)
    in_window = tuple(d in window for d in range(rank) if d not in numbers.operand_batching_dims)
    if not all(in_window):
        rows = rows[(Ellipsis, *(slice(None) if there else None for there in in_window))]
    own = {d: (begin, operand.shape[lead + d]) for d, begin in parts.begins.items()}
    pairs = tuple(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    out = write_windows(operand, lead, starts, sizes, pairs, rows, keep, ufunc, unique, own, is_owned)
    loops = np.broadcast_shapes(out.shape[:lead], index_loops)  # these differ if index vectors are empty
    return out if out.shape[:lead] == loops else np.broadcast_to(out, loops + out.shape[lead:])


def _count_once(env: Env, operand: Ndarray, update_axes: Axes, sum_axes: Axes, combine: str) -> Ndarray:
    """Each device's initial operand: the identity, on all but the first device along axes that split the updates alone.

    Along `sum_axes` it has extent 1: the reduction of the operands of this process's devices.
    """
    for a in sum_axes:
        if a in update_axes:
            operand = operand[(slice(None),) * env.dim(a) + (slice(0, 1),)]
    others = tuple(a for a in sum_axes if a not in update_axes)
    if others:
        operand = reduce_axes(env, operand, others, REDUCTIONS[combine])
    place = env.index(update_axes) == 0
    first = place.any(axis=tuple(env.dim(a) for a in sum_axes), keepdims=True)
    if first.all():
        return operand
    first = first.reshape((*first.shape, *(1,) * (operand.ndim - env.lead)))
    return np.where(first, operand, MONOIDS[REDUCTIONS[combine]].identity(operand.dtype))


def _one_after_other(
    env: Env, numbers: ScatterDimensionNumbers, positions: Sequence[Ndarray], updates: Ndarray, axes: Axes, combine: str
) -> tuple[ScatterDimensionNumbers, Sequence[Ndarray], Ndarray]:
    """The updates of all devices along `axes` joined: these axes become the first batch dims."""
    # Updates that are the same on all devices are repeated, once per device.
    counts = MONOIDS[REDUCTIONS[combine]].repeated is not None

    def join_devices(x: Ndarray) -> Ndarray:
        for a in axes:
            d = env.dim(a)
            x = expand_dim(x, d, env.extent(a) if counts else max(y.shape[d] for y in (*positions, updates)))
        return move_axes_in(env, x, axes)

    later = lambda dims: tuple(d + len(axes) for d in dims)  # noqa: E731
    numbers = replace(
        numbers,
        update_window_dims=later(numbers.update_window_dims),
        scatter_indices_batching_dims=later(numbers.scatter_indices_batching_dims),
    )
    return numbers, [join_devices(p) for p in positions], join_devices(updates)


def _whole_dims_as_loops(
    how: _WindowWrites, operand: Ndarray, columns: Sequence[Ndarray], updates: Ndarray
) -> tuple[_WindowWrites, Sequence[Ndarray]]:
    """The first dims of operand and updates, if windows are whole along them, as loops with the same positions: ``x.at[..., i].add(y)``."""
    lead, numbers = how.lead, how.numbers
    window = scatter_window_dims(numbers, operand.ndim - lead)
    extra = 0
    for d, u in zip(window, numbers.update_window_dims, strict=True):
        if d != extra or u != extra or operand.shape[lead + d] != updates.shape[lead + u]:
            break
        extra += 1
    if not extra or extra == operand.ndim - lead:
        return how, columns
    earlier = lambda dims: tuple(d - extra for d in dims if d >= extra)  # noqa: E731
    numbers = replace(
        numbers,
        update_window_dims=earlier(numbers.update_window_dims),
        inserted_window_dims=earlier(numbers.inserted_window_dims),
        operand_batching_dims=earlier(numbers.operand_batching_dims),
        scatter_dims_to_operand_dims=earlier(numbers.scatter_dims_to_operand_dims),
    )
    ones = tuple(range(lead, lead + extra))
    return how._replace(lead=lead + extra, numbers=numbers), [np.expand_dims(c, ones) for c in columns]


class _AsRows(NamedTuple):
    """A scatter of whole rows: `how`, with the dims along which each window is whole as loops, the `columns` of the positions' numbers for
    each indexed dim, the shape of the operand without loops, and the pairs of dims that go together.
    """

    how: _WindowWrites
    columns: Sequence[Ndarray]
    shape: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    has_loops: bool

    @property
    def table(self) -> tuple[int, int]:
        """The shape of the operand as a table of rows, if there are neither loops nor pairs."""
        count = len(self.columns)
        return math.prod(self.shape[:count]), math.prod(self.shape[count:])

    @property
    def positions(self) -> MappedPositions:
        """Where the rows lie in an operand with loops and pairs."""
        clip = self.how.mode is GatherScatterMode.CLIP
        return MappedPositions(
            self.columns, self.how.numbers.scatter_dims_to_operand_dims, self.pairs, self.how.wrap, clip
        )

    def tables(self, operand: Ndarray, updates: Ndarray) -> MappedCombiner | None:
        """How rows are combined with the tables of all loops; None where no code does it, or some loops become parts of rows."""
        lead, positions, column = self.how.lead, self.positions, self.columns[0].shape
        loops, first = positions.loops(operand, lead, updates), positions.dim_count
        if any(loops_in_rows(operand, lead, first, column, updates, loops, is_owned) for is_owned in (False, True)):
            return None
        return mapped_combiner(operand, lead, positions, updates, self.how.ufunc)

    def combiner(self, dtype: np.dtype[Any], updates: Ndarray) -> tuple[RowCombiner | None, list[Ndarray], Ndarray]:
        """How rows are combined with such a table, with the columns and the rows."""
        columns, dims = [c.reshape(-1) for c in self.columns], self.how.numbers.scatter_dims_to_operand_dims
        table = self.table
        rows = reshape_block(updates, (len(columns[0]), table[1]))
        grid, clip = PositionDims.of(self.shape[: len(columns)], dims), self.how.mode is GatherScatterMode.CLIP
        combiner = row_combiner(table, dtype, columns, rows, self.how.ufunc, grid=grid, wrap=self.how.wrap, clip=clip)
        return combiner, columns, rows


def _as_rows(how: _WindowWrites, operand: Ndarray, columns: Sequence[Ndarray], updates: Ndarray) -> _AsRows | None:
    """The common case: whole rows at positions in the first dims, behind those along which each window is whole. None in other cases.

    `columns` are the positions' numbers for each indexed dim, of one shape.
    """
    how, columns = _whole_dims_as_loops(how, operand, columns, updates)
    lead, numbers = how.lead, how.numbers
    dims = numbers.scatter_dims_to_operand_dims
    count = len(dims)
    if not count:
        return None
    batch = columns[0].ndim - lead
    shape = operand.shape[lead:]
    pairs = tuple(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    first = count + len(pairs)
    if (
        {*numbers.inserted_window_dims, *numbers.operand_batching_dims} != {*range(first)}
        or set(dims) != set(numbers.inserted_window_dims)
        or numbers.update_window_dims != tuple(range(batch, batch + len(shape) - first))
        or updates.shape[lead + batch :] != shape[first:]
    ):
        return None
    has_loops = any(n != 1 for x in (operand, columns[0], updates) for n in x.shape[:lead])
    return _AsRows(how, columns, shape, pairs, has_loops)


def _scatter_rows(how: _WindowWrites, operand: Ndarray, columns: Sequence[Ndarray], updates: Ndarray) -> Ndarray | None:
    """The common case, as `_as_rows` has it; None in other cases."""
    as_rows = _as_rows(how, operand, columns, updates)
    if as_rows is None:
        return None
    lead, numbers, mode, unique, wrap, ufunc, is_owned = as_rows.how
    if as_rows.pairs or as_rows.has_loops:
        return combined_mapped_rows(operand, lead, as_rows.positions, updates, ufunc, owned=is_owned)
    dims, shape, clip = numbers.scatter_dims_to_operand_dims, as_rows.shape, mode is GatherScatterMode.CLIP
    work = operand if is_owned and operand.flags.c_contiguous else row_major(operand)
    table = work.reshape(as_rows.table)
    combiner, columns, rows = as_rows.combiner(table.dtype, updates)
    if combiner is not None:
        combiner.combine(table)
        return work
    starts = list(columns)
    keep: Ndarray | None = None
    for column, d in zip(columns, dims, strict=True):
        starts[d], inside = in_bounds(column, shape[d], shape[d] - 1, wrap)
        if inside is not None and not clip:
            keep = inside if keep is None else keep & inside
    position = linear_index(starts, shape[: len(columns)], starts[0].shape)
    if keep is not None:
        position, rows = position[keep], rows[keep]
    combine_rows(table, position, rows, ufunc, unique)
    return work
