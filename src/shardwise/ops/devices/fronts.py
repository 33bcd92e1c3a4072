"""Block form around a collective: the leading dims of its axes as one front dim, and back."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from shardwise.runtime.blocks import Ndarray, expanded
from shardwise.runtime.env import Env

Groups = tuple[tuple[int, ...], ...]


def joined(env: Env, block: Ndarray, axes: tuple[str, ...]) -> tuple[Ndarray, int, tuple[int, ...]]:
    """`block` with the leading dims of `axes` moved to the front and merged into one of extent n.

    Returns it with n and the leading dims that were merged.
    """
    dims = tuple(env.dim(a) for a in axes)
    for axis, d in zip(axes, dims, strict=True):
        block = expanded(block, d, env.size(axis))
    moved = np.moveaxis(block, dims, range(len(dims)))
    n = math.prod(moved.shape[: len(dims)])
    return moved.reshape(n, *moved.shape[len(dims) :]), n, dims


def unjoined(env: Env, front: Ndarray, axes: tuple[str, ...], dims: tuple[int, ...]) -> Ndarray:
    """Inverse of `joined`: the front dim becomes the leading dims of `axes` again."""
    sizes = tuple(env.size(a) for a in axes)
    return np.moveaxis(front.reshape(sizes + front.shape[1:]), range(len(dims)), dims)


def invariant(front: Ndarray, dims: tuple[int, ...]) -> Ndarray:
    """A value without the joined dim, as a block with extent 1 in each of `dims`."""
    return np.expand_dims(front, tuple(sorted(dims)))


def grouped(front: Ndarray, groups: Groups, fold: Callable[[Ndarray], Ndarray]) -> Ndarray:
    """Apply `fold` to each group of entries of the front dim and give the result to all its members."""
    out: Ndarray | None = None
    for group in groups:
        part = fold(front[list(group)])
        if out is None:
            out = np.empty((front.shape[0], *part.shape), part.dtype)
        out[list(group)] = part
    assert out is not None
    return out
