"""Where values would be inserted in a sorted array: binary search, one value at a time or all together.

NaNs come after everything else and are equal to each other, as in `sort`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import isdtype
from shardwise.ir import Array, Equation, ShapedArray, bind, define_op
from shardwise.ir.op import Params, Types
from shardwise.ops.indexing.search_loop import searched
from shardwise.ops.rules.operands import Block, check_same_dtype
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
    """Values are looked up where they are; a position in the sorted array is the sum of those in its parts."""
    a, v = in_types[0].shape, in_types[1].shape
    last = len(v)
    factors = dim_factors(v)
    return Rule(
        (((last,) if a[0] != 1 else (),), factors),
        (factors,),
        (*v, *a),
        (Kind.PASS,) * last + (Kind.REDUCE,),
        frozenset({last}),
    )


def _search_partition(region: Any, eqn: Equation) -> None:
    """Sums of the positions in each part, or the whole array on each device where that is less than the values looked up."""
    (split,) = region.layout(eqn.inputs[0]) or ((),)
    if not split:
        return region.generic(eqn)
    region.cheapest(lambda region: region.generic(eqn), lambda region: region.with_whole(eqn, 0, (0,)))


def _search_kernel(env: Env, a: Block, v: Block, *, right: bool) -> Block:
    dtype = _index_dtype(a.shape[-1])
    if a.dtype.isbuiltin != 1:
        wide = np.dtype(np.float32 if isdtype(a.dtype, "real floating") else np.int32)
        a, v = a.astype(wide), v.astype(wide)
    if a.size == a.shape[-1]:
        quick = searched(a.reshape(-1), v, right)
        if quick is not None:
            return quick
        found = np.searchsorted(a.reshape(-1), v, side="right" if right else "left")
        return np.asarray(found).astype(dtype)
    return _bisect(env.lead, a, v, right).astype(dtype)


def _bisect(lead: int, a: Block, v: Block, right: bool) -> Block:
    """The search in an array that differs between loop indices: all steps of a bisection for all values at once."""
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


def _less(x: Block, y: Block) -> Block:
    """``x < y`` in the order of `sort`."""
    less = x < y
    return less | (~np.isnan(x) & np.isnan(y)) if x.dtype.kind in "fc" else less


def _no_tangent(primals: Any, tangents: Any, **params: Any) -> tuple[Array, None]:
    return bind(searchsorted_p, *primals, **params), None


searchsorted_p = define_op(
    "searchsorted",
    type_rule=_search_type,
    kernel=_search_kernel,
    rule=_search_rule,
    partition=_search_partition,
    jvp=_no_tangent,
)


def searchsorted(a: Any, v: Any, *, right: bool = False) -> Array:
    """For each of `v` the position in the sorted `a` before which (`right`: after whose equals) it belongs, as int32."""
    return bind(searchsorted_p, a, v, right=right)
