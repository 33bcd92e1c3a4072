"""Determinants, and their logarithms, from LU factors; those of small matrices by their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ops.linalg.lapack import gufunc, is_finite, nan_of


def _nan_mask(x: Ndarray) -> Ndarray | None:
    """A mask of the matrices with NaNs, which LU decompositions may lose; None if none has."""
    return None if is_finite(x) else np.asarray(np.isnan(x).any(axis=(-2, -1)))


def slogdet(x: Ndarray) -> tuple[Ndarray, ...]:
    """Sign (for complex matrices a unit number) and logarithm of the determinant's magnitude."""
    from shardwise.ops.linalg import stacks  # start-up time

    return stacks.slogdet(x, _slogdet) or _slogdet(x)


def _slogdet(x: Ndarray) -> tuple[Ndarray, ...]:
    sign, log = (np.asarray(v) for v in gufunc("slogdet", x))
    nan_mask = _nan_mask(x)
    return (sign, log) if nan_mask is None else tuple(np.where(nan_mask, nan_of(v.dtype), v) for v in (sign, log))  # type: ignore[return-value]


def det(x: Ndarray) -> Ndarray:
    """Determinants: by their definition up to 3 by 3, else by LU decompositions."""
    from shardwise.ops.linalg import stacks  # start-up time

    by_lanes = stacks.det(x, _det)
    return _det(x) if by_lanes is None else by_lanes


def _det(x: Ndarray) -> Ndarray:
    n = x.shape[-1]
    if 0 < n < 4:
        if x.size == n * n:
            return np.full(x.shape[:-2], small_det([x.reshape(n, n).tolist()], n)[0], x.dtype)
        wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64, copy=False)
        with np.errstate(all="ignore"):
            return small_det(wide.transpose(-2, -1, *range(x.ndim - 2))[None], n)[0].astype(x.dtype)
    out, nan_mask = np.asarray(gufunc("det", x)), _nan_mask(x)
    return out if nan_mask is None else np.where(nan_mask, nan_of(x.dtype), out)


def small_det(stack: Any, n: int) -> list[Any]:
    """Determinants of matrices of numbers or arrays, in double precision, so that single precision loses nothing."""
    if n == 1:
        return [m[0][0] for m in stack]
    if n == 2:
        return [a * d - b * c for (a, b), (c, d) in stack]
    return [
        (a * e * i + b * f * g + c * d * h) - (c * e * g + a * f * h + b * d * i)
        for (a, b, c), (d, e, f), (g, h, i) in stack
    ]
