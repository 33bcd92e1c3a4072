"""Copies of large arrays: into memory of the pool, which costs no page faults, and by several threads."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded, recent
from shardwise.base.shapes import Ndarray, Shape
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.hollow import hollow, is_hollow
from shardwise.runtime.machine import available, run_in_parts, thread_count
from shardwise.runtime.memory import pool
from shardwise.runtime.strided import strided_view

if TYPE_CHECKING:
    from shardwise.runtime.loops import Call


_LINE, _ROUND = 64, 256  # bytes: at a multiple of which writes past the cache begin, and how many a round of them has


def copy_dense(x: Ndarray, dtype: Any = None) -> Ndarray:
    """A dense copy of `x`, cast to `dtype`, in the order that its dims have in memory."""
    if x.flags.c_contiguous:
        # By one call of NumPy, as arguments of `jit` are: the choice of another way takes 0.3 us.
        plain = (dtype is None or dtype is x.dtype) and x.nbytes < costs.POOLED_FROM and not is_hollow(x)
        return x.copy() if plain else row_major(x, dtype)
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    order = sorted(range(x.ndim), key=lambda d: (-abs(x.strides[d]), d))
    return row_major(x.transpose(order), dtype).transpose(np.argsort(order))


def row_major(x: Ndarray, dtype: Any = None) -> Ndarray:
    """A C-contiguous copy of `x`, cast to `dtype`."""
    dtype = x.dtype if dtype is None else dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
    if is_hollow(x):
        return hollow(x.shape, dtype)
    least = costs.POOLED_FROM if x.flags.c_contiguous or _has_few_rows(x) else costs.COPY_ROWS_FROM
    if x.size * dtype.itemsize < least or x.dtype.hasobject:
        return x.astype(dtype, order="C", copy=True)
    out = pool.empty(x.shape, dtype)
    fill(out, x)
    return out


def _has_few_rows(x: Ndarray) -> bool:
    """Whether NumPy begins so few dense rows that a call of ours would take longer."""
    return x.ndim > 0 and x.strides[-1] == x.itemsize and x.size < costs.COPY_FEWEST_ROWS * x.shape[-1]


def reshape_block(x: Ndarray, shape: Shape) -> Ndarray:
    """``x.reshape(shape)``, of large arrays copied as `row_major` does where it has to be."""
    if x.nbytes < costs.COPY_ROWS_FROM or x.flags.c_contiguous or _is_view(x.shape, x.strides, shape):
        return x.reshape(shape)
    return row_major(x).reshape(shape)


@recent(256)
def _is_view(shape: Shape, strides: Shape, new: Shape) -> bool:
    """Whether elements in steps like these can be seen in a new shape: where a dim goes on evenly in the next one, they are one."""
    from shardwise.runtime.loops import merge_loops  # start-up time: the writer of loops

    even, _ = merge_loops(shape, [strides])
    return {*itertools.accumulate(even, operator.mul)} <= {1, *itertools.accumulate(new, operator.mul)}


def fill(out: Ndarray, source: Ndarray) -> None:
    """Copy `source` into `out`, of the same shape and C-contiguous, casting as `astype` does."""
    if source.flags.c_contiguous:
        out, source = out.reshape(-1), source.reshape(-1)
        if _copy_past_cache(out, source, out.nbytes):
            return
    elif any(source.strides):
        if _copied_by_rows(out, source):
            return
    elif out.nbytes >= costs.COPY_ROWS_FROM and (byte := _repeated_byte(out, source)) is not None:
        out, source = out.reshape(-1).view(np.uint8), np.broadcast_to(byte, (out.nbytes,))
    rows = len(out) if out.ndim else 0
    if out.nbytes < costs.COPY_SHARED or rows < 2:
        np.copyto(out, source, casting="unsafe")
        return
    step = max(1, costs.COPY_PART * rows // out.nbytes)
    run_in_parts(lambda run: np.copyto(out[run], source[run], casting="unsafe"), rows, step, thread_count())


def _repeated_byte(out: Ndarray, source: Ndarray) -> Ndarray | None:
    """The byte of which the one value of all elements consists: the C library writes bytes in less time than NumPy writes
    elements. None where there is no such byte.
    """
    if source.dtype != out.dtype or out.dtype.hasobject:
        return None
    raw = np.frombuffer(source[(slice(1),) * source.ndim].tobytes(), np.uint8)
    return raw[0] if (raw == raw[0]).all() else None


_met = 0  # bytes that NumPy has copied where code might have


def _copy_past_cache(out: Ndarray, source: Ndarray, whole: int) -> bool:
    """Whether a loop of ours has copied a dense block, one of `whole` bytes together, past the cache: that need not read what it writes."""
    global _met
    if whole < costs.STREAMED_FROM or source.dtype != out.dtype or out.dtype.hasobject or address(out) % _LINE:
        return False
    if out.nbytes < costs.COPY_PART or not available():
        return False
    if _met < costs.COPY_CODE_FROM:
        _met += out.nbytes
        return False
    from shardwise.runtime.loops import streamed_call  # start-up time: the writer of loops

    nbytes = out.nbytes
    streamed_call(nbytes)(address(out), address(source))
    if rest := nbytes % _ROUND:
        out.reshape(-1).view(np.uint8)[nbytes - rest :] = source.reshape(-1).view(np.uint8)[nbytes - rest :]
    return True


# By shape, the strides of both blocks and the bytes of an element: the bytes that NumPy has copied so far, then our call, or None where
# NumPy is as fast.
_copies: Bounded[tuple[Shape, Shape, Shape, int], int | Call | None] = Bounded(LAYOUTS)


def _copied_by_rows(out: Ndarray, source: Ndarray) -> bool:
    """Whether a loop of ours has copied `source` into `out`, whose dims are in the order of its memory."""
    if out.nbytes < costs.COPY_ROWS_FROM or source.dtype != out.dtype:
        return False
    key = out.shape, out.strides, source.strides, out.itemsize
    found = _copies.get(key, 0)
    if isinstance(found, int):
        if found < costs.COPY_CODE_FROM:
            _copies[key] = found + out.nbytes
            return False
        from shardwise.runtime.loops import copy_call  # start-up time: the writer of loops

        found = _copies[key] = copy_call(*key) if available() else None
    if found is not None:
        found(address(out), address(source))
    return found is not None


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
            continue
        rows = x[first : first + n]
        if threads == 1:
            into[...] = rows
        elif not (rows.flags.c_contiguous and _copy_past_cache(into, rows, out.nbytes)):
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
    if (repeated := _evenly_repeated(flat)) is not None:
        first, step, times = repeated
        rows = strided_view(
            x[(slice(None),) * axis + (slice(first, first + 1),)],
            (*x.shape[:axis], flat.size // times, times, *x.shape[axis + 1 :]),
            (*x.strides[:axis], step * x.strides[axis], 0, *x.strides[axis + 1 :]),
        )
        fill(out.reshape(rows.shape), rows)
        return out.reshape(shape)
    if size < costs.COPY_SHARED:
        x.take(flat, axis, out=out, mode="clip")
    elif (before := prod(x.shape[:axis])) == 1:
        source, target = x.reshape(x.shape[axis:]), out.reshape(out.shape[axis:])
        step = max(1, costs.COPY_PART * flat.size // size)
        run_in_parts(
            lambda run: source.take(flat[run], 0, out=target[run], mode="clip"), flat.size, step, thread_count()
        )
    else:
        source, target = x.reshape(before, *x.shape[axis:]), out.reshape(before, *out.shape[axis:])
        step = max(1, costs.COPY_PART * before // size)
        run_in_parts(lambda run: source[run].take(flat, 1, out=target[run], mode="clip"), before, step, thread_count())
    return out.reshape(shape)


def _evenly_repeated(positions: Ndarray) -> tuple[int, int, int] | None:
    """The first position, the step to the next one and how many times each occurs, if that is several and says it all: images grow so."""
    n, first = positions.size, int(positions[0])
    if n < 2 or positions[1] != first:
        return None
    times = int(np.argmax(positions != first)) or n
    if n % times:
        return None
    step = int(positions[times]) - first if n > times else 0
    even = first + step * np.arange(n // times)
    return (first, step, times) if (positions.reshape(-1, times) == even[:, None]).all() else None


def concatenate_blocks(xs: Sequence[Ndarray], axis: int, like: Ndarray | None = None) -> Ndarray:
    """``np.concatenate(xs, axis)`` of arrays of one dtype, in the order that the dims of the largest, or of `like`, have in memory."""
    first, size = xs[0], sum(x.shape[axis] for x in xs)
    if like is None:
        like = max(xs, key=lambda x: x.shape[axis])  # a short one may be an edge, repeated: its strides say nothing
    shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
    nbytes = prod(shape) * first.itemsize
    if nbytes < costs.POOLED_FROM or first.dtype.hasobject:
        return np.concatenate(xs, axis)
    plain = like.flags.c_contiguous
    order = range(like.ndim) if plain else sorted(range(like.ndim), key=lambda d: (-abs(like.strides[d]), d))
    out = pool.empty([shape[d] for d in order], first.dtype)
    if not plain:
        out = out.transpose(np.argsort(order))
    shared, start = nbytes >= costs.COPY_SHARED, 0
    for x in xs:
        part = out[(slice(None),) * axis + (slice(start, start + x.shape[axis]),)]
        start += x.shape[axis]
        if not x.size or _copied_by_rows(*((part, x) if plain else (part.transpose(order), x.transpose(order)))):
            continue
        if not shared:
            np.copyto(part, x)
            continue
        cut = next((d for d in order if part.shape[d] > 1), order[0])
        before = (slice(None),) * cut

        def copy(run: slice, part: Ndarray = part, x: Ndarray = x, before: tuple[slice, ...] = before) -> None:
            np.copyto(part[(*before, run)], x[(*before, run)])

        run_in_parts(copy, x.shape[cut], max(1, costs.COPY_PART * x.shape[cut] // x.nbytes), thread_count())
    return out
