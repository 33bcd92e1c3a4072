"""Windows and rows at positions that differ along loop dims, as `vmap` makes them: `jax.vmap(lambda x, i: x[i])`, `x.at[i].add(v)`.

Comes in: an operand with `lead` loop dims and the starts of windows. Goes out: the windows, or the operand with rows put into it. The
operand becomes one table of rows, with its loops and the dims of a window; the offset of each of these in the table is one more number of a
position, so that one compiled loop reads or writes all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded, recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ints, Ndarray
from shardwise.ops.indexing.row_loops import COMBINED_FEWEST, FEWEST, RowCombiner, row_combiner, row_taker, taken_rows
from shardwise.ops.indexing.row_places import PositionDims
from shardwise.runtime.address import address
from shardwise.runtime.blocks import with_ones
from shardwise.runtime.copies import row_major
from shardwise.runtime.loops import Call
from shardwise.runtime.memory import pool

POSITIONS = (np.dtype(np.int32), np.dtype(np.int64))  # types in which rows are numbered
# So many times fewer elements than in one table pay for a compiled loop: NumPy finds rows of several ones by many calls.
_FEWER = 8
_MOST_KEPT = 1 << 20  # beginnings that are kept for the next call
MOST_KEPT = 1 << 16  # the same of each way that operands and starts lie


def mapped_rows(
    operand: Ndarray,
    lead: int,
    starts: Mapping[int, Ndarray],
    sizes: Sequence[int],
    index_shape: Ints,
    pairs: Sequence[tuple[int, int]] = (),
    wrap: bool | None = None,
) -> Ndarray | None:
    """The windows of `sizes` at `starts`, as `read_windows` gives them; None where there is no code, or too few elements for it.

    Starts are in bounds if `wrap` is None. Else they are clamped, so that windows are, and negative ones count from the end if `wrap`.
    """
    if not operand.flags.c_contiguous:
        return None
    lie = tuple([(d, start.shape, start.strides, start.dtype) for d, start in starts.items()])
    key = operand.shape, operand.dtype, lead, lie, tuple(sizes), tuple(index_shape), tuple(pairs), wrap
    try:
        reader = _readers[key]
    except KeyError:
        reader = _readers[key] = _WindowReader.of(operand, lead, starts, sizes, index_shape, pairs, wrap)
    if reader is None:
        return None
    plan, call = reader.plan, reader.call
    if call is not None:  # it reads the starts where they lie
        out = pool.empty(plan.result, operand.dtype)
        given = [address(starts[d]) for d in plan.indexed_dims]
        call(address(operand), address(out), *reader.before, *given, *reader.after)
        return out
    rows = taken_rows(
        operand.reshape(plan.table), _columns(starts, plan), None, grid=plan.grid, wrap=bool(wrap), run=plan.run
    )
    return None if rows is None else rows.reshape(plan.result)


class _WindowReader(NamedTuple):
    """How windows are read from operands and starts that lie alike.

    Attributes:
        plan: how windows are read as rows of a table.
        call: reads them, on the addresses of the operand, the result, `before`, the starts and `after`; None where starts are copied first.
        before: an address.
        after: one, or none.
        kept_arrays: the arrays at these addresses.
    """

    plan: _Read
    call: Call | None = None
    before: Ints = ()
    after: Ints = ()
    kept_arrays: tuple[Ndarray, ...] = ()

    @classmethod
    def of(
        cls,
        operand: Ndarray,
        lead: int,
        starts: Mapping[int, Ndarray],
        sizes: Sequence[int],
        index_shape: Ints,
        pairs: Sequence[tuple[int, int]],
        wrap: bool | None,
    ) -> _WindowReader | None:
        """The reader for operands of this kind; None where they have no rows to read."""
        dims = tuple((d, start.dtype) for d, start in starts.items())
        plan = _read(operand.shape, lead, dims, tuple(sizes), tuple(index_shape), tuple(pairs), wrap is None)
        if plan is None:
            return None
        columns = _columns(starts, plan)
        taker = row_taker(
            plan.table,
            operand.dtype,
            columns,
            None,
            grid=plan.grid,
            wrap=bool(wrap),
            run=plan.run,
            fewest=FEWEST // _FEWER,
        )
        if taker is None:
            return None
        by_copy = cls(plan) if prod(taker.shape) >= FEWEST else None
        given, begins = taker.columns[: len(plan.indexed_dims)], taker.columns[len(plan.indexed_dims) :]
        if any(address(c) != address(starts[d]) for c, d in zip(given, plan.indexed_dims, strict=True)):
            return by_copy
        if begins and prod(plan.places) > MOST_KEPT:
            return by_copy
        return cls(plan, taker.call, (address(taker.fills),), tuple(map(address, begins)), (taker.fills, *begins))


_readers: Bounded[tuple[Any, ...], _WindowReader | None] = Bounded(LAYOUTS)


def _columns(starts: Mapping[int, Ndarray], plan: _Read) -> list[Ndarray]:
    """The numbers of the positions, with those of `first_rows`."""
    columns = [_column(starts[d], plan) for d in plan.indexed_dims]
    if plan.counts:
        columns.append(first_rows(plan.counts, plan.places, plan.dtype))
    return columns


class _Read(NamedTuple):
    """How windows are read as rows of a table.

    Attributes:
        indexed_dims: the dims that have starts.
        ones: dims that starts get at their end, to broadcast to `places`.
        places: the shape of the positions.
        dtype: the type of their numbers.
        counts: the argument of `first_rows`, whose numbers are added to the positions'; empty where nothing is.
        grid: the dims that numbers count in.
        table: the shape of the table.
        run: rows that are read at each position.
        result: the shape of the elements read.
    """

    indexed_dims: Ints
    ones: Ints
    places: Ints
    dtype: np.dtype[Any]
    counts: tuple[Ints, ...]
    grid: PositionDims
    table: Ints
    run: int
    result: Ints


def _column(start: Ndarray, plan: _Read) -> Ndarray:
    """The starts of all windows in one dim, as numbers of their places."""
    if start.shape == plan.places and start.dtype == plan.dtype:
        return start.reshape(-1)  # a broadcast, and its cast, take longer than this
    wide = np.broadcast_to(start.reshape(start.shape + plan.ones), plan.places)
    return wide.astype(plan.dtype, copy=False).reshape(-1)


@recent(256)
def _read(
    shape: Ints,
    lead: int,
    starts: tuple[tuple[int, np.dtype[Any]], ...],
    sizes: Ints,
    index_shape: Ints,
    pairs: tuple[tuple[int, int], ...],
    within: bool,
) -> _Read | None:
    """How windows are read from a dense operand of that shape, with starts of these types for some dims, which may be `within` bounds."""
    core, paired_dims = shape[lead:], dict(pairs)
    indexed_dims = tuple(d for d, _ in starts if sizes[d] != core[d])
    last = max([*indexed_dims, *paired_dims], default=-1)
    whole_dims = [d for d in range(len(core)) if d not in paired_dims and d not in indexed_dims]
    if last < 0 or any(sizes[d] != core[d] for d in whole_dims) or not all(sizes):
        return None
    width = sizes[last] if last in indexed_dims else 1
    inner = tuple(
        1 if d in paired_dims else sizes[d] for d in range(last)
    )  # dims of a window that are rows of their own
    loops = np.broadcast_shapes(shape[:lead], index_shape[:lead]) + index_shape[lead:]
    places, rest = loops + inner, prod(core[last + 1 :])
    rows = prod(shape[: lead + last + 1])
    dtype = np.result_type(np.int32, *(() if within else (kind for d, kind in starts if d in indexed_dims)))
    if within and width == prod(inner) == 1 < rest:  # NumPy takes whole rows as fast
        return None
    if prod(places) * width * rest < FEWEST // _FEWER or dtype not in POSITIONS or rows >= 1 << 31:
        return None
    steps = tuple(prod(shape[a + 1 : lead + last + 1]) for a in range(lead + last + 1))
    extents, apart = tuple(core[d] for d in indexed_dims), tuple(steps[lead + d] for d in indexed_dims)
    spans = tuple(sizes[d] for d in indexed_dims)
    counted_dims = [(a, a) for a in range(lead)] + [(lead + d, lead + paired_dims[d]) for d in sorted(paired_dims)]
    counted_dims += [(lead + d, len(loops) + d) for d in range(last) if d not in paired_dims]
    counts = tuple((at, n, steps[a]) for a, at in counted_dims if (n := shape[a] if a < lead else places[at]) != 1)
    if counts:
        extents, apart, spans = (*extents, rows), (*apart, 1), (*spans, 1)
    window = [n for d, n in enumerate(sizes) if d not in paired_dims]
    grid = PositionDims(extents, apart, spans)
    return _Read(indexed_dims, (1,) * last, places, dtype, counts, grid, (rows, rest), width, (*loops, *window))


class MappedPositions(NamedTuple):
    """Positions of rows: an operand's first dims are those that positions count along, and those that go with the positions' dims.

    Attributes:
        columns: the positions' numbers along each of `dims`: ``loops + batch``, of one shape; a loop has extent 1 where its rounds agree.
        dims: the operand's dims that positions count along.
        pairs: dims of the operand, with the dim of the positions that each goes with.
        wrap: negative numbers count from the end.
        clip: numbers out of bounds are clamped; without it their rows are left out.
    """

    columns: Sequence[Ndarray]
    dims: Sequence[int]
    pairs: Sequence[tuple[int, int]]
    wrap: bool
    clip: bool

    @property
    def dim_count(self) -> int:
        """How many of the operand's dims come before a row's."""
        return len(self.dims) + len(self.pairs)

    def loops(self, operand: Ndarray, lead: int, updates: Ndarray) -> Ints:
        """The extents of the loops over operand, positions and updates."""
        return np.broadcast_shapes(operand.shape[:lead], self.columns[0].shape[:lead], updates.shape[:lead])


def combined_mapped_rows(
    operand: Ndarray, lead: int, positions: MappedPositions, updates: Ndarray, ufunc: Any, *, owned: bool
) -> Ndarray | None:
    """`operand` with rows of `updates` put or combined into it, as `combined_rows` does; None as in `mapped_rows`.

    `updates` is ``loops + batch + row``. `owned`: the operand may be written over.
    """
    loops, first, batch = positions.loops(operand, lead, updates), positions.dim_count, positions.columns[0].shape
    if row := loops_in_rows(operand, lead, first, batch, updates, loops, owned):
        operand = np.broadcast_to(operand, (*loops, *operand.shape[lead:]))
        into = row.move_loops_in(operand, lead + first), row.move_loops_in(updates, len(batch))
        out = combined_mapped_rows(into[0], lead, positions, into[1], ufunc, owned=owned)
        return None if out is None else row.move_loops_out(out, lead + first)
    combiner = mapped_combiner(operand, lead, positions, updates, ufunc)
    if combiner is None:
        return None
    work = combiner.memory(operand, owned)
    combiner.combiner.combine(work.reshape(combiner.table))
    return combiner.block(work)


class MappedCombiner(NamedTuple):
    """How rows are combined with those of tables that differ along loop dims.

    Attributes:
        combiner: combines them with one table, which has all.
        table: its shape.
        shape: of the operand, with all loops.
        order: the operand's dims as they lie in the table.
    """

    combiner: RowCombiner
    table: Ints
    shape: Ints
    order: Ints

    def memory(self, operand: Ndarray, owned: bool) -> Ndarray:
        """The operand as it lies in the table, or a copy unless it is `owned`."""
        whole = operand if operand.shape == self.shape else np.broadcast_to(operand, self.shape)
        transposed_view = whole.transpose(self.order)
        return (
            transposed_view
            if owned and whole is operand and transposed_view.flags.c_contiguous
            else row_major(transposed_view)
        )

    def block(self, work: Ndarray) -> Ndarray:
        """The operand's dims in their order again."""
        return work.transpose([self.order.index(d) for d in range(work.ndim)])


def mapped_combiner(
    operand: Ndarray, lead: int, positions: MappedPositions, updates: Ndarray, ufunc: Any
) -> MappedCombiner | None:
    """How `combined_mapped_rows` combines rows with an operand of this shape and strides, none of whose loops become parts of rows.

    The columns of the combiner are those of the positions, and behind them the one of where each table begins.
    """
    columns, dims, pairs, wrap, clip = positions
    loops, first, core = positions.loops(operand, lead, updates), positions.dim_count, operand.shape[lead:]
    shape, places, rest = loops + core, loops + columns[0].shape[lead:], prod(core[first:])
    rows, dtype = prod(loops) * prod(core[:first]), np.result_type(np.int32, *columns)
    fewest = COMBINED_FEWEST // _FEWER
    if prod(places) * rest < fewest or dtype not in POSITIONS or rows >= 1 << 31 or not rows:
        return None
    order = memory_order(operand, lead + first) if operand.shape == shape else tuple(range(len(shape)))
    steps = [prod(shape[d] for d in order[order.index(a) + 1 : lead + first]) for a in range(lead + first)]
    loop_counts = [*enumerate(loops), *((lead + at, core[d]) for d, at in pairs)]
    numbers = [np.broadcast_to(c, places).astype(dtype, copy=False).reshape(-1) for c in columns]
    begins = [steps[a] for a in (*range(lead), *(lead + d for d, _ in pairs))]
    counts = tuple((at, n, step) for (at, n), step in zip(loop_counts, begins, strict=True) if n != 1)
    if counts:
        numbers.append(_as_far_apart(first_rows(counts, places, dtype), numbers[0]))
    extents, apart = tuple(core[d] for d in dims), tuple(steps[lead + d] for d in dims)
    grid = PositionDims((*extents, rows), (*apart, 1)) if counts else PositionDims(extents, apart)
    new = np.broadcast_to(updates, places + core[first:]).reshape(-1, rest)
    combiner = row_combiner(
        (rows, rest), operand.dtype, numbers, new, ufunc, grid=grid, wrap=wrap, clip=clip, fewest=fewest
    )
    return None if combiner is None else MappedCombiner(combiner, (rows, rest), shape, order)


def memory_order(x: Ndarray, leading: int) -> Ints:
    """The dims of `x`, the `leading` ones as they lie, if it is dense then, as columns of a larger array are; else in their order."""
    rest = range(leading, x.ndim)
    order = (*sorted(range(leading), key=lambda d: -x.strides[d]), *rest)
    return order if x.transpose(order).flags.c_contiguous else tuple(range(x.ndim))


def _as_far_apart(numbers: Ndarray, column: Ndarray) -> Ndarray:
    """`numbers` as far apart as those of `column`, so that a loop reads both where they lie."""
    step = column.strides[0] // column.itemsize
    if step <= 1 or column.strides[0] % column.itemsize or not numbers.size:
        return numbers
    spaced_numbers = np.empty((len(numbers), step), numbers.dtype)[:, 0]
    spaced_numbers[...] = numbers
    return spaced_numbers


@dataclass(frozen=True, slots=True)
class _Row:
    """Rows that begin with some of the `loops`; `order` are these and the dims of a row as they lie in memory."""

    loops: Ints
    order: Ints

    def move_loops_in(self, x: Ndarray, before: int) -> Ndarray:
        """`x` with the loops in its rows, in front of which it has `before` dims; extents of 1 take their place."""
        dims = [*self.loops, *range(before, x.ndim)]
        kept_axes = [a for a in range(before) if a not in self.loops]
        return with_ones(x.transpose(*kept_axes, *[dims[i] for i in self.order]), self.loops)

    def move_loops_out(self, x: Ndarray, before: int) -> Ndarray:
        """The inverse."""
        x = x[tuple(0 if a in self.loops else slice(None) for a in range(before))]
        kept_count = before - len(self.loops)
        x = x.transpose(*range(kept_count), *[kept_count + self.order.index(i) for i in range(len(self.order))])
        return np.moveaxis(x, range(kept_count, before), self.loops)


def loops_in_rows(
    operand: Ndarray, lead: int, first: int, column: Ints, updates: Ndarray, loops: Ints, owned: bool
) -> _Row | None:
    """The loops along which positions are the same while elements lie closer together than rows do, as where the columns of a table are
    split: with them in the rows nothing is copied, and each position is read once.
    """
    x, before = (operand, lead + first) if owned and operand.shape[:lead] == loops else (updates, len(column))
    apart = min((s for s in x.strides[lead:before] if s), default=0)
    inside = [a for a, n in enumerate(loops) if n != 1 == column[a] and x.shape[a] == n and 0 < x.strides[a] < apart]
    if not inside:
        return None
    steps = [x.strides[a] for a in (*inside, *range(before, x.ndim))]
    return _Row(tuple(inside), tuple(sorted(range(len(steps)), key=lambda i: -steps[i])))


def first_rows(counts: tuple[Ints, ...], places: Ints, dtype: np.dtype[Any]) -> Ndarray:
    """For each place the number of its first row: the sum over `counts` (dim, extent, rows from one to the next). Kept for the next call if
    there are not too many.
    """
    return (_kept_first_rows if prod(places) <= _MOST_KEPT else _first_rows)(counts, places, dtype)


def _first_rows(counts: Sequence[Ints], places: Ints, dtype: np.dtype[Any]) -> Ndarray:
    begin = np.zeros((1,) * len(places), dtype)
    for at, n, step in counts:
        begin = begin + (np.arange(n, dtype=dtype) * dtype.type(step)).reshape(-1, *(1,) * (len(places) - at - 1))
    begin = np.broadcast_to(begin, places).reshape(-1)
    begin.flags.writeable = False
    return begin


_kept_first_rows = recent(8)(_first_rows)
