"""Writing elements at flat positions, and along one dim: `put`, `put_along_axis`."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.errors import about
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked_array
from shardwise.numpy._promote import canonical_axis
from shardwise.numpy._promote import value as checked_value
from shardwise.numpy.at import update_index
from shardwise.numpy.indexing import wrap_index
from shardwise.ops.rules.convert import as_value

__all__ = ["put", "put_along_axis"]


def _not_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise about(
            "immutable",
            ValueError(
                f"jax.numpy.{name} cannot modify arrays in-place, because JAX arrays are immutable. Pass inplace=False to "
                "instead return an updated array."
            ),
        )


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Array:
    """`a` with the elements at the flat positions `ind` replaced by `v`, which repeats as often as needed.

    `mode` for positions out of bounds: 'wrap' takes the remainder, 'clip' clamps, and so does None, which counts negative
    ones from the end before. ValueError unless inplace=False; NotImplementedError for mode 'raise'.

    >>> jnp.put(jnp.zeros(3), 1, 5.0, inplace=False)
    Array([0., 5., 0.], dtype=float32)
    """
    _not_in_place("put", inplace)
    x, index, values = checked_array("put", a), checked_array("put", ind, 1), checked_array("put", v, 2)
    if not index.size or not values.size:
        return x
    flat = lax.reshape(index, (index.size,))
    source = lax.reshape(values, (values.size,))
    if source.size < flat.size:
        source = lax.tile(source, (-(-flat.size // source.size),))
    source = lax.slice(source, (0,), (flat.size,)) if source.size != flat.size else source
    options: dict[str, Any] = {"mode": "clip"}
    if mode == "clip":
        options["wrap_negative_indices"] = False
    elif mode == "wrap":
        flat = wrap_index(flat, x.size)
    elif mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.put is not supported. Use mode='clip' or 'wrap'.")
    elif mode is not None:
        raise ValueError(f"mode should be one of 'wrap' or 'clip'; got {mode=}")
    return lax.reshape(update_index(lax.reshape(x, (x.size,)), flat, source, "", **options), x.shape)


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: str | None = None
) -> Array:
    """`arr` with the elements at `indices` along `axis` replaced by `values`, other dims running in step.

    ValueError unless inplace=False, and where ranks or shapes do not fit.

    Args:
        mode: what happens to indices out of bounds, as for `Array.at`.

    >>> jnp.put_along_axis(jnp.array([[1, 2], [3, 4]]), jnp.array([[0], [1]]), 9, axis=1, inplace=False)
    Array([[9, 2],
           [3, 9]], dtype=int32)
    """
    _not_in_place("put_along_axis", inplace)
    x, index = checked_array("put_along_axis", arr), checked_array("put_along_axis", indices, 1)
    value = as_value(checked_value("put_along_axis", values, 2))
    original = x.shape
    if axis is None:
        x, axis = lax.reshape(x, (x.size,)), 0
    if x.ndim != index.ndim:
        raise ValueError(
            f"put_along_axis arguments 'arr' and 'indices' must have same ndim. Got {x.ndim=} and {index.ndim=}."
        )
    d = canonical_axis(axis, x.ndim)
    others = [
        np.arange(n).reshape([-1 if i == k else 1 for i in range(x.ndim)]) if k != d else None
        for k, n in enumerate(x.shape)
    ]
    where = tuple(index if other is None else other for other in others)
    return lax.reshape(update_index(x, where, value, "", mode=mode), original)
