"""Copies of large arrays: into memory of the pool, which costs no page faults, and by several threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from shardwise.runtime import costs
from shardwise.runtime.hollow import hollow, is_hollow
from shardwise.runtime.machine import run_in_parts, thread_count
from shardwise.runtime.memory import pool

Ndarray = np.ndarray[Any, Any]


def copied(x: Ndarray, dtype: Any = None) -> Ndarray:
    """A dense copy of `x`, cast to `dtype`, in the order that its dims have in memory."""
    if x.flags.c_contiguous:
        return row_major(x, dtype)
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    order = sorted(range(x.ndim), key=lambda d: (-abs(x.strides[d]), d))
    return row_major(x.transpose(order), dtype).transpose(np.argsort(order))


def row_major(x: Ndarray, dtype: Any = None) -> Ndarray:
    """A C-contiguous copy of `x`, cast to `dtype`."""
    dtype = x.dtype if dtype is None else dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
    if is_hollow(x):
        return hollow(x.shape, dtype)
    if x.size * dtype.itemsize < costs.POOLED_FROM or x.dtype.hasobject:
        return x.astype(dtype, order="C", copy=True)
    out = pool.empty(x.shape, dtype)
    fill(out, x)
    return out


def fill(out: Ndarray, source: Ndarray) -> None:
    """Copy `source` into `out`, of the same shape and C-contiguous, casting as `astype` does."""
    if source.flags.c_contiguous:
        out, source = out.reshape(-1), source.reshape(-1)
    rows = len(out) if out.ndim else 0
    if out.nbytes < costs.COPY_SHARED or rows < 2:
        np.copyto(out, source, casting="unsafe")
        return
    step = max(1, costs.COPY_PART * rows // out.nbytes)
    run_in_parts(lambda run: np.copyto(out[run], source[run], casting="unsafe"), rows, step, thread_count())


Run = tuple[int, int | None]  # how many rows, and the first of them in the source; None: zeros


def runs_of(positions: Sequence[int | None]) -> tuple[Run, ...]:
    """Rows to take, in order (None: zeros), as runs of rows that stay side by side."""
    offset = lambda i: None if (p := positions[i]) is None else p - i  # noqa: E731
    found = list[Run]()
    for _, rows in itertools.groupby(range(len(positions)), key=offset):
        first, *rest = rows
        found.append((1 + len(rest), positions[first]))
    return tuple(found)


def rows_in_runs(x: Ndarray, runs: Sequence[Run]) -> Ndarray:
    """The rows of `x` along the first dim that runs say, one after the other."""
    out = pool.empty((sum([n for n, _ in runs]), *x.shape[1:]), x.dtype)
    threads = thread_count() if out.nbytes >= costs.COPY_SHARED else 1
    start = 0
    for n, first in runs:
        into = out[start : start + n]
        start += n
        if first is None:
            into[...] = 0
        elif threads == 1:
            into[...] = x[first : first + n]
        else:
            rows = x[first : first + n]
            run_in_parts(lambda part, into=into, rows=rows: np.copyto(into[part], rows[part]), n, 1, threads)
    return out


def take_positions(x: Ndarray, positions: Ndarray, axis: int) -> Ndarray:
    """``x.take(positions, axis)`` of C-contiguous `x`, for positions that are in bounds."""
    shape = (*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :])
    flat = positions.reshape(-1)
    size = prod(shape) * x.itemsize
    if size < costs.POOLED_FROM or x.dtype.hasobject:
        return x.take(positions, axis, mode="clip")  # clips nothing, but is faster
    out = pool.empty((*x.shape[:axis], flat.size, *x.shape[axis + 1 :]), x.dtype)
    if size < costs.COPY_SHARED or prod(x.shape[:axis]) != 1:
        x.take(flat, axis, out=out, mode="clip")
    else:
        source, target = x.reshape(x.shape[axis:]), out.reshape(out.shape[axis:])
        step = max(1, costs.COPY_PART * flat.size // size)
        run_in_parts(
            lambda run: source.take(flat[run], 0, out=target[run], mode="clip"), flat.size, step, thread_count()
        )
    return out.reshape(shape)


def concatenate_blocks(xs: Sequence[Ndarray], axis: int, like: Ndarray | None = None) -> Ndarray:
    """``np.concatenate(xs, axis)`` of arrays of one dtype, in the order that the dims of the largest, or of `like`, have in memory."""
    first, size = xs[0], sum(x.shape[axis] for x in xs)
    if like is None:
        like = max(xs, key=lambda x: x.shape[axis])  # a short one may be an edge, repeated: its strides say nothing
    shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
    nbytes = prod(shape) * first.itemsize
    if nbytes < costs.POOLED_FROM or first.dtype.hasobject:
        return np.concatenate(xs, axis)
    order = sorted(range(like.ndim), key=lambda d: (-abs(like.strides[d]), d))
    out = pool.empty([shape[d] for d in order], first.dtype).transpose(np.argsort(order))
    threads = thread_count() if nbytes >= costs.COPY_SHARED else 1
    start = 0
    for x in xs:
        part = out[(slice(None),) * axis + (slice(start, start + x.shape[axis]),)]
        start += x.shape[axis]
        cut = next((d for d in order if part.shape[d] > 1), order[0])
        before = (slice(None),) * cut

        def copy(run: slice, part: Ndarray = part, x: Ndarray = x, before: tuple[slice, ...] = before) -> None:
            np.copyto(part[(*before, run)], x[(*before, run)])

        if x.size:
            run_in_parts(copy, x.shape[cut], max(1, costs.COPY_PART * x.shape[cut] // x.nbytes), threads)
    return out
