"""Trends taken out of signals: `detrend`; found in `scipy.signal`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.numpy._promote import as_array, convert, promote_inexact

__all__ = ["detrend"]


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: int = 0, overwrite_data: None = None) -> Array:
    """`data` less, along `axis`, by `type`, its mean ('constant') or the line that fits it best ('linear', piecewise
    between the break points `bp`).

    Args:
        overwrite_data: without effect.

    Raises:
        ValueError: `type` is another word, or a break point is out of range.

    >>> from shardwise.scipy import signal
    >>> jnp.abs(signal.detrend(jnp.array([1.0, 2.0, 3.0]))).round(3)
    Array([0., 0., 0.], dtype=float32)
    """
    x = as_array(*promote_inexact(jnp.asarray(data)))
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    if type == "constant":
        return x - jnp.mean(x, axis, keepdims=True)
    n = x.shape[axis]
    points = sorted({0, *np.ravel(bp).tolist(), n})
    if points[0] < 0 or points[-1] > n:
        raise ValueError("Breakpoints must be non-negative and less than length of data along given axis.")
    rows = jnp.moveaxis(x, axis, 0)
    flat = jnp.reshape(rows, (n, -1))
    parts = []
    for start, end in itertools.pairwise(points):
        line = np.stack([np.ones(end - start), np.arange(1, end - start + 1) / (end - start)], 1).astype(x.dtype)
        part = flat[start:end]
        parts.append(part - jnp.asarray(line) @ (jnp.asarray(np.linalg.pinv(line)) @ part))
    out = jnp.moveaxis(jnp.reshape(jnp.concatenate(parts), rows.shape), 0, axis)
    return as_array(convert(out, out.dtype, x.weak_type))
