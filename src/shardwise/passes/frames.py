"""Frames: ops on values whose size the mesh axes do not divide, computed inside larger values that they do divide.

`x[1:]` of a split `x` of n rows has n - 1 rows, which cannot be split evenly. It stays in place, in a *frame* of n rows, from row 1 on.
The frame's other rows hold any value, or the identity if an op sums over them. Ops that work on each row alone compute in the frame of
one operand, to which the others are shifted; their results lie in the same frame.

Comes in: an equation with operands that are views. Goes out: the frame of each uneven factor of its rule, and views to and from frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardwise.ir import Atom, Box, Equation, ShapedArray, Var, literal, unwrapped
from shardwise.passes.assemble import Assembler, natural_layout
from shardwise.passes.grid import Axes, DimAxes
from shardwise.passes.positions import Positions
from shardwise.passes.reshard import ways
from shardwise.passes.split import dim_of
from shardwise.passes.views import Part, View, compose
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
    inputs: list[Atom] = []
    for atom, view, tensor in zip(eqn.inputs, views, rule.inputs, strict=True):
        aval = framed_type(atom.aval, tensor, frames)
        if aval is atom.aval and not _lies_unevenly(view, tensor, frames, region.grid.axis_sizes):
            inputs.append(atom)
            continue
        sums = any(rule.kinds[f] is Kind.REDUCE for fs in tensor for f in fs if f in frames)
        kind = op.reduction_of(eqn.params) if len(eqn.inputs) == 1 else "sum"
        fill = literal(MONOIDS[kind].identity(aval.dtype), aval.dtype) if sums else None
        inside = into_frames(view, tensor, frames, alone=sums)
        if not sums and not inputs and op.halo is not None and windowed_dims(eqn, rule, view, region.grid.axis_sizes):
            inputs.append(pending := Var(aval))
            region.views[pending] = inside
            continue
        dims = framed_dims(natural_layout(inside, region.grid.axis_sizes), tensor, frames)
        outer, region.current = region.current, view.eqn or region.current
        inputs.append(inside_var := Var(aval))
        region.define(inside_var, Assembler(region, aval).assemble(inside, dims, fill), dims)
        region.current = outer
    outputs = [Var(framed_type(t, tensor, frames)) for t, tensor in zip(out_types, rule.outputs, strict=True)]
    placed = [
        framed_dims(region.placement(v), tensor, frames) for v, tensor in zip(eqn.outputs, rule.outputs, strict=True)
    ]
    params = eqn.params
    if op.localize is not None:
        params = dict(op.localize(params, tuple([a.aval for a in inputs]), tuple([v.aval for v in outputs])))
    inner = region.placing(dict(zip(outputs, placed, strict=True)))
    inner.equation(Equation(op, tuple(inputs), tuple(outputs), params, eqn.source))
    for var, out, tensor in zip(eqn.outputs, outputs, rule.outputs, strict=True):
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
        for d in view.moved():
            axes, n = view.axes(d), view.shape[d]
            if not axes or n % ways(axes, sizes) == 0 or d in windows:
                continue
            if len(tensor[d]) != 1 or n < 2 * ways(axes, sizes):
                return None
            (f,) = tensor[d]
            if f not in frames:
                if not _can_be_framed(eqn, rule, f):
                    return None
                frame = _frame(f, n, axes, rule, views, sizes)
                low = positions().low(eqn.inputs[i], d)
                inside = low is not None and 0 <= low <= frame.size - n
                frames[f] = replace(frame, low=low) if low is not None and inside else frame
    used = [a for frame in frames.values() for a in frame.axes]
    return frames if len(used) == len(set(used)) else None


def _lies_unevenly(view: View, tensor: TensorFactors, frames: Frames, sizes: Mapping[str, int]) -> bool:
    """Whether other axes than its frame's, which do not divide it, split the view along a framed dim."""
    framed = [d for d, fs in enumerate(tensor) if fs and fs[0] in frames]
    return any(view.shape[d] % ways(view.axes(d), sizes) for d in framed)


def _can_be_framed(eqn: Equation, rule: Rule, f: int) -> bool:
    """Whether the frame's positions outside the dim of factor `f` affect no result."""
    op, _, _ = unwrapped(eqn.op, eqn.params)
    if op.collective is not None or op.calls_user or op.has_effects(eqn.params):
        return False
    # Values follow from positions; lookups count positions of whole dims alone.
    if op.place is not None and op.indexed is None:
        return False
    if any(f in fs for t in rule.tensors for fs in t if fs != (f,)):
        return False
    if rule.kinds[f] is Kind.REDUCE:  # these positions hold the identity
        adds = op.updates and op.reduction_of(eqn.params) == "sum"
        return not op.multiple_results and (op.contraction is not None or op.fold is not None or adds)
    return rule.kinds[f] is Kind.PASS


def _frame(f: int, n: int, axes: Axes, rule: Rule, views: Sequence[View], sizes: Mapping[str, int]) -> Frame:
    """The frame that most operands lie in already, else a new one. Of their positions, the closest to the middle: stencils end there."""
    found: dict[tuple[int, Axes], list[int]] = {}
    for view, tensor in zip(views, rule.inputs, strict=True):
        d = dim_of(tensor, f)
        if d is None or any(p.fills for p in view.parts):
            continue
        stands = {(p.first[d], p.at[d], p.size[d], p.source.shape[d], p.source.dims[d]) for p in view.parts}
        if len(stands) == 1:
            ((first, at, size, whole, split),) = stands
            if at == 0 and size == n and split and 2 * n > whole:
                found.setdefault((whole, split), []).append(first)
    if found:
        (whole, split), places = max(found.items(), key=lambda entry: len(entry[1]))
        middle = (whole - n + (2 * places[0] > whole - n)) // 2  # of two middles, the one closer to the first operand
        return Frame(min(max(middle, min(places)), max(places)), whole, split)
    parts = ways(axes, sizes)
    return Frame(0, -(-n // parts) * parts, axes)


def framed_type(aval: ShapedArray, tensor: TensorFactors, frames: Frames) -> ShapedArray:
    """The type of a value with its frames."""
    shape = tuple(frames[fs[0]].size if fs and fs[0] in frames else n for n, fs in zip(aval.shape, tensor, strict=True))
    return aval if shape == aval.shape else ShapedArray(shape, aval.dtype, aval.weak_type)


def framed_dims(dims: DimAxes, tensor: TensorFactors, frames: Frames) -> DimAxes:
    """A layout with the frames' axes on the framed dims."""
    taken = {a for fs in tensor for f in fs if f in frames for a in frames[f].axes}
    return tuple(
        frames[fs[0]].axes if fs and fs[0] in frames else axes if not taken.intersection(axes) else ()
        for axes, fs in zip(dims, tensor, strict=True)
    )


def into_frames(view: View, tensor: TensorFactors, frames: Frames, alone: bool = False) -> View:
    """A value placed in its frames. A fill value fills the whole frame, unless it must keep its place (`alone`)."""
    low = [frames[fs[0]].low if fs and fs[0] in frames else 0 for fs in tensor]
    shape = tuple(frames[fs[0]].size if fs and fs[0] in frames else n for n, fs in zip(view.shape, tensor, strict=True))
    parts = tuple(
        Part(p.source, p.first, tuple(a + b for a, b in zip(p.at, low, strict=True)), p.size) for p in view.parts
    )
    if parts and not alone and view.parts[0].fills and view.parts[0].size == view.shape:
        parts = (replace(parts[0], at=(0,) * len(shape), size=shape), *parts[1:])
    return View(shape, parts, view.eqn)


def out_of_frames(framed: View, aval: ShapedArray, tensor: TensorFactors, frames: Frames, eqn: Equation) -> View:
    """The value inside the frames of `framed`."""
    low = tuple(frames[fs[0]].low if fs and fs[0] in frames else 0 for fs in tensor)
    return compose((Box(0, low, (0,) * aval.ndim, aval.shape),), [framed], aval.shape, eqn)
