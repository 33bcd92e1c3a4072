"""Windows and rows at positions that differ along loop dims, as `vmap` makes them: `jax.vmap(lambda x, i: x[i])`, `x.at[i].add(v)`.

Comes in: an operand with `lead` loop dims and the starts of windows. Goes out: the windows, or the operand with rows put into it. The
operand is one table of rows, its loops and the dims of a window included; where in it each of these begins is one more number of a
position, so that one compiled loop reads or writes all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ops.indexing.row_loops import FEWEST, combined_rows, taken_rows
from shardwise.ops.indexing.row_places import Grid
from shardwise.runtime.copies import row_major

Block = np.ndarray[Any, Any]
Ints = tuple[int, ...]

_KEPT = 1 << 20  # beginnings that are kept for the next call


def mapped_rows(
    operand: Block,
    lead: int,
    starts: Mapping[int, Block],
    sizes: Sequence[int],
    index_shape: Ints,
    pairs: Sequence[tuple[int, int]] = (),
    wrap: bool | None = None,
) -> Block | None:
    """The windows of `sizes` at `starts`, as `read_windows` gives them; None where there is no code, or too few elements for it.

    Starts are in bounds if `wrap` is None. Else they are clamped, so that windows are, and negative ones count from the end if `wrap`.
    """
    shape, paired = operand.shape, dict(pairs)
    core = shape[lead:]
    indexed = [d for d in starts if sizes[d] != core[d]]
    last = max([*indexed, *paired], default=-1)
    fixed = [d for d in range(len(core)) if d not in paired and d not in indexed]
    if last < 0 or not operand.flags.c_contiguous or any(sizes[d] != core[d] for d in fixed) or not all(sizes):
        return None
    width = sizes[last] if last in indexed else 1
    inner = tuple(1 if d in paired else sizes[d] for d in range(last))  # dims of a window that are rows of their own
    loops = np.broadcast_shapes(shape[:lead], index_shape[:lead]) + index_shape[lead:]
    places, rest = loops + inner, prod(core[last + 1 :])
    rows = prod(shape[: lead + last + 1])
    dtype = np.result_type(np.int32, *(() if wrap is None else (starts[d].dtype for d in indexed)))
    if wrap is None and width == prod(inner) == 1 < rest:  # NumPy takes whole rows as fast
        return None
    if prod(places) * width * rest < FEWEST or dtype.name not in ("int32", "int64") or rows >= 1 << 31:
        return None
    steps = tuple(prod(shape[a + 1 : lead + last + 1]) for a in range(lead + last + 1))
    columns = [
        np.broadcast_to(starts[d].reshape(starts[d].shape + (1,) * last), places).astype(dtype, copy=False).reshape(-1)
        for d in indexed
    ]
    extents, apart = tuple(core[d] for d in indexed), tuple(steps[lead + d] for d in indexed)
    spans = tuple(sizes[d] for d in indexed)
    counted = [(a, a) for a in range(lead)] + [(lead + d, lead + paired[d]) for d in sorted(paired)]
    counted += [(lead + d, len(loops) + d) for d in range(last) if d not in paired]
    counts = tuple((at, n, steps[a]) for a, at in counted if (n := shape[a] if a < lead else places[at]) != 1)
    if counts:
        columns.append(_begins_of(counts, places, dtype))
        extents, apart, spans = (*extents, rows), (*apart, 1), (*spans, 1)
    table = operand.reshape(rows, rest)
    found = taken_rows(table, columns, None, grid=Grid(extents, apart, spans), wrap=bool(wrap), run=width)
    window = [n for d, n in enumerate(sizes) if d not in paired]
    return None if found is None else found.reshape(*loops, *window)


def combined_mapped_rows(
    operand: Block,
    lead: int,
    columns: Sequence[Block],
    dims: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    updates: Block,
    ufunc: Any,
    *,
    wrap: bool,
    clip: bool,
    owned: bool,
) -> Block | None:
    """`operand` with rows of `updates` put or combined into it, as `combined_rows` does; None as in `mapped_rows`.

    The operand's first dims are those that positions count along, `dims`, and those that go with dims of the positions, in `pairs`.
    `columns` (``loops + batch``, of one shape) are the positions' numbers, `updates` is ``loops + batch + row``. Extents of loops are 1
    where all have the same. `owned`: the operand may be written over.
    """
    core, first = operand.shape[lead:], len(dims) + len(pairs)
    loops = np.broadcast_shapes(operand.shape[:lead], columns[0].shape[:lead], updates.shape[:lead])
    places, rest = loops + columns[0].shape[lead:], prod(core[first:])
    rows, dtype = prod(loops) * prod(core[:first]), np.result_type(np.int32, *columns)
    if prod(places) * rest < FEWEST or dtype.name not in ("int32", "int64") or rows >= 1 << 31 or not rows:
        return None
    steps = [prod((loops + core)[a + 1 : lead + first]) for a in range(lead + first)]
    counted = [*enumerate(loops), *((lead + at, core[d]) for d, at in pairs)]
    numbers = [np.broadcast_to(c, places).astype(dtype, copy=False).reshape(-1) for c in columns]
    begins = [steps[a] for a in (*range(lead), *(lead + d for d, _ in pairs))]
    counts = tuple((at, n, step) for (at, n), step in zip(counted, begins, strict=True) if n != 1)
    if counts:
        numbers.append(_begins_of(counts, places, dtype))
    extents, apart = tuple(core[d] for d in dims), tuple(steps[lead + d] for d in dims)
    grid = Grid((*extents, rows), (*apart, 1)) if counts else Grid(extents, apart)
    whole = np.broadcast_to(operand, loops + core)
    work = operand if owned and whole.size == operand.size and operand.flags.c_contiguous else row_major(whole)
    new = np.broadcast_to(updates, places + core[first:]).reshape(-1, rest)
    done = combined_rows(work.reshape(rows, rest), numbers, new, ufunc, grid=grid, wrap=wrap, clip=clip)
    return work if done else None


def _begins_of(counts: tuple[Ints, ...], places: Ints, dtype: np.dtype[Any]) -> Block:
    """`_begins`, kept for the next call if there are not too many."""
    return (_kept_begins if prod(places) <= _KEPT else _begins)(counts, places, dtype)


def _begins(counts: Sequence[Ints], places: Ints, dtype: np.dtype[Any]) -> Block:
    """For each place the number of its first row: the sum over `counts` (dim, extent, rows from one to the next)."""
    begin = np.zeros((1,) * len(places), dtype)
    for at, n, step in counts:
        begin = begin + (np.arange(n, dtype=dtype) * dtype.type(step)).reshape(-1, *(1,) * (len(places) - at - 1))
    begin = np.broadcast_to(begin, places).reshape(-1)
    begin.flags.writeable = False
    return begin


_kept_begins = recent(8)(_begins)
