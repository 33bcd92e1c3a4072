"""`argmax` and `argmin` along a split dim: each device searches its own part, then devices compare pairs (value, position).

Comes in: an equation whose reduced dim is split. Goes out: local equations and two all-reduces: one for the extremum of all
parts, one for its first position (NaN is the extremum of both ops). A dim that the axes do not divide is searched in its frame, whose
padding rows hold the type's extreme value: if one of them wins, all values equal it, and the first position is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.ir import Atom, Equation, Literal, Op, Var, literal
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.elementwise.binary import add_p, max_p, mul_p, sub_p
from shardwise.ops.elementwise.bitwise import or_p
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.ops.elementwise.comparison import eq_p, ne_p
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.rules.operands import dtype_kind
from shardwise.ops.shapes.pieces import pad_p
from shardwise.runtime.monoids import MONOIDS

_INT32 = np.dtype(np.int32)


def along_split_dims(values: Op, kind: str) -> Callable[[Any, Equation], None]:
    """The `partition` of an op that gives positions: the op `values` gives a part's extremum, the monoid `kind` reduces these."""

    def partition(region: Any, eqn: Equation) -> None:
        if region.compute_in_frames(eqn):
            return None
        (operand,), (out,) = eqn.inputs, eqn.outputs
        (axis,), dtype = eqn.params["axes"], eqn.params["index_dtype"]
        frame = region.frame(operand, axis)
        if frame is not None:
            return _inside(region, eqn, axis, frame, MONOIDS[kind].identity(operand.aval.dtype))
        if isinstance(operand, Literal) or operand.aval.shape[axis] > np.iinfo(_INT32).max:
            return region.generic(eqn)
        atom, have = region.read(operand)
        axes = have[axis] if have else ()
        if not axes:
            return region.generic(eqn)

        def along(region: Any) -> None:
            (value,) = region.emit(values, [atom], {"axes": (axis,)})
            (place,) = region.emit(eqn.op, [atom], {"axes": (axis,), "index_dtype": _INT32})
            part = operand.aval.shape[axis] // math.prod(region.sizes_of(axes))
            (index,) = region.emit(axis_index_op, [], {"axes": axes})
            (start,) = region.emit(mul_p, [index, literal(part, _INT32)], {})
            (place,) = region.emit(add_p, [place, start], {})
            best = region.collective(all_reduce, [value], axes, value.aval, {"kind": kind})
            (wins,) = region.emit(eq_p, [value, best], {})
            if dtype_kind(value.aval.dtype) == "f":
                (is_nan,) = region.emit(ne_p, [value, value], {})
                (wins,) = region.emit(or_p, [wins, is_nan], {})
            nowhere = literal(np.iinfo(_INT32).max, _INT32)
            (place,) = region.emit(select_n_p, [wins, nowhere, place], {})
            first = region.collective(all_reduce, [place], axes, place.aval, {"kind": "min"})
            (position,) = region.emit(convert_element_type_p, [first], {"new_dtype": dtype, "weak_type": False})
            rest = (*have[:axis], *have[axis + 1 :])
            placement = region.placements.get(out, rest)
            region.define(out, region.reshard(position, rest, placement, out.aval), placement)

        along(region)

    return partition


def _inside(region: Any, eqn: Equation, axis: int, frame: Any, fill: Any) -> None:
    """Partition with the operand inside its frame along `axis`, among rows of `fill`."""
    (operand,), (out,) = eqn.inputs, eqn.outputs
    aval, low = operand.aval, frame.low
    edges = [(0, 0, 0)] * aval.ndim
    edges[axis] = low, frame.size - low - aval.shape[axis], 0
    whole = Var(aval.update(shape=(*aval.shape[:axis], frame.size, *aval.shape[axis + 1 :])))
    others = [() if set(frame.axes).intersection(own) else own for own in region.placement(operand)]
    position, bounded_position = Var(out.aval), Var(out.aval)
    placements = dict.fromkeys((position, bounded_position), region.placement(out))
    region = region.with_placements({whole: (*others[:axis], frame.axes, *others[axis + 1 :]), **placements})

    def run(op: Op, result: Var, *inputs: Atom, **params: Any) -> None:
        region.equation(Equation(op, inputs, (result,), params, eqn.source))

    run(pad_p, whole, operand, literal(fill, aval.dtype), padding_config=tuple(edges))
    run(eqn.op, position, whole, **eqn.params)
    first = literal(low, out.aval.dtype)
    run(max_p, bounded_position, position, first)
    run(sub_p, out, bounded_position, first)
