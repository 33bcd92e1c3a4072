"""The op 'masked_sum': rows of tables that devices hold parts of, of which a mask leaves each device its own, summed over the devices.

    sum over devices of where(own, table[positions], 0)

Its program is the read, views, the choice and the sum; `rest`, if any, gives each device its part of a sum that is scattered. Mostly one
device has each row: then as many rows are read as the result has, however many devices there are. Where several have one, or most rows
are left, the equations run one after the other.
"""

from __future__ import annotations

import math
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
    rest: Program | None = params["rest"]
    out = out_types[0] if rest is None else rest.inputs[0].aval
    own_parts = None if rest is None else Plan(rest, env).run
    lead, count, row = env.lead, in_types[1].shape[0], (0,) * (out.ndim - 1)
    summed_dims = {env.dim(a): env.size(a) for a in params["axes"]}

    def run(mask: Ndarray, table: Ndarray, positions: Ndarray) -> tuple[Ndarray, ...]:
        if any(n > 1 and s for n, s in zip(mask.shape[lead + 1 :], mask.strides[lead + 1 :], strict=True)):
            return plain(mask, table, positions)  # elements of a row have masks of their own
        extents = np.broadcast_shapes(mask.shape[:lead], table.shape[:lead], positions.shape[:lead])
        left = np.broadcast_to(mask[(..., *row)], (*extents, out.shape[0]))
        if params["turned"]:
            left = ~left
        alike = any(extents[d] != n for d, n in summed_dims.items())  # devices that all add the same
        if alike or _FEW * np.count_nonzero(left) > left.size:
            return plain(mask, table, positions)
        *devices, rows = _places(np.flatnonzero(left), left.shape)
        at = positions.reshape(-1).take(_numbers(devices, rows, positions.shape)).astype(np.int64)
        if read.wraps:
            at = np.where(at < 0, at + count, at)
        # Which row of all devices' tables each row of the result is.
        shape = tuple([1 if d in summed_dims else n for d, n in enumerate(extents)])
        source = np.full(math.prod(shape) * out.shape[0], -1)
        source[_numbers(devices, rows, (*shape, out.shape[0]))] = _numbers(devices, at.clip(0, count - 1), table.shape)
        is_missing = source < 0
        if source.size - np.count_nonzero(is_missing) < len(rows):
            return plain(mask, table, positions)  # a row of several devices
        result = pool.empty((*shape, *out.shape), out.dtype)
        result_rows = result.reshape(-1, *out.shape[1:])
        if table.flags.c_contiguous:
            table.reshape(-1, *out.shape[1:]).take(source, 0, result_rows, "clip")
        else:
            result_rows[...] = table[tuple(_places(source.clip(0), table.shape[: lead + 1]))]
        np.add(result_rows, np.zeros((), out.dtype), out=result_rows)  # others add zeros: -0.0 becomes 0.0
        if is_missing.any():
            result_rows[is_missing] = 0
        return (result,) if own_parts is None else own_parts(result)

    return run


def _places(numbers: Ndarray, shape: tuple[int, ...]) -> list[Any]:
    """Where elements with these numbers lie along each dim."""
    index_arrays = list[Any]()
    for n in reversed(shape[1:]):
        at: Any = 0
        if n > 1:
            numbers, at = np.divmod(numbers, n)
        index_arrays.append(at)
    return [numbers, *reversed(index_arrays)]


def _numbers(devices: list[Any], rows: Ndarray, shape: tuple[int, ...]) -> Ndarray:
    """The numbers of devices' rows in a block of such a shape, in which devices along a dim of extent 1 share a part."""
    number: Any = 0
    for own, n in zip(devices, shape, strict=False):
        number = number * n + own if n > 1 else number
    return number * shape[len(devices)] + rows


def _type(*types: ShapedArray, program: Program, **params: Any) -> tuple[ShapedArray, ...]:
    del types, params
    return program.out_types


masked_sum_p = define_op("masked_sum", type_rule=_type, compile=_compile, multiple_results=True, local=True)
