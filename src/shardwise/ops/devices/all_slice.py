"""`all_slice`: each device keeps its own part of a dim, as a view and without communication. Partitioner and transposes insert it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import Collective, ShapedArray, SmallForm
from shardwise.ir.op import Params
from shardwise.ops.devices.batching import BatchedValues, require_single_axis, split_dim
from shardwise.ops.devices.declare import define_collective, of_one_device
from shardwise.ops.devices.lines import own_entries
from shardwise.ops.devices.rules import moved_dim_rule
from shardwise.ops.rules.derivative import do, full_in_front, later
from shardwise.runtime.env import Env
from shardwise.runtime.strided import strided_view


def _type(x: ShapedArray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int) -> ShapedArray:
    shape = list(x.shape)
    shape[dim] //= math.prod(sizes)
    return ShapedArray(shape, x.dtype, x.weak_type, vma=x.vma | set(axes), unreduced=x.unreduced, reduced=x.reduced)


def _kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int) -> Ndarray:
    """Each device along `axes` keeps its own part of dim `dim`: a view, without communication."""
    at = env.lead + dim
    shape = x.shape
    split = x.reshape(*shape[:at], *sizes, shape[at] // math.prod(sizes), *shape[at + 1 :])
    if env.processes is not None:
        for i, a in enumerate(axes):
            split = own_entries(env, split, a, at + i)
    for i, a in enumerate(axes):
        if split.shape[env.dim(a)] != 1:  # devices have values of their own
            split = _diagonal(split, env.dim(a), at + i)
    order = [i for i in range(split.ndim) if not at <= i < at + len(axes)]
    for i, a in enumerate(axes):
        order[env.dim(a)] = at + i  # the new grid dim replaces the old one, which has extent 1 by now
    old = [env.dim(a) for a in axes]
    return split.transpose(order + old).reshape([split.shape[i] for i in order])


def _diagonal(x: Ndarray, dim: int, other: int) -> Ndarray:
    """Entry i of dim `other` is the one at i of dim `dim`, too, which has size 1 then (a view)."""
    shape, strides = list(x.shape), list(x.strides)
    shape[dim] = 1
    strides[other] += strides[dim]
    return strided_view(x, shape, strides)


def _transpose(ct: Any, x: Any, **params: Any) -> list[Any]:
    return [do.all_gather(ct, tiled=True, groups=None, invariant=True, **params)]


def _batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """Along the vmap's own axis: each element of the mapped dim keeps its own part."""
    (x,), (dim,), at = values, dims, params["dim"]
    x = full_in_front(size, x, dim)
    if axis not in params["axes"]:
        return [do.all_slice(x, **{**params, "dim": at + 1})], [0]
    require_single_axis("all_slice", axis, params)
    if dim is None:
        return [split_dim(values[0], at, size)], [at]
    split = split_dim(x, at + 1, size)  # element i of the mapped dim keeps part i
    index = do.iota(dtype=np.dtype(np.int32), shape=(size, size), dimension=0, out_sharding=None)
    other = do.iota(dtype=np.dtype(np.int32), shape=(size, size), dimension=1, out_sharding=None)
    own = do.convert_element_type(do.eq(index, other), new_dtype=x.dtype, weak_type=False)
    own = do.broadcast_in_dim(own, shape=split.shape, broadcast_dimensions=(0, at + 1), out_sharding=None)
    return [do.reduce_sum(do.mul(split, own), axes=(at + 1,))], [0]


def _alone(position: int, operands: Sequence[Ndarray], params: Params) -> Ndarray:
    return np.split(operands[0], math.prod(params["sizes"]), params["dim"])[position]


all_slice = define_collective(
    "all_slice",
    type_rule=_type,
    kernel=_kernel,
    view=True,
    rule=moved_dim_rule(lambda p: (p["dim"],)),
    jvp="linear",
    transpose=_transpose,
    batch=_batch,
    rewrite=of_one_device,
    collective=Collective("slice", alone=_alone),
    small=SmallForm(later("shardwise.runtime.small", "move_elements"), later("shardwise.runtime.small", "moves_fit")),
)
