"""Windows at positions that differ along loop dims, as `vmap` makes them: `jax.vmap(lambda x, i: x[i])`.

Comes in: an operand with `lead` loop dims and the starts of windows. Goes out: the windows. The operand is one table of rows, its loops
and the dims of a window included; where in it each of these begins is one more number of a position, so that one compiled loop reads all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ops.indexing.row_loops import FEWEST, taken_rows
from shardwise.ops.indexing.row_places import Grid

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

    Starts are in bounds if `wrap` is None. Else windows are of one element along these dims, starts are clamped, and negative ones count
    from the end if `wrap`.
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
    counted = [(a, a) for a in range(lead)] + [(lead + d, lead + paired[d]) for d in sorted(paired)]
    counted += [(lead + d, len(loops) + d) for d in range(last) if d not in paired]
    counts = tuple((at, n, steps[a]) for a, at in counted if (n := shape[a] if a < lead else places[at]) != 1)
    if counts:
        begins = _kept_begins if prod(places) <= _KEPT else _begins
        columns.append(begins(counts, places, dtype))
        extents, apart = (*extents, rows), (*apart, 1)
    table = operand.reshape(rows, rest)
    found = taken_rows(table, columns, None, grid=Grid(extents, apart), wrap=bool(wrap), run=width)
    window = [n for d, n in enumerate(sizes) if d not in paired]
    return None if found is None else found.reshape(*loops, *window)


def _begins(counts: Sequence[Ints], places: Ints, dtype: np.dtype[Any]) -> Block:
    """For each place the number of its first row: the sum over `counts` (dim, extent, rows from one to the next)."""
    begin = np.zeros((1,) * len(places), dtype)
    for at, n, step in counts:
        begin = begin + (np.arange(n, dtype=dtype) * dtype.type(step)).reshape(-1, *(1,) * (len(places) - at - 1))
    begin = np.broadcast_to(begin, places).reshape(-1)
    begin.flags.writeable = False
    return begin


_kept_begins = recent(8)(_begins)
