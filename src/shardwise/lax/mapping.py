"""`lax.map`: a function applied to the entries of arrays one after the other, or some at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import tree_flatten, tree_map
from shardwise.ops.control.scan import scan
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes import concatenate
from shardwise.ops.shapes.pieces import slice_in_dim
from shardwise.ops.shapes.reshape import reshape
from shardwise.transforms.interpreters.vmap import vmap

__all__ = ["map"]


@user_facing
def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """``f`` of each entry of `xs` along the first dim, the results stacked along a new first dim.

    Args:
        f: from a tree of entries to a tree of arrays.
        xs: a tree of arrays that share the size of their first dim.
        batch_size: so many entries go through `f` at a time, mapped with `vmap`: faster, for that much more memory. None and 0: one.

    Raises:
        ValueError: no arrays, sizes that differ, or a negative `batch_size`.

    >>> lax.map(lambda x: x**2, jnp.arange(4))
    Array([0, 1, 4, 9], dtype=int32)
    """
    if not batch_size:
        return _one_by_one(f, xs)
    size = operator.index(batch_size)
    if size < 0:
        raise ValueError(f"lax.map: batch_size must be positive, got {batch_size}.")
    leaves, _ = tree_flatten(xs)
    if not leaves:
        return _one_by_one(f, xs)
    if not as_array(leaves[0]).ndim:
        raise ValueError("lax.map: xs must have a leading dim to map over, got a scalar.")
    n = as_array(leaves[0]).shape[0]
    full = n - n % size
    if not full:
        return vmap(f)(xs)

    def batches(x: Any) -> Any:
        x = slice_in_dim(as_array(x), 0, full, axis=0)
        return reshape(x, (full // size, size, *x.shape[1:]))

    mapped_batches = tree_map(lambda y: reshape(y, (full, *y.shape[2:])), _one_by_one(vmap(f), tree_map(batches, xs)))
    if full == n:
        return mapped_batches
    rest = vmap(f)(tree_map(lambda x: slice_in_dim(as_array(x), full, n, axis=0), xs))
    return tree_map(lambda a, b: concatenate([a, b], 0), mapped_batches, rest)


def _one_by_one(f: Callable[[Any], Any], xs: Any) -> Any:
    return scan(lambda _, x: ((), f(x)), (), xs)[1]
