"""Gathers and scatters whose positions permute a split dim: sort the elements to their positions instead of gathering them.

The params identify a permutation: positions are unique, in bounds and as many as the dim has elements, and all other dims are
aligned. Examples are the derivative of `sort` and its transpose.

Comes in: an equation with such operands. Goes out: sorts along the split dim, where they send less than whole rows or sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.ir import Equation, literal
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.devices.split_sort import split_sort
from shardwise.ops.elementwise.binary import add_p, mul_p
from shardwise.ops.indexing.window_numbers import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from shardwise.ops.shapes.iota import iota_p
from shardwise.ops.shapes.transpose import squeeze_p

_INT32 = np.dtype(np.int32)


def _permuted_dim(eqn: Equation) -> int | None:
    """The dim of operand 0 that the positions, operand 1, permute; None if there is none."""
    params, (x, places) = eqn.params, (a.aval for a in eqn.inputs[:2])
    numbers: GatherDimensionNumbers | ScatterDimensionNumbers = params["dimension_numbers"]
    if isinstance(numbers, ScatterDimensionNumbers):
        dims, window = tuple(numbers.scatter_dims_to_operand_dims), tuple(numbers.update_window_dims)
        steps = tuple(numbers.scatter_indices_batching_dims)
    else:
        dims, window = tuple(numbers.start_index_map), tuple(numbers.offset_dims)
        steps = tuple(numbers.start_indices_batching_dims)
    if not params["unique_indices"] or params["mode"] is GatherScatterMode.FILL_OR_DROP or params["wrap_negative"]:
        return None
    if len(dims) != 1 or window or places.shape != (*x.shape, 1) or not x.size:
        return None
    others = tuple(d for d in range(x.ndim) if d != dims[0])
    return dims[0] if tuple(numbers.operand_batching_dims) == others == steps else None


def _sort_by_keys(region: Any, keys: Any, x: Any, dim: int, axes: Any, aval: Any) -> Any:
    params = {"sizes": region.sizes_of(axes), "dimension": dim, "is_stable": True, "num_keys": 1, "places": True}
    return region.collectives(split_sort, [keys, x], axes, aval, params)[1]


def _local(region: Any, eqn: Equation, operand: int, lay: Any) -> Any:
    """An operand in layout `lay`; operand 1, the positions, without its last dim."""
    atom = eqn.inputs[operand]
    x, have = region.read(atom)
    if operand != 1:
        return region.reshard(x, have, lay, atom.aval)
    x = region.reshard(x, have or ((),) * atom.aval.ndim, (*lay, ()), atom.aval)
    return region.emit(squeeze_p, [x], {"dimensions": (x.aval.ndim - 1,)})[0]


def _split_layout(region: Any, eqn: Equation, dim: int) -> Any:
    """The first layout of the equation's values that splits the dim; None if none does."""
    layouts = [region.placements.get(v) for v in eqn.outputs] + [region.layout(a) for a in eqn.inputs[::-1]]
    return next((tuple(lay[: eqn.outputs[0].aval.ndim]) for lay in layouts if lay and lay[dim]), None)


def gather_partition(region: Any, eqn: Equation) -> None:
    """Partition a gather by a sum of the devices' partial results, by gathering the operand, or, for a permutation, by two sorts.

    The first sort inverts the positions; the second moves each element to its inverse position.
    """
    numbers: GatherDimensionNumbers = eqn.params["dimension_numbers"]
    have = region.layout(eqn.inputs[0])
    split = [d for d in numbers.start_index_map if have and have[d]]
    ways = [lambda region: region.generic(eqn)]
    if split:
        ways.append(lambda region: region.with_whole(eqn, 0, split))
    dim = _permuted_dim(eqn)
    lay = None if dim is None else _split_layout(region, eqn, dim)

    def along(region: Any) -> None:
        assert dim is not None and lay is not None
        (out,), axes = eqn.outputs, lay[dim]
        places, x = _local(region, eqn, 1, lay), _local(region, eqn, 0, lay)
        params = {"dtype": _INT32, "shape": places.aval.shape, "dimension": dim, "out_sharding": None}
        (own,) = region.emit(iota_p, [], params)
        (index,) = region.emit(axis_index_op, [], {"axes": axes})
        (start,) = region.emit(mul_p, [index, literal(places.aval.shape[dim], _INT32)], {})
        (own,) = region.emit(add_p, [own, start], {})
        inverse = _sort_by_keys(region, places, own, dim, axes, eqn.inputs[1].aval)
        region.define(out, _sort_by_keys(region, inverse, x, dim, axes, out.aval), lay)

    region.cheapest(*ways, *([along] if lay else []))


def scatter_add_partition(region: Any, eqn: Equation) -> None:
    """Partition a scatter-add; for a permutation, add the updates sorted by position."""
    dim = _permuted_dim(eqn)
    lay = None if dim is None else _split_layout(region, eqn, dim)
    if dim is None or lay is None or eqn.inputs[2].aval.shape != eqn.inputs[0].aval.shape:
        return region.generic(eqn)

    def along(region: Any) -> None:
        (out,) = eqn.outputs
        places, updates = _local(region, eqn, 1, lay), _local(region, eqn, 2, lay)
        sorted_updates = _sort_by_keys(region, places, updates, dim, lay[dim], out.aval)
        (result,) = region.emit(add_p, [_local(region, eqn, 0, lay), sorted_updates], {})
        region.define(out, result, lay)

    region.cheapest(along, lambda region: region.generic(eqn))
