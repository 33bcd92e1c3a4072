"""Equations on dims apart: what an equation makes of values whose dims are groups of dims that a reshape merged.

    f32[(8 6), 4] @ f32[4, 5] -> f32[(8 6), 5]        sum over dim 0 of f32[(8 6), 4] -> f32[4]

In: an equation, and the groups of those operands, or of the result, that have merged dims. Out: the groups that all of them need, and the
params of the equation on dims apart; None where it needs the merged dims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

from shardwise.base.shapes import Shape
from shardwise.ir import Equation
from shardwise.ops.indexing.gather import gather_p
from shardwise.ops.products.contract import dot_general_p
from shardwise.ops.products.dot_sharding import free_dims
from shardwise.ops.reductions.arg_extrema import argmax_p, argmin_p
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.iota import iota_p
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import pad_p, slice_p
from shardwise.ops.shapes.reshape import reshape_p
from shardwise.ops.shapes.transpose import squeeze_p, transpose_p

Groups = tuple[Shape, ...]  # of each dim the sizes of those that it was merged from; of others their own


class Apart(NamedTuple):
    """An equation on dims apart: the groups of its operands and of its result, and its params."""

    operands: tuple[Groups, ...]
    result: Groups
    params: Mapping[str, Any]


class _NeedsMergedDims(Exception):
    """An equation that needs the merged dims."""


def equation_apart(eqn: Equation, known_groups: Sequence[Groups | None], result: Groups | None = None) -> Apart | None:
    """The equation with dims apart. `known_groups` has None for operands without merged dims."""
    if len(eqn.outputs) != 1 or eqn.op.has_effects(eqn.params) or eqn.params.get("out_sharding") is not None:
        return None
    if any(a.aval.mesh is not None for a in (*eqn.inputs, *eqn.outputs)):  # the types say how the dims are split
        return None
    rule = _rule_of(eqn)
    if rule is None:
        return None
    own = [list(g or single(a.aval.shape)) for g, a in zip(known_groups, eqn.inputs, strict=True)]
    made_groups = list(result or single(eqn.outputs[0].aval.shape))
    try:
        params = rule(eqn, own, made_groups)
    except _NeedsMergedDims:
        return None
    return Apart(tuple(map(tuple, own)), tuple(made_groups), params)


_OwnGroups = list[Shape]
# It changes the groups of operands and of the result to what they need, and returns the params.
_Rule = Callable[[Equation, list[_OwnGroups], _OwnGroups], Mapping[str, Any]]


def _rule_of(eqn: Equation) -> _Rule | None:
    rule = _RULES.get(eqn.op)
    if rule is not None:
        return rule
    if eqn.op.updates and "dimension_numbers" in eqn.params:
        return _scatter
    if eqn.op.fold is not None and eqn.params.keys() <= {"axes", "out_sharding"}:
        return _reduction
    return _elementwise if _is_elementwise(eqn) else None


def single(shape: Shape) -> Groups:
    """The groups of dims of which none was merged."""
    return tuple([(n,) for n in shape])


def sizes(groups: Sequence[Shape]) -> Shape:
    """The shape of a value with its dims apart.

    >>> sizes(((8, 6), (4,)))
    (8, 6, 4)
    """
    return tuple(chain(*groups))


def is_merged(groups: Groups) -> bool:
    """Whether a dim was merged from several that have more than one element."""
    return any(len(g) > 1 and math.prod(g) > 1 for g in groups)


def merged_groups(shape: Shape, new_shape: Shape) -> Groups | None:
    """Of each dim of `new_shape` the sizes that make it, if it is `shape` with dims merged; dims of size 1 may come and go.

    >>> merged_groups((8, 6, 4), (48, 4)), merged_groups((8, 6), (12, 4))
    (((8, 6), (4,)), None)
    """
    rest = iter([n for n in shape if n != 1])
    groups: list[Shape] = []
    for n in new_shape:
        group: list[int] = []
        while math.prod(group) < n and (size := next(rest, None)) is not None:
            group.append(size)
        if math.prod(group) != n:
            return None
        groups.append(tuple(group) or (1,))
    return tuple(groups) if next(rest, None) is None else None


def _agree(x: _OwnGroups, d: int, y: _OwnGroups, e: int) -> None:
    """Give both dims the group of the one that was merged."""
    if len(x[d]) > 1 < len(y[e]) and x[d] != y[e]:
        raise _NeedsMergedDims
    x[d] = y[e] = max(x[d], y[e], key=len)


def _keep_single(x: _OwnGroups, dims: Iterable[int]) -> None:
    if any(len(x[d]) > 1 for d in dims):
        raise _NeedsMergedDims


def _places(groups: Sequence[Shape]) -> list[range]:
    """Of each dim the places of those that it was merged from."""
    ends = [0]
    for group in groups:
        ends.append(ends[-1] + len(group))
    return [range(a, b) for a, b in pairwise(ends)]


def _spread(groups: Sequence[Shape], dims: Iterable[int]) -> tuple[int, ...]:
    """The places of what these dims were merged from."""
    at = _places(groups)
    return tuple(chain(*[at[d] for d in dims]))


def _is_elementwise(eqn: Equation) -> bool:
    op = eqn.op
    if "layout" in eqn.params or op.region is not None or op.collective is not None:
        return False
    return op.ufunc is not None or op.hands_on or (op.emit is not None and not op.emit.moves)


def _elementwise(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    """Dims of size 1 stretch: of a merged dim they stand for one of each."""
    for groups in own:
        for d, n in enumerate(eqn.outputs[0].aval.shape if groups else ()):
            if math.prod(groups[d]) == n:
                _agree(groups, d, result, d)
    for groups in own:
        groups[:] = [
            g if math.prod(h) == 1 else h if math.prod(g) != 1 else (1,) * len(h)
            for g, h in zip(groups, result, strict=False)
        ]
    return eqn.params


def _reduction(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    (groups,), axes = own, eqn.params["axes"]
    kept_dims = [d for d in range(len(groups)) if d not in axes]
    for e, d in enumerate(kept_dims):
        _agree(groups, d, result, e)
    return {**eqn.params, "axes": _spread(groups, axes)}


def _reshape(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    """A reshape merges dims, splits merged ones again, or takes dims of size 1 in or away."""
    (groups,), shape = own, eqn.outputs[0].aval.shape
    if eqn.params.get("dimensions") is not None or 0 in shape:
        raise _NeedsMergedDims
    if any(len(g) > 1 for g in result):  # then it may only add dims of size 1
        if [n for n in shape if n != 1] != [n for n in eqn.inputs[0].aval.shape if n != 1]:
            raise _NeedsMergedDims
        merged_sizes = iter([g for g in result if math.prod(g) != 1])
        groups[:] = [g if math.prod(g) == 1 else next(merged_sizes) for g in groups]
    else:
        before = sizes(groups)
        made_groups = merged_groups(before, shape)
        if made_groups is None and merged_groups(shape, before) is None:
            raise _NeedsMergedDims
        result[:] = made_groups or single(shape)
    return {**eqn.params, "new_sizes": sizes(result)}


def _broadcast(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    """A dim of size 1 stands for the first of those that it is stretched to."""
    (groups,), dims = own, eqn.params["broadcast_dimensions"]
    for d, e in enumerate(dims):
        if math.prod(groups[d]) == eqn.params["shape"][e]:
            _agree(groups, d, result, e)
    at = _places(result)
    new_dims = chain(*[at[e][: len(g)] for e, g in zip(dims, groups, strict=True)])
    return {**eqn.params, "shape": sizes(result), "broadcast_dimensions": tuple(new_dims)}


def _iota(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    dim = eqn.params["dimension"]
    _keep_single(result, [dim])
    if eqn.params.get("shard_axes"):
        raise _NeedsMergedDims
    return {**eqn.params, "shape": sizes(result), "dimension": _places(result)[dim][0]}


def _transpose(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    (groups,), order = own, eqn.params["permutation"]
    for e, d in enumerate(order):
        _agree(groups, d, result, e)
    return {**eqn.params, "permutation": _spread(groups, order)}


def _squeeze(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    (groups,), dims = own, eqn.params["dimensions"]
    for e, d in enumerate([d for d in range(len(groups)) if d not in dims]):
        _agree(groups, d, result, e)
    return {**eqn.params, "dimensions": _spread(groups, dims)}


def _extremum_place(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    """The place along one dim, which is no merged one."""
    (groups,), axes = own, eqn.params["axes"]
    _keep_single(groups, axes)
    return _reduction(eqn, own, result)


def _slice(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    (groups,), params = own, eqn.params
    strides = params["strides"] or (1,) * len(groups)
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    bounds_by_dim = {
        d: b for d, (b, n) in enumerate(zip(bounds, eqn.inputs[0].aval.shape, strict=True)) if b != (0, n, 1)
    }
    _agree_but(bounds_by_dim, groups, result)
    starts, limits, steps = zip(*_per_dim(groups, bounds_by_dim, lambda n: (0, n, 1)), strict=True)
    new_steps = None if params["strides"] is None else steps
    return {**params, "start_indices": starts, "limit_indices": limits, "strides": new_steps}


def _pad(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    groups = own[0]
    padding = {d: c for d, c in enumerate(eqn.params["padding_config"]) if any(c)}
    _agree_but(padding, groups, result)
    return {**eqn.params, "padding_config": tuple(_per_dim(groups, padding, lambda n: (0, 0, 0)))}


def _concatenate(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    dim = eqn.params["dimension"]
    for _ in range(2):  # a group of the last one's goes on to the first
        for groups in own:
            _agree_but({dim: None}, groups, result)
    return {**eqn.params, "dimension": _spread(result, [dim])[0]}


def _agree_but(changes: Mapping[int, Any], x: _OwnGroups, y: _OwnGroups) -> None:
    """Dims that do not change have one group, those that change are no merged ones."""
    for d in range(len(x)):
        if d not in changes:
            _agree(x, d, y, d)
    _keep_single(x, changes)
    _keep_single(y, changes)


def _per_dim(groups: _OwnGroups, changes: Mapping[int, Any], default: Callable[[int], Any]) -> list[Any]:
    """What `changes` has for a dim; for the others, `default` of each dim of their groups."""
    return list(chain(*[[changes[d]] if d in changes else map(default, g) for d, g in enumerate(groups)]))


def _product(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    lhs, rhs = own
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = dims = eqn.params["dimension_numbers"]
    lhs_free, rhs_free = free_dims(dims, len(lhs), len(rhs))
    for d, e in zip((*lhs_con, *lhs_batch), (*rhs_con, *rhs_batch), strict=True):
        _agree(lhs, d, rhs, e)
    for out, d in enumerate((*lhs_batch, *lhs_free)):
        _agree(lhs, d, result, out)
    for out, e in enumerate(rhs_free, len(lhs) - len(lhs_con)):
        _agree(rhs, e, result, out)
    for d, e in zip(lhs_batch, rhs_batch, strict=True):
        _agree(lhs, d, rhs, e)
    numbers = (
        (_spread(lhs, lhs_con), _spread(rhs, rhs_con)),
        (_spread(lhs, lhs_batch), _spread(rhs, rhs_batch)),
    )
    return {**eqn.params, "dimension_numbers": numbers}


def _gather(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    """Dims of the indices may be merged, those of the operand that run in step with them, and whole ones."""
    operand, indices = own
    params, n = eqn.params, eqn.params["dimension_numbers"]
    slice_sizes = params["slice_sizes"]
    if params.get("operand_axes") is not None:
        raise _NeedsMergedDims
    count_dims = [d for d in range(len(result)) if d not in n.offset_dims]
    windows = [d for d in range(len(operand)) if d not in (*n.collapsed_slice_dims, *n.operand_batching_dims)]
    _agree_windows(operand, windows, n.start_index_map, result, n.offset_dims)
    _agree_in_step(indices, result, count_dims, operand, n.operand_batching_dims, n.start_indices_batching_dims)
    _keep_single(operand, n.collapsed_slice_dims)
    numbers = _spread_numbers(n, operand, offset_dims=result, start_indices_batching_dims=indices)
    slices = [
        (size,) if len(group) == 1 else (1,) * len(group) if d in n.operand_batching_dims else group
        for d, (group, size) in enumerate(zip(operand, slice_sizes, strict=True))
    ]
    return {**params, "dimension_numbers": numbers, "slice_sizes": sizes(slices)}


def _scatter(eqn: Equation, own: list[_OwnGroups], result: _OwnGroups) -> Mapping[str, Any]:
    """As of a gather, whose result the updates are like."""
    operand, indices, updates = own
    params, n = eqn.params, eqn.params["dimension_numbers"]
    if params.get("update_axes") or params.get("operand_axes") is not None:
        raise _NeedsMergedDims
    for d in range(len(operand)):
        _agree(operand, d, result, d)
    count_dims = [d for d in range(len(updates)) if d not in n.update_window_dims]
    windows = [d for d in range(len(operand)) if d not in (*n.inserted_window_dims, *n.operand_batching_dims)]
    _agree_windows(operand, windows, n.scatter_dims_to_operand_dims, updates, n.update_window_dims)
    _agree_in_step(indices, updates, count_dims, operand, n.operand_batching_dims, n.scatter_indices_batching_dims)
    _keep_single(operand, n.inserted_window_dims)
    result[:] = operand
    numbers = _spread_numbers(n, operand, update_window_dims=updates, scatter_indices_batching_dims=indices)
    return {**params, "dimension_numbers": numbers}


def _spread_numbers(numbers: Any, operand: _OwnGroups, **others: _OwnGroups) -> Any:
    """The dimension numbers of the same windows on dims apart. Fields that are not in `others` are dims of the operand."""
    dims = {f.name: getattr(numbers, f.name) for f in fields(numbers)}
    return replace(numbers, **{name: _spread(others.get(name, operand), dims[name]) for name in dims})


def _agree_windows(
    operand: _OwnGroups, windows: Sequence[int], indexed: Sequence[int], values: _OwnGroups, value_dims: Sequence[int]
) -> None:
    """Windows that are the whole of a dim have its group; the others are none of merged dims."""
    for d, e in zip(windows, value_dims, strict=True):
        if d not in indexed and math.prod(operand[d]) == math.prod(values[e]):
            _agree(operand, d, values, e)
        _keep_single(operand, [d] if d in indexed or operand[d] != values[e] else [])
        _keep_single(values, [e] if operand[d] != values[e] else [])


def _agree_in_step(
    indices: _OwnGroups,
    values: _OwnGroups,
    count_dims: Sequence[int],
    operand: _OwnGroups,
    dims: Sequence[int],
    steps: Sequence[int],
) -> None:
    """The dims of the indices have the groups of those of the values, and of those of the operand that run in step with them."""
    _keep_single(indices, [len(indices) - 1])
    for _ in range(2):  # a group of the operand's goes on to the values
        for e, d in enumerate(count_dims):
            _agree(indices, e, values, d)
        for d, e in zip(dims, steps, strict=True):
            _agree(operand, d, indices, e)


_RULES: dict[Any, _Rule] = {
    reshape_p: _reshape,
    broadcast_in_dim_p: _broadcast,
    iota_p: _iota,
    dot_general_p: _product,
    gather_p: _gather,
    transpose_p: _transpose,
    squeeze_p: _squeeze,
    slice_p: _slice,
    pad_p: _pad,
    concatenate_p: _concatenate,
    argmax_p: _extremum_place,
    argmin_p: _extremum_place,
}
