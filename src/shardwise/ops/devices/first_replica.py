"""`first_replica`: the value of the first device along axes, where copies may differ and one has to count for all devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import Collective, ShapedArray, literal
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.batching import pointwise
from shardwise.ops.devices.declare import define_collective
from shardwise.ops.devices.each import Operands
from shardwise.ops.devices.lines import Kernel, annotate_sends, block_bytes, front_of, line_of, settle_extents, tag_of
from shardwise.ops.devices.rules import same_dims
from shardwise.ops.rules.derivative import do
from shardwise.runtime.blocks import with_ones
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes import the_world


def on_first(x: Any, axes: tuple[str, ...]) -> Any:
    """`x` on the first device along `axes`, zeros on the others: partial sums of `x`."""
    first = do.eq(do.axis_index(axes=axes), literal(0, np.dtype(np.int32)))
    spread = lambda v: do.broadcast_in_dim(v, shape=x.shape, broadcast_dimensions=(), out_sharding=None)  # noqa: E731
    zeros = spread(literal(np.zeros((), x.dtype)[()], x.dtype, weak_type=x.aval.weak_type))
    return do.select_n(spread(first) if x.ndim else first, zeros, do.pvary(x, axes=axes))


def _type(x: ShapedArray, *, axes: tuple[str, ...]) -> ShapedArray:
    return x.update(vma=x.vma - set(axes))


def _kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...]) -> Ndarray:
    take = [slice(None)] * x.ndim
    for a in axes:
        take[env.dim(a)] = slice(0, 1)
    return x[tuple(take)]


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """The process that owns the first position along the axes sends its value to the others."""
    axes = params["axes"]
    line = line_of(env, axes)
    if not line.crosses:
        return lambda x: _kernel(env, x, **params)
    owner = next(k for k, member in enumerate(line.members) if 0 in member)
    at = list(line.members[owner]).index(0)
    settle, tag = settle_extents(env, in_types[0], axes), tag_of("first_replica", env, in_types, params)

    def run(x: Ndarray) -> Ndarray:
        front, dims = front_of(env, settle(x), axes)
        takes = [pool.empty((int(k == owner), *front.shape[1:]), front.dtype) for k in range(len(line.ranks))]
        own = front[at : at + 1] if line.me == owner else front[:0]
        the_world().link(line.ranks).all_gather(own, takes, tag)
        return with_ones(takes[owner][0], dims)

    sent_bytes = block_bytes(env, in_types[0], axes) * (len(line.ranks) - 1) if line.me == owner else 0
    return annotate_sends(run, sent_bytes, line.ranks)


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    return [operands[0][0]] * len(operands)


first_replica = define_collective(
    "first_replica",
    type_rule=_type,
    kernel=_kernel,
    rule=same_dims,
    view=True,
    jvp="linear",
    batch=pointwise("first_replica"),
    transpose=lambda ct, x, axes: [on_first(ct, axes)],
    across=_across,
    collective=Collective(
        "first_replica", exchange=_exchange, called=lambda params: "the end of the function (one value for all)"
    ),
)
