"""Join dims that mesh axes split, so that a kernel works on all devices' parts at once instead of on each part alone.

    block (4, 2 | 2, 3), dim 0 split by x  ->  (1, 2 | 8, 3)     a view wherever strides allow

Comes in: a block and, per dim of the shard, the mesh axes that split it. Goes out: the block with the leading dims of these axes
merged into the dims, and the inverse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes, Ndarray
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.runtime.blocks import expand_dim, with_ones
from shardwise.runtime.env import Env


@dataclass(frozen=True, slots=True)
class JoinedBlock:
    """A block with joined dims, as far as this process owns them: `begins[d]` is the first position owned of dim d."""

    block: Ndarray
    begins: dict[int, int]


def join(env: Env, x: Ndarray, split: Sequence[Axes], *others: Ndarray) -> JoinedBlock | None:
    """`x` with the parts of each split dim joined.

    None if this process's parts are not adjacent, if it owns only one device's part, or if `others` vary along these axes.
    """
    if env.lead < len(env.axis_names):
        return None
    axis_dims = [env.dim(a) for axes in split for a in axes]
    if any(other.shape[d] != 1 for other in others for d in axis_dims):
        return None
    begins = {}
    for d, axes in enumerate(split):
        if not axes:
            continue
        first = env.first_part(axes)
        if first is None:
            return None
        begins[d] = first * x.shape[env.lead + d]
    for d in axis_dims:
        x = expand_dim(x, d, env.extent(env.axis_names[d]))
    order = [i for i in range(env.lead) if i not in axis_dims]
    shape = [x.shape[i] for i in order]
    for d, axes in enumerate(split):
        group = [*(env.dim(a) for a in axes), env.lead + d]
        order += group
        shape.append(math.prod(x.shape[i] for i in group))
    return JoinedBlock(with_ones(x.transpose(order).reshape(shape), tuple(axis_dims)), begins)


class OwnParts(NamedTuple):
    """The parts of a value that this process owns, and where they lie in it.

    Attributes:
        block: the parts, joined where that is possible.
        sizes: the value's dims.
        begins: for each dim that is still split, the first position of each part, in the shape of the leading dims.
        are_joined: whether `block` has joined dims.
    """

    block: Ndarray
    sizes: list[int]
    begins: dict[int, Ndarray]
    are_joined: bool


def own_parts(env: Env, x: Ndarray, split: Sequence[Axes] | None, *others: Ndarray, joins: bool = True) -> OwnParts:
    """The parts of `x`, whose dims these axes `split`; they are joined as `join` does it, if `joins`."""
    lead = env.lead
    sizes = list(x.shape[lead:])
    if not split:
        return OwnParts(x, sizes, {}, False)
    for d, axes in enumerate(split):
        sizes[d] *= math.prod(env.size(a) for a in axes)
    joined_parts = join(env, x, split, *others) if joins else None
    if joined_parts is None:
        begins = {d: env.index(axes) * x.shape[lead + d] for d, axes in enumerate(split) if axes}
        return OwnParts(x, sizes, begins, False)
    x = joined_parts.block
    begins = {
        d: np.full((1,) * lead, begin) for d, begin in joined_parts.begins.items() if x.shape[lead + d] != sizes[d]
    }
    return OwnParts(x, sizes, begins, True)


def cut(env: Env, x: Ndarray, split: Sequence[Axes]) -> Ndarray:
    """Inverse of `join`: a view."""
    axis_dims = [env.dim(a) for axes in split for a in axes]
    order = [i for i in range(env.lead) if i not in axis_dims]
    shape = [x.shape[i] for i in order]
    place = {i: at for at, i in enumerate(order)}
    for d, axes in enumerate(split):
        for a in axes:
            place[env.dim(a)] = len(shape)
            shape.append(env.extent(a))
        place[env.lead + d] = len(shape)
        shape.append(x.shape[env.lead + d] // math.prod(env.extent(a) for a in axes))
    return x.reshape(shape).transpose([place[i] for i in range(x.ndim)])


def move_axes_in(env: Env, x: Ndarray, axes: Axes) -> Ndarray:
    """`x` with the leading dims of `axes` turned into the first dims of the shard; extents of 1 remain in their place."""
    dims = [env.dim(a) for a in axes]
    order = [*(i for i in range(env.lead) if i not in dims), *dims, *range(env.lead, x.ndim)]
    return with_ones(x.transpose(order), dims)


def reduce_axes(env: Env, x: Ndarray, axes: Axes, kind: str) -> Ndarray:
    """The reduction over this process's devices along `axes`."""
    own = Env(env.axis_names, tuple(env.extent(a) for a in env.axis_names), env.extra)
    return all_reduce.block_kernel(own, x, axes=axes, kind=kind)
