"""Copies of large arrays: into memory of the pool, which costs no page faults, and by several threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.runtime.memory import LEAST, pool
from shardwise.runtime.threads import helpers, thread_count

Ndarray = np.ndarray[Any, Any]

_PART = 1 << 20  # bytes that a thread copies at a time
_SHARED = 1 << 22  # bytes from which a second thread pays


def copied(x: Ndarray, dtype: Any = None) -> Ndarray:
    """A dense copy of `x`, cast to `dtype`, in the order that its dims have in memory."""
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    if x.size * dtype.itemsize < LEAST or x.dtype.hasobject:
        return x.astype(dtype, copy=True)
    order = sorted(range(x.ndim), key=lambda d: (-abs(x.strides[d]), d))
    source = x.transpose(order)
    out = pool.empty(source.shape, dtype)
    fill(out, source)
    return out.transpose(np.argsort(order))


def fill(out: Ndarray, source: Ndarray) -> None:
    """Copy `source` into `out`, of the same shape and C-contiguous, casting as `astype` does."""
    if source.flags.c_contiguous:
        out, source = out.reshape(-1), source.reshape(-1)
    rows = len(out) if out.ndim else 0
    if out.nbytes < _SHARED or rows < 2:
        np.copyto(out, source, casting="unsafe")
        return
    step = max(1, _PART * rows // out.nbytes)
    counter = itertools.count()  # its steps are atomic

    def work() -> None:
        while (start := next(counter) * step) < rows:
            np.copyto(out[start : start + step], source[start : start + step], casting="unsafe")

    helpers.run(work, thread_count())


def chosen(x: Ndarray, positions: Sequence[int]) -> Ndarray:
    """``x[positions]`` along the first dim."""
    shape = (len(positions), *x.shape[1:])
    if x.nbytes < LEAST:
        return x[list(positions)]
    out = pool.empty(shape, x.dtype)
    counter = itertools.count()

    def work() -> None:
        while (i := next(counter)) < len(positions):
            np.copyto(out[i], x[positions[i]])

    helpers.run(work, thread_count() if out.nbytes >= _SHARED else 1)
    return out
