"""Block form around a collective: merge the leading dims of its axes into one front dim, and split it again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir.op import Params, Types
from shardwise.runtime.blocks import expand_dim, from_front, in_front
from shardwise.runtime.env import Env

Groups = tuple[tuple[int, ...], ...]


class Turn(NamedTuple):
    """A move of elements within a block: dims are cut, put into an order, and merged."""

    cut: Shape
    order: Shape
    merged_shape: Shape


def compile_turn(
    kernel: Callable[..., Ndarray], turn: Callable[[Env, Params, Shape], Turn | None]
) -> Callable[..., Any]:
    """`compile` of a collective that only moves elements: `turn` is asked once for each shape, and `kernel` does all other moves."""

    def compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[[Ndarray], Ndarray]:
        del in_types, out_types
        turns = Bounded[Shape, Turn | None](LAYOUTS)

        def run(x: Ndarray) -> Ndarray:
            try:
                shape_turn = turns[x.shape]
            except KeyError:
                shape_turn = turns[x.shape] = turn(env, params, x.shape)
            if shape_turn is None:
                return kernel(env, x, **params)
            return x.reshape(shape_turn.cut).transpose(shape_turn.order).reshape(shape_turn.merged_shape)

        return run

    return compile


def merge_axes(env: Env, block: Ndarray, axes: tuple[str, ...]) -> tuple[Ndarray, int, tuple[int, ...]]:
    """Move the leading dims of `axes` to the front of `block` and merge them into one dim of extent n.

    Returns the block, n, and the merged leading dims.
    """
    dims = tuple([env.dim(a) for a in axes])
    for axis, d in zip(axes, dims, strict=True):
        block = expand_dim(block, d, env.size(axis))
    first = in_front(block, dims)
    if len(dims) == 1:
        return first, first.shape[0], dims
    n = math.prod(first.shape[: len(dims)])
    return first.reshape(n, *first.shape[len(dims) :]), n, dims


def unmerge_axes(env: Env, front: Ndarray, axes: tuple[str, ...], dims: tuple[int, ...]) -> Ndarray:
    """Inverse of `merge_axes`: split the front dim into the leading dims of `axes`."""
    if len(dims) != 1:
        front = front.reshape(*[env.size(a) for a in axes], *front.shape[1:])
    return from_front(front, dims)


def fold_groups(front: Ndarray, groups: Groups, fold: Callable[[Ndarray], Ndarray]) -> Ndarray:
    """Apply `fold` to each group of entries of the front dim; all members of the group receive the result."""
    out: Ndarray | None = None
    for group in groups:
        part = fold(front[list(group)])
        if out is None:
            out = np.empty((front.shape[0], *part.shape), part.dtype)
        out[list(group)] = part
    assert out is not None
    return out
