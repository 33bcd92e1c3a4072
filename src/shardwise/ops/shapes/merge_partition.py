"""Reshapes that merge a dim into the split dim after it, such as the consecutive copies of a value that `tile` makes, and those that
merge dims into one before them that the axes do not divide.

    f32[2, 4096@x] -> f32[8192]        row 0, then row 1: a view of two pieces, which its readers assemble
    f32[15@x, 2] -> f32[30]            on 8 devices: of its frame of 16 rows, then the first 30 of 32

Comes in: an equation of a reshape. Goes out: slices of the first dim, reshapes that keep the split, and a concatenation; or the reshape
of the frame, and the slice that holds the value.
"""

from __future__ import annotations

import math
from typing import Any

from shardwise.ir import Equation, Var, literal
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import pad_p, slice_p

_MOST = 8  # pieces; with more, the whole value is exchanged


def reshape_partition(region: Any, eqn: Equation) -> None:
    """Partition a reshape in pieces where these are few, and where their split is of use to a reader."""
    (x,), (out,) = eqn.inputs, eqn.outputs
    layout, params = region.layout(x), eqn.params
    if region.is_view(x) and params.get("dimensions") is None and _in_frame(region, eqn):
        return None
    if not layout or not any(layout) or params.get("dimensions") is not None:
        return region.usual(eqn)
    rule = eqn.op.sharding_rule((x.aval,), (out.aval,), params)
    split = {fs[0]: axes for fs, axes in zip(rule.inputs[0], layout, strict=True) if fs and axes}
    for d_out, factors in enumerate(rule.outputs[0]):
        front, behind = (*factors, None, None)[:2]
        d = next((d for d, fs in enumerate(rule.inputs[0]) if fs == (front,)), None)
        if behind not in split or d is None or layout[d] or not 1 < x.aval.shape[d] <= _MOST:
            continue
        axes = split[behind]
        ways = math.prod(region.grid.axis_sizes[a] for a in axes)
        if out.aval.shape[d_out] // x.aval.shape[d] % ways:  # the split goes on in the dims that follow
            continue
        # The result is gathered; then the value before it may be, too.
        if not region.result_layouts(eqn)[0][d_out] and not region.read_in_parts(out):
            continue
        return _in_pieces(region, eqn, d, d_out, axes)
    region.usual(eqn)


def _in_frame(region: Any, eqn: Equation) -> bool:
    """Reshape the frame of a dim into which others are merged, if the operand has one; then cut the value out of it."""
    (x,), (out,) = eqn.inputs, eqn.outputs
    rule = eqn.op.sharding_rule((x.aval,), (out.aval,), eqn.params)
    dims = {fs[0]: d for d, fs in enumerate(rule.inputs[0]) if len(fs) == 1}
    majors = [(d_out, dims[fs[0]]) for d_out, fs in enumerate(rule.outputs[0]) if len(fs) > 1 and fs[0] in dims]
    framed_majors = [(d_out, d, frame) for d_out, d in majors if (frame := region.frame(x, d)) is not None]
    if len(framed_majors) != 1:
        return False
    ((d_out, d, frame),) = framed_majors
    view, merged_size = region.view(x), out.aval.shape[d_out] // x.aval.shape[d]
    own = [view.axes(e) for e in range(x.aval.ndim)]
    ways = [math.prod(region.sizes_of(axes)) for axes in own]
    layout = [axes if n % k == 0 else () for axes, n, k in zip(own, x.aval.shape, ways, strict=True)]
    layout[d] = frame.axes
    inside, result_shape = list(x.aval.shape), list(out.aval.shape)
    inside[d], result_shape[d_out] = frame.size, frame.size * merged_size
    whole, result = Var(x.aval.update(shape=tuple(inside))), Var(out.aval.update(shape=tuple(result_shape)))
    result_layout = tuple([layout[dims[fs[0]]] if fs and fs[0] in dims else () for fs in rule.outputs[0]])
    region = region.with_placements({whole: tuple(layout), result: result_layout})
    around = tuple(
        (frame.low, frame.size - frame.low - n, 0) if e == d else (0, 0, 0) for e, n in enumerate(x.aval.shape)
    )
    fill = literal(0, x.aval.dtype)
    region.usual(Equation(pad_p, (x, fill), (whole,), {"padding_config": around}, eqn.source))
    region.generic(Equation(eqn.op, (whole,), (result,), {**eqn.params, "new_sizes": tuple(result_shape)}, eqn.source))
    begin = tuple([frame.low * merged_size if e == d_out else 0 for e in range(len(result_shape))])
    end = tuple([b + n for b, n in zip(begin, out.aval.shape, strict=True)])
    cut = {"start_indices": begin, "limit_indices": end, "strides": None}
    region.usual(Equation(slice_p, (result,), (out,), cut, eqn.source))
    return True


def _in_pieces(region: Any, eqn: Equation, d: int, d_out: int, axes: tuple[str, ...]) -> None:
    """Partition row by row along dim `d` of the operand, the major part of dim `d_out` of the result; a row is split over `axes`."""
    (x,), (out,) = eqn.inputs, eqn.outputs
    count, shape, layout = x.aval.shape[d], list(out.aval.shape), region.layout(x)
    shape[d_out] //= count
    pieces = [Var(out.aval.update(shape=tuple(shape))) for _ in range(count)]
    others = [() if set(axes).intersection(own) else own for own in region.result_layouts(eqn)[0]]
    here = (*others[:d_out], axes, *others[d_out + 1 :])
    region = region.with_placements(dict.fromkeys(pieces, here))
    for i, piece in enumerate(pieces):
        begin = tuple(i if e == d else 0 for e in range(x.aval.ndim))
        end = tuple(i + 1 if e == d else n for e, n in enumerate(x.aval.shape))
        row = Var(x.aval.update(shape=tuple(b - a for a, b in zip(begin, end, strict=True))))
        inner = region.with_placements({row: layout})
        inner.usual(
            Equation(slice_p, (x,), (row,), {"start_indices": begin, "limit_indices": end, "strides": None}, eqn.source)
        )
        inner.usual(Equation(eqn.op, (row,), (piece,), {**eqn.params, "new_sizes": tuple(shape)}, eqn.source))
    region.usual(Equation(concatenate_p, tuple(pieces), (out,), {"dimension": d_out}, eqn.source))
