"""NumPy functions along one dim, in cache-sized chunks of rows on all threads, so that temporaries stay small."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.runtime.machine import run_in_parts, thread_count
from shardwise.runtime.memory import pool

_CHUNK = 1 << 14  # elements per chunk of a thread


def rows_at_once(shape: Sequence[int], axis: int) -> int:
    """How many rows along `axis` all threads work on at the same time."""
    length, others = shape[axis], [n for d, n in enumerate(shape) if d != axis]
    rows, most = math.prod(others), max(others, default=1)
    if most == 1 or rows * length < 2 * _CHUNK:
        return rows
    return min(rows, thread_count() * _step(most, rows * length) * (rows // most))


def _step(count: int, elements: int) -> int:
    """How many of `count` parts of so many elements a thread works on at once."""
    return max(1, _CHUNK * count // elements)


def in_rows(
    work: Callable[..., Sequence[Ndarray]], blocks: Sequence[Ndarray], axis: int, results: Sequence[tuple[int, Any]]
) -> tuple[Ndarray, ...]:
    """``work(*blocks)``, where its results (sizes along `axis` and dtypes given) depend on each row of `blocks` along `axis` alone.

    All other dims broadcast. Small blocks and single rows are processed in one call.
    """
    shape = np.broadcast_shapes(*((*b.shape[:axis], 1, *b.shape[axis + 1 :]) for b in blocks))
    others = [d for d in range(len(shape)) if d != axis]
    rows, length = math.prod(shape), max(b.shape[axis] for b in blocks)
    cut = max(others, key=lambda d: (shape[d], -d)) if others else None
    if cut is None or shape[cut] == 1 or rows * length < 2 * _CHUNK:
        return tuple(work(*blocks))
    full = [np.broadcast_to(b, (*shape[:axis], b.shape[axis], *shape[axis + 1 :])) for b in blocks]
    outs = tuple(pool.empty((*shape[:axis], n, *shape[axis + 1 :]), dtype) for n, dtype in results)
    before = (slice(None),) * cut

    def run(some: slice) -> None:
        place = (*before, some)
        for out, part in zip(outs, work(*[b[place] for b in full]), strict=True):
            out[place] = part

    step = _step(shape[cut], rows * length)
    run_in_parts(run, shape[cut], step, thread_count())
    return outs
