"""`shardwise.scipy.ndimage`: arrays read between their entries."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import issubdtype
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array

__all__ = ["map_coordinates"]


def _mirror_index(i: Any, n: int) -> Any:
    period = max(2 * (n - 1), 1)
    return jnp.abs((i + n - 1) % period - (n - 1)) if n > 1 else jnp.zeros_like(i)


def _reflect_index(i: Any, n: int) -> Any:
    return _mirror_index(2 * i + 1, 2 * n + 1) // 2


_INSIDE: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda i, n: i,
    "nearest": lambda i, n: jnp.clip(i, 0, n - 1),
    "wrap": lambda i, n: i % n,
    "mirror": _mirror_index,
    "reflect": _reflect_index,
}


def _nearest(c: Any) -> list[tuple[Any, Any]]:
    index = _round_away(c).astype(np.int32)
    return [(index, jnp.ones((), c.dtype))]


def _round_away(c: Any) -> Any:
    return jnp.where(c >= 0, jnp.floor(c + 0.5), jnp.ceil(c - 0.5)) if issubdtype(c.dtype, np.floating) else c


def _linear(c: Any) -> list[tuple[Any, Any]]:
    below = jnp.floor(c)
    upper = c - below
    index = below.astype(np.int32)
    return [(index, 1 - upper), (index + 1, upper)]


def map_coordinates(
    input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0
) -> Array:
    """`input` at `coordinates`, one array of positions per dim, all of one shape, which is the result's.

    Args:
        order: 0 takes the nearest entry, 1 interpolates linearly; NotImplementedError for others.
        mode: the values outside: 'constant' (`cval`), 'nearest', 'wrap', 'mirror', 'reflect'.

    Integers are rounded results of floats. Raises ValueError for another number of coordinates than dims.

    >>> image = jnp.array([[0.0, 1.0], [2.0, 3.0]])
    >>> jax.scipy.ndimage.map_coordinates(image, [jnp.array([0.5, 1.0]), jnp.array([0.5, 0.0])], order=1)
    Array([1.5, 2. ], dtype=float32)
    """
    x = jnp.asarray(input)
    if len(coordinates) != x.ndim:
        raise ValueError(f"coordinates must be a sequence of length input.ndim, but {len(coordinates)} != {x.ndim}")
    if mode not in _INSIDE:
        raise NotImplementedError(
            f"jax.scipy.ndimage.map_coordinates does not yet support mode {mode}. Currently supported modes are "
            f"{set(_INSIDE)}. Use scipy.ndimage through pure_callback."
        )
    if order not in (0, 1):
        raise NotImplementedError(
            "map_coordinates requires order<=1; use scipy.ndimage through pure_callback for other splines."
        )
    given = [jnp.asarray(c) for c in coordinates]
    parts = []
    for c, n in zip(given, x.shape, strict=True):
        floats = c if issubdtype(c.dtype, np.floating) else c.astype(jnp.result_type(float))
        neighbours = []
        for index, weight in (_nearest if order == 0 else _linear)(floats):
            inside = (index >= 0) & (index < n) if mode == "constant" else None
            neighbours.append((_INSIDE[mode](index, n), inside, weight))
        parts.append(neighbours)
    outputs = []
    for chosen in itertools.product(*parts):
        valid = [v for _, v, _ in chosen if v is not None]
        values = x[tuple(jnp.clip(i, 0, n - 1) for (i, _, _), n in zip(chosen, x.shape, strict=True))]
        if valid:
            values = jnp.where(functools.reduce(jnp.logical_and, valid), values, jnp.asarray(cval, x.dtype))
        outputs.append(functools.reduce(jnp.multiply, [w for *_, w in chosen]) * values)
    result = functools.reduce(jnp.add, outputs)
    if issubdtype(x.dtype, np.integer):
        result = _round_away(result)
    return jnp.broadcast_to(result, jnp.broadcast_shapes(*[c.shape for c in given])).astype(x.dtype)


__dir__ = _listing(__name__)
