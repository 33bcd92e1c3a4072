"""Tridiagonal systems whose small pivots are moved away from zero, as inverse iteration needs them; a stack of systems at a time."""

from __future__ import annotations

import numpy as np

from shardwise.base.shapes import Ndarray

__all__: list[str] = []


def perturbed_tridiagonal_solve(dl: Ndarray, d: Ndarray, du: Ndarray, b: Ndarray) -> Ndarray:
    """x of the systems with these diagonals: [..., n], [..., n, k] -> [..., n, k].

    Elimination with partial pivoting gives a factor U of three diagonals. Pivots below ``eps * max |U|`` become that, with their
    sign; where all of U is zero, the smallest normal number.
    """
    n = d.shape[-1]
    loops = np.broadcast_shapes(dl.shape[:-1], d.shape[:-1], du.shape[:-1], b.shape[:-2])
    low, pivot, up = (np.broadcast_to(v, (*loops, n)).copy() for v in (dl, d, du))
    x = np.broadcast_to(b, (*loops, *b.shape[-2:])).copy()
    second = np.zeros_like(up)  # the diagonal of U two above the main one
    up[..., -1] = 0
    with np.errstate(all="ignore"):
        for i in range(n - 1):
            below = low[..., i + 1]
            is_swapped = np.abs(below) > np.abs(pivot[..., i])
            rows = (pivot[..., i], up[..., i], np.zeros_like(below)), (below, pivot[..., i + 1], up[..., i + 1])
            first, other = (
                [np.where(is_swapped, r, s) for r, s in zip(pair[0], pair[1], strict=True)]
                for pair in ((rows[1], rows[0]), rows)
            )
            factor = np.where(first[0] == 0, 0, other[0] / first[0])
            pivot[..., i], up[..., i], second[..., i] = first
            pivot[..., i + 1] = other[1] - factor * first[1]
            up[..., i + 1] = other[2] - factor * first[2]
            upper, lower = x[..., i, :].copy(), x[..., i + 1, :].copy()
            chosen = is_swapped[..., None]
            x[..., i, :] = np.where(chosen, lower, upper)
            x[..., i + 1, :] = np.where(chosen, upper, lower) - factor[..., None] * x[..., i, :]
        largest = np.max([np.abs(v).max(-1) for v in (pivot, up, second)], axis=0)
        info = np.finfo(pivot.dtype)
        least = np.maximum(info.eps * largest, info.tiny)[..., None]
        size = np.abs(pivot)
        sign = np.where(size == 0, 1, pivot / size)
        pivot = np.where(size < least, sign * least, pivot).astype(pivot.dtype)
        for i in reversed(range(n)):
            if i + 1 < n:
                x[..., i, :] -= up[..., i, None] * x[..., i + 1, :]
            if i + 2 < n:
                x[..., i, :] -= second[..., i, None] * x[..., i + 2, :]
            x[..., i, :] /= pivot[..., i, None]
    return x
