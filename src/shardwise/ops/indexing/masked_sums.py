"""The op 'masked_sum': rows of tables that devices hold parts of, of which a mask leaves each device its own, summed over the devices.

    sum over devices of where(own, table[positions], 0)

Its program is the read, views, the choice and the sum. Mostly one device has each row: then as many rows are read as the result has,
however many devices there are. Where several have one, or most rows are left, the equations run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import ElementRead, Equation, Program, ShapedArray, define_op
from shardwise.ir.op import Params, Types
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.plan import Plan

_FEW = 2  # parts of the devices' rows, of which the mask may leave one at most


def reads_rows(eqn: Equation) -> bool:
    """Whether an equation reads whole rows of a table, one for each index along the result's first dim."""
    if eqn.op.element_read is None or len(eqn.inputs) != 2:
        return False
    read: ElementRead | None = eqn.op.element_read(eqn)
    table, out = eqn.inputs[0].aval, eqn.outputs[0].aval
    return (
        read is not None
        and (read.at, read.spans, read.fill, read.aligned) == ((0,), (1,), None, ())
        and read.along == (None, *range(1, out.ndim))
        and table.ndim == out.ndim
        and table.shape[1:] == out.shape[1:]
        and eqn.inputs[1].aval.shape == (out.shape[0],) + (1,) * (out.ndim - 1)
    )


def _compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Any]:
    plain = Plan(params["program"], env).run
    read: ElementRead = params["read"]
    (out,) = out_types
    lead, count = env.lead, in_types[1].shape[0]
    summed = {env.dim(a): env.size(a) for a in params["axes"]}

    def run(mask: Ndarray, table: Ndarray, positions: Ndarray) -> tuple[Ndarray, ...]:
        if any(n > 1 and s for n, s in zip(mask.shape[lead + 1 :], mask.strides[lead + 1 :], strict=True)):
            return plain(mask, table, positions)  # elements of a row have masks of their own
        extents = np.broadcast_shapes(mask.shape[:lead], table.shape[:lead], positions.shape[:lead])
        left = np.broadcast_to(mask.reshape((*mask.shape[: lead + 1], -1))[..., 0], (*extents, out.shape[0]))
        if params["turned"]:
            left = ~left
        alike = any(extents[d] != n for d, n in summed.items())  # devices that all add the same
        if alike or _FEW * np.count_nonzero(left) > left.size:
            return plain(mask, table, positions)
        *devices, rows = np.nonzero(left)
        at = positions[(*_places(devices, positions.shape), rows)].reshape(-1).astype(np.int64)
        if read.wraps:
            at = np.where(at < 0, at + count, at)
        shape = tuple([1 if d in summed else n for d, n in enumerate(extents)])
        places = (*_places(devices, shape), rows)
        if np.bincount(np.ravel_multi_index(places, (*shape, out.shape[0])), minlength=1).max() > 1:
            return plain(mask, table, positions)  # a row of several devices
        result = pool.empty((*shape, *out.shape), out.dtype)
        result[...] = 0
        found = table[(*_places(devices, table.shape), at.clip(0, count - 1))]
        result[places] = found + np.zeros((), out.dtype)  # others add zeros: -0.0 becomes 0.0
        return (result,)

    return run


def _places(devices: list[Ndarray], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Where devices' parts lie along the leading dims of a block of such a shape."""
    return tuple([own if n > 1 else np.zeros_like(own) for own, n in zip(devices, shape, strict=False)])


def _type(*types: ShapedArray, program: Program, **params: Any) -> tuple[ShapedArray, ...]:
    del types, params
    return program.out_types


masked_sum_p = define_op("masked_sum", type_rule=_type, compile=_compile, multiple_results=True, local=True)
