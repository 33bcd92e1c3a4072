"""`axis_index`: the device's own position along axes. In block form an iota along leading dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ir import Collective, Equation, ShapedArray, Shown, SmallForm
from shardwise.ir.axis_scope import AXIS_ENV, SPMD_AXES
from shardwise.ir.op import Params
from shardwise.ops.devices.batching import BatchedValues
from shardwise.ops.devices.declare import define_collective
from shardwise.ops.rules.derivative import do, later, repeated_sharding
from shardwise.ops.rules.out_sharding import in_context
from shardwise.sharding.rule import Rule


def _type(*, axes: tuple[str, ...]) -> ShapedArray:
    return ShapedArray((), np.dtype(np.int32), vma=frozenset(axes))


def _batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """Along the vmap's own axis: an iota along the mapped dim."""
    axes = params["axes"]
    count_dtype = np.dtype(np.int32)  # the dtype of the value that it is compared with
    split = repeated_sharding(size, in_context(ShapedArray((), count_dtype)), SPMD_AXES.get())
    own = do.iota(dtype=count_dtype, shape=(size,), dimension=0, out_sharding=split)
    if axes == (axis,):
        return [own], [0]
    counts = dict(AXIS_ENV.get())
    at = axes.index(axis)
    major, minor = axes[:at], axes[at + 1 :]
    if major:
        own = do.add(do.mul(do.axis_index(axes=major), size), own)
    if minor:
        own = do.add(do.mul(own, math.prod(counts[a] for a in minor)), do.axis_index(axes=minor))
    return [own], [0]


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    axes = eqn.params["axes"]
    return {**shown, "axis_name": axes[0]} if len(axes) == 1 else shown


axis_index_op = define_collective(
    "axis_index",
    type_rule=_type,
    kernel=lambda env, axes: env.index(axes),
    rule=lambda ins, outs, params: Rule((), ((),), (), ()),
    batch=_batch,
    collective=Collective("axis_index", alone=lambda position, operands, params: np.asarray(position, np.int32)),
    shown=Shown(renamed={"axes": "axis_name"}, change=_shown_params),
    small=SmallForm(later("shardwise.runtime.small", "constant")),
)
