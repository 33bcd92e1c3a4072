"""`sort` and `top_k` along a split dim: devices exchange only misplaced elements instead of gathering whole rows.

Comes in: an equation whose dim is split. Goes out: local equations and collectives, where they send less than whole rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.ir import Equation, literal
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.devices.split_sort import split_sort
from shardwise.ops.elementwise.binary import add_p, mul_p
from shardwise.ops.indexing.along_dims import along_params, as_indices
from shardwise.ops.indexing.gather import gather_p
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.even_parts import missing_rows, with_rows_behind
from shardwise.ops.shapes.iota import iota_p

_INT32 = np.dtype(np.int32)


def sort_partition(region: Any, eqn: Equation) -> None:
    """Bring the operands to one layout and sort rows across the devices; each device keeps the same number of elements."""
    if region.compute_in_frames(eqn):
        return None
    dim = eqn.params["dimension"]
    fills = _last_ones(eqn)
    if fills is not None and missing_rows(region, eqn, dim):
        return with_rows_behind(region, eqn, dim, fills, 0, sort_partition)
    layouts = [region.placements.get(v) for v in eqn.outputs] + [region.layout(a) for a in eqn.inputs]
    lay = next((dims for dims in layouts if dims and dims[dim]), None)
    if lay is None or not eqn.inputs[0].aval.size:
        return region.generic(eqn)

    def along(region: Any) -> None:
        axes, aval = lay[dim], eqn.inputs[0].aval
        atoms = [region.move_value(a, *region.read(a), lay) for a in eqn.inputs]
        params = {"axes": axes, "sizes": region.sizes_of(axes), **eqn.params}
        if _is_permutation(region, eqn):
            params["places"] = True
        outs = region.collectives(split_sort, atoms, axes, aval, params)
        for var, out in zip(eqn.outputs, outs, strict=True):
            placement = region.placements.get(var, lay)
            region.define(var, region.reshard(out, lay, placement, var.aval), placement)

    region.cheapest(along, lambda region: region.generic(eqn))


def _is_permutation(region: Any, eqn: Equation) -> bool:
    """Whether the only key is a row of positions in some order: those that another sort has moved."""
    key, dim = eqn.inputs[0], eqn.params["dimension"]
    mover = region.maker(key)
    if eqn.params["num_keys"] != 1 or mover is None or mover.op is not eqn.op or mover.params["dimension"] != dim:
        return False
    places = region.maker(mover.inputs[mover.outputs.index(key)])
    return places is not None and places.op is iota_p and places.params["dimension"] == dim


def _last_ones(eqn: Equation) -> list[Any] | None:
    """Per operand, a value that sorts after all others if it is last in its row already; None if there is none."""
    key = eqn.inputs[0].aval.dtype
    stays = eqn.params["is_stable"] or eqn.params["num_keys"] == len(eqn.inputs)
    if key.kind not in "iu" or not stays:
        return None
    greatest = [np.iinfo(a.aval.dtype).max if a.aval.dtype.kind in "iu" else 0 for a in eqn.inputs]
    return (
        greatest if len({a.aval.dtype.kind for a in eqn.inputs[: eqn.params["num_keys"]]} - {"i", "u"}) == 0 else None
    )


def top_k_partition(region: Any, eqn: Equation) -> None:
    """Each device finds the greatest elements of its part; the result is selected from these."""
    if region.compute_in_frames(eqn):
        return None
    (operand,), k, axis = eqn.inputs, eqn.params["k"], eqn.params["axis"]
    atom, have = region.read(operand)
    if not have or not have[axis] or not k or not operand.aval.size:
        return region.generic(eqn)
    axes = have[axis]

    def whole(dims: Any) -> Any:
        return (*dims[:axis], (), *dims[axis + 1 :])

    def along(region: Any) -> None:
        part, placements = atom.aval.shape[axis], [region.placements.get(v, whole(have)) for v in eqn.outputs]
        kept_count = min(k, part)
        values, places = region.emit(eqn.op, [atom], {"k": kept_count, "axis": axis})
        (index,) = region.emit(axis_index_op, [], {"axes": axes})
        (start,) = region.emit(mul_p, [index, literal(part, _INT32)], {})
        (places,) = region.emit(add_p, [places, start], {})
        # The devices' candidates are in the order of their parts, so that equal ones stay in the order of their positions.
        shape = list(operand.aval.shape)
        shape[axis] = kept_count * math.prod(region.sizes_of(axes))
        merged_layout = whole(placements[0])
        values, places = (region.reshard(x, have, merged_layout, x.aval.update(shape=shape)) for x in (values, places))
        values, order = region.emit(eqn.op, [values], {"k": k, "axis": axis})
        (order,) = region.emit(broadcast_in_dim_p, [order], as_indices(order.aval))
        (places,) = region.emit(gather_p, [places, order], along_params(len(shape), axis))
        for var, out, dims in zip(eqn.outputs, (values, places), placements, strict=True):
            region.define(var, region.reshard(out, merged_layout, dims, var.aval), dims)

    def whole_rows(region: Any) -> None:
        region.generic(eqn)

    region.cheapest(along, whole_rows)
