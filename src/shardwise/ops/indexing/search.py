"""Binary search for insertion positions in a sorted array, one value at a time or all together.

NaNs are last and equal to each other, as in `sort`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.base.dtypes import isdtype
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Equation, ShapedArray, bind, define_op, literal
from shardwise.ir.op import Params, Steps, Types
from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.elementwise.binary import add_p, max_p, mul_p, sub_p
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.ops.elementwise.comparison import eq_p
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.indexing.along_dims import take_along
from shardwise.ops.indexing.search_loop import search_sorted
from shardwise.ops.rules.derivative import do
from shardwise.ops.rules.operands import check_same_dtype
from shardwise.ops.rules.order import comparable
from shardwise.ops.rules.small_programs import as_program
from shardwise.ops.shapes.pieces import slice_p
from shardwise.ops.shapes.transpose import dim_factors
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule


def _index_dtype(n: int) -> np.dtype[Any]:
    return np.dtype(np.int32 if n < 1 << 31 else np.int64)


def _search_type(a: ShapedArray, v: ShapedArray, *, right: bool) -> ShapedArray:
    check_same_dtype("searchsorted", (a, v))
    if a.ndim != 1:
        raise ValueError(f"searchsorted looks values up in a 1-dimensional array, got shape {a.shape}.")
    return ShapedArray(v.shape, _index_dtype(a.shape[0]))


def _search_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """The sorted array must be whole; the values keep their sharding."""
    a, v = in_types[0].shape, in_types[1].shape
    last = len(v)
    factors = dim_factors(v)
    return Rule(
        (((last,) if a[0] != 1 else (),), factors),
        (factors,),
        (*v, *a),
        (Kind.PASS,) * last + (Kind.REPLICATE,),
        frozenset({last}),
    )


def _search_partition(region: Any, eqn: Equation) -> None:
    """Find each value's part by the parts' first elements, and search it there; or gather the sorted array."""
    (a, v), (out,) = eqn.inputs, eqn.outputs
    (axes,) = region.layout(a) or ((),)
    if not axes or not v.aval.size:
        return region.generic(eqn)

    def along(region: Any) -> None:
        part, sizes = region.read(a)[0], region.sizes_of(axes)
        values, have = region.read(v)
        lay = tuple(tuple(x for x in dim if x not in axes) for dim in have or ((),) * v.aval.ndim)
        values = region.reshard(values, have, lay, v.aval)
        (first,) = region.emit(slice_p, [part], {"start_indices": (0,), "limit_indices": (1,), "strides": None})
        gather_params = {"sizes": sizes, "dim": 0, "tiled": True, "invariant": True}
        firsts = region.collective(
            all_gather_op, [first], axes, a.aval.update(shape=(math.prod(sizes),)), gather_params
        )
        index, zero = out.aval.dtype, literal(0, out.aval.dtype)

        def look_up(among: Any) -> Any:
            (positions,) = region.emit(eqn.op, [among, values], eqn.params)
            return region.emit(convert_element_type_p, [positions], {"new_dtype": index, "weak_type": False})[0]

        (behind,) = region.emit(sub_p, [look_up(firsts), literal(1, index)], {})
        (owner,) = region.emit(max_p, [behind, zero], {})
        (own,) = region.emit(axis_index_op, [], {"axes": axes})
        (own,) = region.emit(convert_element_type_p, [own], {"new_dtype": index, "weak_type": False})
        (start,) = region.emit(mul_p, [own, literal(part.aval.shape[0], index)], {})
        (place,) = region.emit(add_p, [look_up(part), start], {})
        (mine,) = region.emit(eq_p, [owner, own], {})
        (place,) = region.emit(select_n_p, [mine, zero, place], {})
        result = region.collective(all_reduce, [place], axes, out.aval, {"kind": "sum"})
        placement = region.placements.get(out, lay)
        region.define(out, region.reshard(result, lay, placement, out.aval), placement)

    region.cheapest(along, lambda region: region.generic(eqn))


def _search_kernel(env: Env, a: Ndarray, v: Ndarray, *, right: bool) -> Ndarray:
    dtype = _index_dtype(a.shape[-1])
    a, v = comparable(a), comparable(v)
    quick = search_sorted(env.lead, a, v, right)
    if quick is not None:
        return quick
    if a.size == a.shape[-1]:
        positions = np.searchsorted(a.reshape(-1), v, side="right" if right else "left")
        return np.asarray(positions).astype(dtype)
    return _bisect(env.lead, a, v, right).astype(dtype)


def _bisect(lead: int, a: Ndarray, v: Ndarray, right: bool) -> Ndarray:
    """The search in an array with loop dims: each bisection step handles all values at once."""
    loops = np.broadcast_shapes(a.shape[:lead], v.shape[:lead])
    n = a.shape[-1]
    rows = np.broadcast_to(a, (*loops, n))
    values = np.broadcast_to(v, (*loops, *v.shape[lead:])).reshape(*loops, -1)
    low = np.zeros(values.shape, np.intp)
    high = np.full(values.shape, n, np.intp)
    for _ in range(n.bit_length()):
        middle = (low + high) >> 1
        at = np.take_along_axis(rows, np.minimum(middle, n - 1), -1)
        after = ~_less(values, at) if right else _less(at, values)
        after &= low < high
        low, high = np.where(after, middle + 1, low), np.where(after, high, middle)
    return low.reshape(*loops, *v.shape[lead:])


def _less(x: Ndarray, y: Ndarray) -> Ndarray:
    """``x < y`` in the order of `sort`."""
    less = x < y
    return less | (~np.isnan(x) & np.isnan(y)) if x.dtype.kind in "fc" else less


def _no_tangent(primals: Any, tangents: Any, **params: Any) -> tuple[Array, None]:
    return bind(searchsorted_p, *primals, **params), None


def _halvings(ins: Types, outs: Types, params: Params) -> Steps:
    length = ins[0].shape[-1]
    return Steps("search", outs[0].size * math.log2(max(length, 2)), size=length)


def _small_search(a: Any, v: Any, *, right: bool) -> Any:
    """`_bisect` for all values at once."""
    n, values = a.shape[0], do.reshape(v, new_sizes=(v.size,))
    index = np.dtype(np.int32)
    low = do.broadcast_in_dim(literal(0, index), shape=values.shape, broadcast_dimensions=())
    high = do.broadcast_in_dim(literal(n, index), shape=values.shape, broadcast_dimensions=())
    for _ in range(n.bit_length()):
        middle = do.shift_right_logical(do.add(low, high), 1)
        at = take_along(a, do.min(middle, n - 1), 0)
        after = do.not_(_comes_before(values, at)) if right else _comes_before(at, values)
        after = do.and_(after, do.lt(low, high))
        low, high = do.select_n(after, low, do.add(middle, 1)), do.select_n(after, middle, high)
    return do.convert_element_type(do.reshape(low, new_sizes=v.shape), new_dtype=_index_dtype(n), weak_type=False)


def _is_real(eqn: Equation) -> bool:
    """Whether one comparison orders the values; complex ones are ordered by their parts."""
    return not isdtype(eqn.inputs[0].aval.dtype, "complex floating")


def _comes_before(x: Any, y: Any) -> Any:
    """``x < y`` in the order of `sort`."""
    less = do.lt(x, y)
    return do.or_(less, do.and_(do.eq(x, x), do.ne(y, y))) if isdtype(x.dtype, "real floating") else less


searchsorted_p = define_op(
    "searchsorted",
    type_rule=_search_type,
    kernel=_search_kernel,
    rule=_search_rule,
    partition=_search_partition,
    algorithm=_halvings,
    jvp=_no_tangent,
    small=as_program(_small_search, _is_real),
)


def searchsorted(a: Any, v: Any, *, right: bool = False) -> Array:
    """int32 insertion positions of `v` in the sorted `a`: before equal elements, or after them if `right`."""
    return bind(searchsorted_p, a, v, right=right)
