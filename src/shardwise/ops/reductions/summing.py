"""Sums of blocks at memory speed, for any dims and memory layout.

NumPy's own reduction is fast along long contiguous runs, but short runs (a few dozen columns) cost it a call each. For these,
BLAS computes the same sum as a product with a vector of ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ints, Ndarray
from shardwise.runtime.products import matmul

SMALL = 1 << 15  # elements; from here on analysing the memory layout is worth its cost
_CHUNK = 1024  # rows per partial sum: keeps rounding errors small


def fast_sum(x: Ndarray, dims: Ints) -> Ndarray:
    """The sum of `x` over `dims`, in its own dtype: narrow floats accumulate in float32, integers wrap."""
    if not dims:
        return x
    dtype = x.dtype
    if dtype.itemsize < 4 and dtype.kind not in "iu":
        return np.asarray(np.add.reduce(x, axis=dims, dtype=np.float32)).astype(dtype)
    if x.size >= SMALL and dtype.kind == "f":
        total = _by_layout(x, dims)
        if total is not None:
            return total
    return np.add.reduce(x, axis=dims, dtype=dtype)


def _by_layout(x: Ndarray, dims: Ints) -> Ndarray | None:
    """The sum as a product with ones, if `x` is dense in some order of its dims and its short dims are innermost."""
    order = sorted(range(x.ndim), key=lambda d: (-abs(x.strides[d]), d))
    dense = x.transpose(order)
    if not dense.flags.c_contiguous:
        return None
    runs: list[list[int]] = []  # [size, whether it is summed], neighbours of one kind merged
    for d in order:
        n, is_summed = x.shape[d], int(d in dims)
        if n == 1:
            continue
        if runs and runs[-1][1] == is_summed:
            runs[-1][0] *= n
        else:
            runs.append([n, is_summed])
    total = _dense_sum(dense, runs)
    if total is None:
        return None
    kept_dims = [d for d in order if d not in dims]
    out = total.reshape([x.shape[d] for d in kept_dims])
    return out.transpose([kept_dims.index(d) for d in sorted(kept_dims)])


def _dense_sum(dense: Ndarray, runs: list[list[int]]) -> Ndarray | None:
    summed_pattern = [s for _, s in runs]
    if summed_pattern == [0, 1]:
        (rows, n) = runs[0][0], runs[1][0]
        if n > 4 * _CHUNK or rows < 16:
            return None
        return _product(dense.reshape(rows, n), _ones(n, dense.dtype)[:, None])[:, 0]
    if summed_pattern == [1, 0]:
        (n, columns) = runs[0][0], runs[1][0]
        if columns > _CHUNK or n < 16:
            return None
        table = dense.reshape(n, columns)
        whole = n - n % _CHUNK
        total = np.add.reduce(table[whole:], axis=0)
        if whole:
            parts = _product(_ones(_CHUNK, dense.dtype)[None], table[:whole].reshape(-1, _CHUNK, columns))
            total = total + np.add.reduce(parts[:, 0], axis=0)
        return total
    return None


def _product(a: Ndarray, b: Ndarray) -> Ndarray:
    out = np.empty((*b.shape[:-2], a.shape[0], b.shape[-1]), a.dtype)
    matmul(a, b, out)
    return out


@recent(64)
def _ones(n: int, dtype: Any) -> Ndarray:
    return np.ones(n, dtype)
