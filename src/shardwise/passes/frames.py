"""Frames: ops on values whose size the mesh axes do not divide, computed inside larger values that they do divide.

`x[1:]` of a split `x` of n rows has n - 1 rows, which cannot be split evenly. It stays in place, in a *frame* of n rows, from row 1 on.
The frame's other rows hold any value, or the identity if an op sums over them. Ops that work on each row alone compute in the frame of
one operand, to which the others are shifted; their results lie in the same frame.

Comes in: an equation with operands that are views. Goes out: the frame of each uneven factor of its rule, and views to and from frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes, DimAxes
from shardwise.ir import Atom, Box, Equation, ShapedArray, Var, literal, unwrap_op
from shardwise.passes.assemble import Assembler, natural_layout
from shardwise.passes.framed_starts import looked_up_dims, with_shifted_starts
from shardwise.passes.positions import Positions
from shardwise.passes.remade import whole_copy
from shardwise.passes.reshard import ways
from shardwise.passes.split import dim_of
from shardwise.passes.views import View, ViewPart, compose
from shardwise.passes.windows import windowed_dims
from shardwise.runtime.monoids import MONOIDS
from shardwise.sharding.rule import Kind, Rule, TensorFactors

if TYPE_CHECKING:
    from shardwise.passes.partition import Region


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a dim: a dim of `size` that `axes` split and that holds the dim from position `low` on."""

    low: int
    size: int
    axes: Axes


Frames = dict[int, Frame]  # by factor


def in_frames(region: Region, eqn: Equation) -> bool:
    """Compute with unevenly sized operands in their frames, if there are any and the op can."""
    if not any(region.is_view(a) for a in eqn.inputs):
        return False
    op, out_types = eqn.op, tuple([v.aval for v in eqn.outputs])
    rule = op.sharding_rule(tuple([a.aval for a in eqn.inputs]), out_types, eqn.params)
    views = [region.view(a) for a in eqn.inputs]
    frames = frames_of(eqn, rule, views, region.grid.axis_sizes, region.positions)
    if not frames:
        return False
    lookup_dims = {f: d for d in looked_up_dims(eqn) for f in rule.inputs[0][d] if f in frames}
    summed_factors = {f for f in frames if rule.kinds[f] is Kind.REDUCE} - lookup_dims.keys()
    if summed_factors and _whole_is_cheaper(region, eqn, rule, views, [frames[f] for f in summed_factors]):
        return False
    inputs: list[Atom] = []
    for atom, view, tensor in zip(eqn.inputs, views, rule.inputs, strict=True):
        aval = framed_type(atom.aval, tensor, frames)
        if aval is atom.aval and not _lies_unevenly(view, tensor, frames, region.grid.axis_sizes):
            inputs.append(atom)
            continue
        sums = any(f in summed_factors for fs in tensor for f in fs)
        kind = op.reduction_of(eqn.params) if len(eqn.inputs) == 1 else "sum"
        fill = literal(MONOIDS[kind].identity(aval.dtype), aval.dtype) if sums else None
        inside = into_frames(view, tensor, frames, alone=sums)
        if not sums and not inputs and op.halo is not None and windowed_dims(eqn, rule, view, region.grid.axis_sizes):
            inputs.append(local_var := Var(aval))
            region.views[local_var] = inside
            continue
        dims = framed_dims(natural_layout(inside, region.grid.axis_sizes), tensor, frames)
        outer, region.current = region.current, view.eqn or region.current
        inputs.append(inside_var := Var(aval))
        region.define(inside_var, Assembler(region, aval).assemble(inside, dims, fill), dims)
        region.current = outer
    if lookup_dims:
        inputs = with_shifted_starts(region, eqn, inputs, {d: frames[f] for f, d in lookup_dims.items()})
    # Windows along a dim that must be whole are no frames of it.
    result_tensors = [tuple(() if fs and rule.kinds[fs[0]] is Kind.REPLICATE else fs for fs in t) for t in rule.outputs]
    outputs = [Var(framed_type(t, tensor, frames)) for t, tensor in zip(out_types, result_tensors, strict=True)]
    result_layouts = [
        framed_dims(region.placement(v), tensor, frames) for v, tensor in zip(eqn.outputs, result_tensors, strict=True)
    ]
    params = eqn.params
    if op.localize is not None:
        params = dict(op.localize(params, tuple([a.aval for a in inputs]), tuple([v.aval for v in outputs])))
    inner = region.with_placements(dict(zip(outputs, result_layouts, strict=True)))
    inner.equation(Equation(op, tuple(inputs), tuple(outputs), params, eqn.source))
    for var, out, tensor in zip(eqn.outputs, outputs, result_tensors, strict=True):
        if out in region.values and out.aval.shape == var.aval.shape:
            region.define(var, *region.values[out])
        else:
            region.views[var] = out_of_frames(region.view(out), var.aval, tensor, frames, eqn)
    return True


def frames_of(
    eqn: Equation,
    rule: Rule,
    views: Sequence[View],
    sizes: Mapping[str, int],
    positions: Callable[[], Positions],
) -> Frames | None:
    """The frame of every uneven factor; {} if there is none, None if the op cannot compute in one."""
    frames: Frames = {}
    for i, (view, tensor) in enumerate(zip(views, rule.inputs, strict=True)):
        windows = windowed_dims(eqn, rule, view, sizes) if i == 0 else ()
        for d in view.moved_dims():
            axes, n = view.axes(d), view.shape[d]
            if not axes or n % ways(axes, sizes) == 0 or d in windows:
                continue
            if len(tensor[d]) != 1:
                return None
            (f,) = tensor[d]
            if f not in frames:
                if not _can_be_framed(eqn, rule, f):
                    return None
                views_and_dims = [
                    (v, e) for v, t in zip(views, rule.inputs, strict=True) if (e := dim_of(t, f)) is not None
                ]
                frame = _frame(n, axes, views_and_dims, sizes)
                if frame is None:
                    return None
                frames[f] = _place_dim(frame, n, positions().low(eqn.inputs[i], d))
    used = [a for frame in frames.values() for a in frame.axes]
    return frames if len(used) == len(set(used)) else None


def _lies_unevenly(view: View, tensor: TensorFactors, frames: Frames, sizes: Mapping[str, int]) -> bool:
    """Whether other axes than its frame's, which do not divide it, split the view along a framed dim."""
    framed_dims_here = [d for d, fs in enumerate(tensor) if fs and fs[0] in frames]
    return any(view.shape[d] % ways(view.axes(d), sizes) for d in framed_dims_here)


def _can_be_framed(eqn: Equation, rule: Rule, f: int) -> bool:
    """Whether the frame's positions outside the dim of factor `f` affect no result."""
    op, _, _ = unwrap_op(eqn.op, eqn.params)
    if op.collective is not None or op.calls_user or op.has_effects(eqn.params):
        return False
    is_lookup_dim = any(rule.inputs[0][d] == (f,) for d in looked_up_dims(eqn))
    # Values follow from positions; those of windows are moved into the frame.
    if op.place is not None and (op.indexed is None or op is not eqn.op):
        return False
    if any(f in fs for t in rule.tensors for fs in t if fs != (f,)):
        return False
    if is_lookup_dim:
        return True
    if rule.kinds[f] is Kind.REDUCE:  # these positions hold the identity
        adds = op.updates and op.reduction_of(eqn.params) == "sum"
        return not op.multiple_results and (op.contraction is not None or op.fold is not None or adds)
    return rule.kinds[f] is Kind.PASS


def _whole_is_cheaper(
    region: Region, eqn: Equation, rule: Rule, views: Sequence[View], summed: Sequence[Frame]
) -> bool:
    """Whether each device holds all of the operands already, and reduces them sooner than devices sum what they have reduced."""
    if not all(_is_held(region, a, view) for a, view in zip(eqn.inputs, views, strict=True)):
        return False
    parts = math.prod(ways(frame.axes, region.grid.axis_sizes) for frame in summed)
    more = 2 * math.prod(rule.sizes) * (1 - 1 / parts)
    sent_bytes = 2 * sum(v.aval.nbytes for v in eqn.outputs) * (1 - 1 / parts)
    return more <= region.worth * sent_bytes


def _is_held(region: Region, atom: Atom, view: View) -> bool:
    """Whether each device holds all of a value, or of the values that a view consists of."""
    if not region.is_view(atom):
        return not any(region.layout(atom) or ())
    return all(
        p.fills or not any(p.source.dims) or whole_copy(region, p.source.atom, p.source.shape) is not None
        for p in view.parts
    )


def frame_along(region: Region, atom: Atom, d: int) -> Frame | None:
    """The frame of dim `d` of a view whose axes do not divide it; None if they do, or if parts would be too small."""
    if not region.is_view(atom):
        return None
    view, sizes = region.view(atom), region.grid.axis_sizes
    axes, n = view.axes(d), view.shape[d]
    if not axes or n % ways(axes, sizes) == 0:
        return None
    frame = _frame(n, axes, [(view, d)], sizes)
    return None if frame is None else _place_dim(frame, n, region.positions().low(atom, d))


def _place_dim(frame: Frame, n: int, low: int | None) -> Frame:
    """The frame of a dim of size `n` with the dim at `low`, if it then lies inside."""
    return replace(frame, low=low) if low is not None and 0 <= low <= frame.size - n else frame


def _frame(n: int, axes: Axes, dims: Sequence[tuple[View, int]], sizes: Mapping[str, int]) -> Frame | None:
    """The frame that most of these dims of views lie in already, else a new one, unless its parts would be too small. Of their positions,
    the closest to the middle: stencils end there.
    """
    dims_by_axes: dict[tuple[int, Axes], list[int]] = {}
    for view, d in dims:
        if any(p.fills for p in view.parts):
            continue
        stands = {(p.first[d], p.at[d], p.size[d], p.source.shape[d], p.source.dims[d]) for p in view.parts}
        if len(stands) == 1:
            ((first, at, size, whole, split),) = stands
            if at == 0 and size == n and split and 2 * n > whole:
                dims_by_axes.setdefault((whole, split), []).append(first)
    if dims_by_axes:
        (whole, split), places = max(dims_by_axes.items(), key=lambda entry: len(entry[1]))
        middle = (whole - n + (2 * places[0] > whole - n)) // 2  # of two middles, the one closer to the first operand
        return Frame(min(max(middle, min(places)), max(places)), whole, split)
    parts = ways(axes, sizes)
    return None if n < 2 * parts else Frame(0, -(-n // parts) * parts, axes)


def framed_type(aval: ShapedArray, tensor: TensorFactors, frames: Frames) -> ShapedArray:
    """The type of a value with its frames."""
    shape = tuple(frames[fs[0]].size if fs and fs[0] in frames else n for n, fs in zip(aval.shape, tensor, strict=True))
    return aval if shape == aval.shape else ShapedArray(shape, aval.dtype, aval.weak_type)


def framed_dims(dims: DimAxes, tensor: TensorFactors, frames: Frames) -> DimAxes:
    """A layout with the frames' axes on the framed dims."""
    frame_axes = {a for fs in tensor for f in fs if f in frames for a in frames[f].axes}
    return tuple(
        frames[fs[0]].axes if fs and fs[0] in frames else axes if not frame_axes.intersection(axes) else ()
        for axes, fs in zip(dims, tensor, strict=True)
    )


def into_frames(view: View, tensor: TensorFactors, frames: Frames, alone: bool = False) -> View:
    """A value placed in its frames. A fill value fills the whole frame, unless it must keep its place (`alone`)."""
    low = [frames[fs[0]].low if fs and fs[0] in frames else 0 for fs in tensor]
    shape = tuple(frames[fs[0]].size if fs and fs[0] in frames else n for n, fs in zip(view.shape, tensor, strict=True))
    parts = tuple(
        ViewPart(p.source, p.first, tuple(a + b for a, b in zip(p.at, low, strict=True)), p.size) for p in view.parts
    )
    if parts and not alone and view.parts[0].fills and view.parts[0].size == view.shape:
        parts = (replace(parts[0], at=(0,) * len(shape), size=shape), *parts[1:])
    return View(shape, parts, view.eqn)


def out_of_frames(framed: View, aval: ShapedArray, tensor: TensorFactors, frames: Frames, eqn: Equation) -> View:
    """The value inside the frames of `framed`."""
    low = tuple(frames[fs[0]].low if fs and fs[0] in frames else 0 for fs in tensor)
    return compose((Box(0, low, (0,) * aval.ndim, aval.shape),), [framed], aval.shape, eqn)
