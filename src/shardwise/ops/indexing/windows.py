"""Reads and writes of windows of blocks at computed positions: the NumPy core of gather, scatter and dynamic slices.

Comes in: blocks with `lead` loop dims (extent n or 1, differing between blocks), and per indexed dim an array of
window starts of shape ``loops + batch``, already in bounds. Goes out: the windows, or a copy of the operand with
windows combined into it. Dim numbers in this file do not count the loop dims.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base.scipy_extensions import scipy_extension
from shardwise.base.shapes import Ndarray
from shardwise.ops.indexing.mapped_rows import mapped_rows, memory_order
from shardwise.ops.indexing.row_loops import combined_rows
from shardwise.runtime.copies import row_major, take_positions
from shardwise.runtime.memory import alone
from shardwise.runtime.strided import sliding_windows

Starts = Mapping[int, Ndarray]
Pairs = Sequence[tuple[int, int]]  # aligned (operand dim, batch dim)

# With fewer elements a row-wise sparse product is not worth importing SciPy.
_SPARSE_ELEMENTS = 1 << 15
_SPARSE_KINDS = "iufc"


_LAST = np.iinfo(np.intp).max


def as_positions(start: Ndarray) -> Ndarray:
    """`start` as intp; a uint64 beyond intp becomes the largest intp, which is out of bounds too."""
    if start.dtype == np.uint64:
        start = np.minimum(start, _LAST)
    return start.astype(np.intp, copy=False)


def in_bounds(start: Ndarray, n: int, limit: int, wrap: bool) -> tuple[Ndarray, Ndarray | None]:
    """`start` as intp clamped to 0..limit, and a mask of the starts that were in bounds (None if all were)."""
    start = as_positions(start)
    if not start.size:
        return start, None
    low = start.min()
    if wrap and low < 0:
        start = np.where(start < 0, start + n, start)
        low = start.min()
    if low >= 0 and start.max() <= limit:
        return start, None
    return np.clip(start, 0, max(limit, 0)), (start >= 0) & (start <= limit)


def along(n: int, axis: int, rank: int) -> Ndarray:
    """``arange(n)`` along one axis of `rank`."""
    shape = [1] * rank
    shape[axis] = n
    return np.arange(n).reshape(shape)


def read_windows(
    operand: Ndarray, lead: int, starts: Starts, sizes: Sequence[int], pairs: Pairs, index_shape: tuple[int, ...]
) -> Ndarray:
    """Windows of `operand`: ``loops + batch + window``; the window has every operand dim that is not in `pairs`.

    Each array of `starts` broadcasts to `index_shape`, ``loops + batch``. Dims without a start begin at 0.
    """
    windows = mapped_rows(operand, lead, starts, sizes, index_shape, pairs)
    if windows is not None:
        return windows
    shape = operand.shape
    rank = len(index_shape)
    paired_dims = dict(pairs)
    indexed_dims = [d for d in starts if 0 < sizes[d] < shape[lead + d]]
    cut = [slice(None)] * operand.ndim
    for d, size in enumerate(sizes):
        if d not in indexed_dims and d not in paired_dims and size != shape[lead + d]:
            cut[lead + d] = slice(0, size)
    view = operand[tuple(cut)]
    window_dims = [d for d in indexed_dims if sizes[d] > 1]
    if window_dims:  # the axis of window positions stays in place, that of offsets is last
        view = sliding_windows(view, [sizes[d] for d in window_dims], [lead + d for d in window_dims])

    # Axes of `view`: read by an index array, kept, or (operand loops of extent 1) dropped.
    index: dict[int, Ndarray] = {}
    dropped_axes: list[int] = []
    for loop in range(lead):
        if shape[loop] == 1:
            dropped_axes.append(loop)
        elif index_shape[loop] != 1:
            index[loop] = along(shape[loop], loop, rank)
    for d in range(operand.ndim - lead):
        if d in paired_dims:
            index[lead + d] = along(shape[lead + d], lead + paired_dims[d], rank)
        elif d in indexed_dims:
            index[lead + d] = starts[d]
    axes = [a for a in range(view.ndim) if a not in dropped_axes]
    if dropped_axes:
        view = view[tuple(0 if a in dropped_axes else slice(None) for a in range(view.ndim))]

    out, first = _take(
        view, [i for i, a in enumerate(axes) if a in index], [index[a] for a in axes if a in index], index_shape
    )
    kept_axes = [a for a in axes if a not in index]
    place = {a: i if i < first else i + rank for i, a in enumerate(kept_axes)}  # kept axis of view -> axis of out

    order = [place[i] if i in place else first + i for i in range(lead)]
    unused_axes = [first + i for i in range(lead) if i in place]
    order += [first + i for i in range(lead, rank)]
    select: list[Any] = [slice(None)] * rank
    for d in range(operand.ndim - lead):
        if d in paired_dims:
            continue
        if d in window_dims:
            order.append(place[operand.ndim + window_dims.index(d)])
        elif d not in indexed_dims:
            order.append(place[lead + d])
        select.append(None if d in indexed_dims and d not in window_dims else slice(None))
    out = out.transpose(order + unused_axes)
    return out[tuple(select) + (0,) * len(unused_axes)] if unused_axes or None in select else out


def _take(view: Ndarray, axes: list[int], index: list[Ndarray], index_shape: tuple[int, ...]) -> tuple[Ndarray, int]:
    """Index `view` on `axes`; returns the result and the number of its first index axis. Other axes keep their order."""
    if not axes:
        out = view.reshape((1,) * len(index_shape) + view.shape)
        return np.broadcast_to(out, index_shape + view.shape), 0
    first, count = axes[0], len(axes)
    if axes[-1] - first + 1 == count:
        full = (
            tuple(i if i.shape == index_shape else np.broadcast_to(i, index_shape) for i in index)
            if count == 1
            else index
        )
        if not view.flags.c_contiguous:  # np.take would copy the whole operand
            full = (np.broadcast_to(full[0], index_shape), *full[1:])
            return view[(slice(None),) * first + tuple(full)], first
        sizes = view.shape[first : first + count]
        flat = view.reshape(
            (*view.shape[:first], -1 if view.size else int(np.prod(sizes)), *view.shape[first + count :])
        )
        return take_positions(flat, linear_index(full, sizes, index_shape), first), first
    rest = [a for a in range(view.ndim) if a not in axes]
    index = [np.broadcast_to(index[0], index_shape), *index[1:]]
    return view.transpose(axes + rest)[tuple(index)], 0


def linear_index(index: Sequence[Ndarray], sizes: Sequence[int], index_shape: tuple[int, ...]) -> Ndarray:
    """Row-major positions in a grid of `sizes`, of shape `index_shape`."""
    position = index[0]
    for i, n in zip(index[1:], sizes[1:], strict=True):
        position = position * n + i
    return position if position.shape == index_shape else np.broadcast_to(position, index_shape)


class OverwritingKernel(ABC):
    """A kernel that writes over operand 0 if the call is its last use, and nothing else refers to it."""

    def __call__(self, *blocks: Ndarray) -> Ndarray:
        return self.run(blocks, owned=False)

    def over(self, free: Sequence[int], blocks: list[Ndarray]) -> Ndarray:
        """The result, written over operand 0 if that is one of `free` and only the list refers to it."""
        is_owned = 0 in free and alone(blocks, 0)
        operands = tuple(blocks)
        if is_owned:
            blocks[0] = None  # type: ignore[call-overload]  dropped in any case
        return self.run(operands, is_owned)

    @abstractmethod
    def run(self, blocks: tuple[Ndarray, ...], owned: bool) -> Ndarray:
        """`owned`: the kernel may overwrite operand 0."""


def write_windows(
    operand: Ndarray,
    lead: int,
    starts: Starts,
    sizes: Sequence[int],
    pairs: Pairs,
    updates: Ndarray,
    keep: Ndarray | None,
    combine: Callable[..., Any] | None,
    unique: bool,
    own: Mapping[int, tuple[Ndarray, int]] | None = None,
    owned: bool = False,
) -> Ndarray:
    """A copy of `operand`, or `operand` itself if `owned`, with windows of `updates` put (`combine` None) or combined (a ufunc)
    into it, in order.

    `updates` is ``loops + batch + window``; the window has every operand dim that is not in `pairs`, with `sizes`.
    `keep` (``loops + batch``) is a mask of the windows to write. `own` gives, for dims of which `operand` holds only a part,
    the part's first position (``loops``) and its size: elements outside it are dropped.
    """
    rank_dims = operand.ndim - lead
    paired_dims = dict(pairs)
    own = own or {}
    positions = [*starts.values(), *(begin for begin, _ in own.values()), *([keep] if keep is not None else [])]
    loops = np.broadcast_shapes(operand.shape[:lead], updates.shape[:lead], *(a.shape[:lead] for a in positions))
    if not updates.size:
        return np.broadcast_to(operand, loops + operand.shape[lead:])
    batch = updates.ndim - lead - (rank_dims - len(paired_dims))
    part = lambda d: operand.shape[lead + d]  # noqa: E731
    indexed_dims = [d for d in range(rank_dims) if d not in paired_dims and (d in own or sizes[d] < part(d))]
    # The dims up to the last one that is indexed count rows of a table, which lie as the operand does.
    first = max([*indexed_dims, *paired_dims], default=-1) + 1
    window_dims = [d for d in range(first) if d not in paired_dims and (sizes[d] > 1 or d not in indexed_dims)]
    index_shape = (*loops, *updates.shape[lead : lead + batch], *(sizes[d] for d in window_dims))
    rank = len(index_shape)
    widen = lambda a: a.reshape(a.shape + (1,) * (rank - a.ndim))  # noqa: E731

    index: list[Ndarray] = [along(n, i, rank) for i, n in enumerate(loops)]
    for d in range(first):
        if d in paired_dims:
            index.append(along(part(d), lead + paired_dims[d], rank))
            continue
        at = widen(starts[d]) if d in starts and d in indexed_dims else np.zeros((1,) * rank, np.intp)
        if d in window_dims:
            at = at + along(sizes[d], lead + batch + window_dims.index(d), rank)
        if d in own:
            begin, size = own[d]
            at = at - widen(begin)
            inside = (at >= 0) & (at < size)
            keep = inside if keep is None else widen(keep) & inside
            at = np.clip(at, 0, size - 1)
        index.append(at)
    work, order = _in_memory_order(operand, loops, lead + first, owned)
    grid = work.shape[: lead + first]
    flat = work.reshape(int(np.prod(grid)), int(np.prod(work.shape[lead + first :])))

    rows = _as_rows(
        np.broadcast_to(updates, loops + updates.shape[lead:]), lead + batch, first, paired_dims, window_dims
    )
    index = [index[a] for a in order[: lead + first]]
    position = linear_index(index, grid, index_shape).reshape(-1) if index else np.zeros(rows.shape[0], np.intp)
    if keep is not None:
        chosen = np.broadcast_to(widen(keep), index_shape).reshape(-1)
        position, rows = position[chosen], rows[chosen]
    combine_rows(flat, position, rows, combine, unique)
    return work.transpose([order.index(a) for a in range(work.ndim)])


def _in_memory_order(
    operand: Ndarray, loops: tuple[int, ...], leading: int, owned: bool
) -> tuple[Ndarray, tuple[int, ...]]:
    """A copy of the operand with all `loops`, or itself if `owned`, with its `leading` dims as they lie; and the order of its dims."""
    lead = len(loops)
    whole = operand if operand.shape[:lead] == loops else np.broadcast_to(operand, loops + operand.shape[lead:])
    order = memory_order(whole, leading)
    work = whole.transpose(order)
    return work if owned and whole.size == operand.size and work.flags.c_contiguous else row_major(work), order


def _as_rows(updates: Ndarray, before: int, first: int, paired: Mapping[int, int], moving: list[int]) -> Ndarray:
    """`updates`, which have `before` dims in front of their window, as a matrix: a row per position in the first `first` dims of the
    operand, a column per element of its other dims.
    """
    window = [d for d in range(len(paired) + updates.ndim - before) if d not in paired]
    axis_of = {d: before + i for i, d in enumerate(window)}
    ones = [axis_of[d] for d in window if d < first and d not in moving]
    order = [*range(before), *(axis_of[d] for d in moving), *ones, *(axis_of[d] for d in window if d >= first)]
    columns = int(np.prod([updates.shape[axis_of[d]] for d in window if d >= first]))
    return updates.transpose(order).reshape(updates.size // columns, columns)


def combine_rows(
    flat: Ndarray, position: Ndarray, rows: Ndarray, combine: Callable[..., Any] | None, unique: bool
) -> None:
    """``flat[position[i]] = combine(flat[position[i]], rows[i])`` for each i in order, in place, repeated positions included."""
    if not rows.size:
        return
    if combined_rows(flat, position, rows, combine):
        return
    if combine is None:
        flat[position] = rows
    elif unique or position.size == 1:
        flat[position] = combine(flat[position], rows)
    elif flat.shape[1] == 1:
        combine.at(flat[:, 0], position, rows[:, 0])  # type: ignore[attr-defined]
    elif combine in (np.add, np.subtract) and rows.size >= _SPARSE_ELEMENTS and flat.dtype.kind in _SPARSE_KINDS:
        _add_rows(flat, position, rows, 1 if combine is np.add else -1)
    else:  # ufunc.at is fast on flat arrays only
        columns = flat.shape[1]
        elements = (position[:, None] * columns + np.arange(columns)).reshape(-1)
        combine.at(flat.reshape(-1), elements, rows.reshape(-1))  # type: ignore[attr-defined]


def _add_rows(flat: Ndarray, position: Ndarray, rows: Ndarray, sign: int) -> None:
    """Row-wise accumulation as a product with a sparse matrix with one entry per column: 8 times faster than ufunc.at."""
    sparse = scipy_extension("sparse._sparsetools")
    (size, columns), count = flat.shape, position.size
    weights = np.full(count, sign).astype(flat.dtype)  # wraps to the correct weight for unsigned types
    source = np.ascontiguousarray(rows).reshape(-1)
    position = position.astype(np.int64, copy=False)
    ends = np.arange(count + 1)  # column i has the entries from ends[i] to ends[i + 1]
    sparse.csc_matvecs(size, count, columns, ends, position, weights, source, flat.reshape(-1))
