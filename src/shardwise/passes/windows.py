"""Windows of views: an op that needs its neighbours' rows (`Op.halo`) fetches them from the sources of its operand's parts.

    a sum over windows of 3 of pad(x, 1, 1)      each device fetches a row of x from either side; the padded value, whose size the
                                                 axes do not divide, never exists

Comes in: an equation whose first operand is a view. Goes out: one exchange per dim for the windows, and the op on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardwise.base.shapes import DimAxes
from shardwise.ir import Equation, ExactParams, ShapedArray, literal
from shardwise.ir.op import Halo
from shardwise.passes.assemble import Assembler, DeviceWindow, natural_layout
from shardwise.passes.by_rule import compute, with_windows_fetched
from shardwise.passes.reshard import ways
from shardwise.passes.split import Split, dim_of, split_of
from shardwise.passes.views import View
from shardwise.sharding.rule import Kind, Rule

if TYPE_CHECKING:
    from shardwise.passes.partition import Region

Sizes = Mapping[str, int]


def windowed_dims(eqn: Equation, rule: Rule, view: View, sizes: Sizes) -> list[int]:
    """The dims along which `view`, operand 0 of an equation, moves and is split, and the op takes windows."""
    op = eqn.op
    if op.halo is None:
        return []
    types = tuple([a.aval for a in eqn.inputs])
    dims: list[int] = []
    for d in view.moved_dims():
        axes, factors = view.axes(d), rule.inputs[0][d]
        if not axes or len(factors) != 1 or rule.kinds[factors[0]] is not Kind.PERMUTE:
            continue
        d_out = dim_of(rule.outputs[0], factors[0])
        if d_out is None or any(factors[0] in fs for t in (*rule.inputs[1:], *rule.outputs[1:]) for fs in t):
            continue
        part, rest = divmod(eqn.outputs[0].aval.shape[d_out], ways(axes, sizes))
        if part and not rest and op.halo(eqn.params, d, types, part) is not None:
            dims.append(d)
    return dims


def with_windows(region: Region, eqn: Equation) -> bool:
    """Compute with windows of operand 0 if that is a view, not laid out yet, that moves along dims in which the op takes windows."""
    if eqn.op.halo is None or not region.is_view(eqn.inputs[0]):
        return False
    op, sizes = eqn.op, region.grid.axis_sizes
    types, out_types = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
    rule, view = op.sharding_rule(types, out_types, eqn.params), region.view(eqn.inputs[0])
    dims = windowed_dims(eqn, rule, view, sizes)
    used = [a for d in dims for a in view.axes(d)]
    if not dims or len(used) != len(set(used)):
        return False
    natural = natural_layout(view, sizes)
    layout = tuple(
        view.axes(d) if d in dims else () if set(axes).intersection(used) else axes for d, axes in enumerate(natural)
    )
    # The rule gets a size that the axes divide; only windows of the operand are ever made.
    shape = tuple(
        -(-n // ways(axes, sizes)) * ways(axes, sizes) for n, axes in zip(types[0].shape, layout, strict=True)
    )
    rounded_types = (types[0].update(shape=shape), *types[1:])
    others = [region.read(a) for a in eqn.inputs[1:]]
    result_layouts = region.result_layouts(eqn)
    current_layouts = (layout, *[have for _, have in others], *result_layouts)
    split: Split = split_of(op, rounded_types, out_types, ExactParams(eqn.params), current_layouts, region.sizes)
    exchanged_dims = [dim_of(rule.inputs[0], f) for f in split.exchanged if rule.kinds[f] is Kind.PERMUTE]
    if (
        split.operands[0] != layout
        or len(exchanged_dims) != len(split.exchanged)
        or not set(dims) <= set(exchanged_dims)
    ):
        return False
    moves = [
        region.move_value(a, local, have, want)
        for a, (local, have), want in zip(eqn.inputs[1:], others, split.operands[1:], strict=True)
    ]
    first_equation = len(region.equations)
    window_atoms = _windows(region, eqn, view, layout, split, types)
    if window_atoms is not None:
        atoms, params = [window_atoms[0], *moves], window_atoms[1]
    else:  # parts overlap: the view is assembled first
        del region.equations[first_equation:]
        atoms, params = (
            [Assembler(region, rounded_types[0]).assemble(_extend_view(view, shape), layout), *moves],
            dict(eqn.params),
        )
        for f in split.exchanged:
            atoms, params = with_windows_fetched(region, eqn, split.rule, f, split.factors[f], atoms, params)
    compute(region, eqn, split, atoms, params, result_layouts)
    return True


def _extend_view(view: View, shape: tuple[int, ...]) -> View:
    """A view extended to this shape with arbitrary values."""
    first, *parts = view.parts
    if first.fills and first.size == view.shape:
        first = replace(first, size=shape)
    return View(shape, (first, *parts), view.eqn)


def _windows(
    region: Region, eqn: Equation, view: View, layout: DimAxes, split: Split, types: tuple[ShapedArray, ...]
) -> tuple[Any, dict[str, Any]] | None:
    """Operand 0 as windows, and the op's params for them."""
    assert eqn.op.halo is not None
    params, rule = dict(eqn.params), split.rule
    windows: dict[int, DeviceWindow] = {}
    fill: Any = None
    for f in split.exchanged:
        d, d_out = dim_of(rule.inputs[0], f), dim_of(rule.outputs[0], f)
        assert d is not None and d_out is not None
        n = ways(split.factors[f], region.grid.axis_sizes)
        halo = eqn.op.halo(params, d, types, eqn.outputs[0].aval.shape[d_out] // n)
        if halo is None or split.factors[f] != layout[d]:
            return None
        windows[d] = DeviceWindow(halo.step, halo.start, halo.width)
        params = dict(halo.params)
        fill = _fill(region, eqn, view, halo, (windows[d], d, n), fill)
    assert fill is not None
    outer, region.current = region.current, view.eqn or region.current
    atom = Assembler(region, types[0]).windows(view, layout, windows, fill)
    region.current = outer
    return None if atom is None else (atom, params)


def _fill(
    region: Region, eqn: Equation, view: View, halo: Halo, place: tuple[DeviceWindow, int, int], known: Any
) -> Any:
    """The value at positions without a part: the op's padding value, or the view's fill value if no window reaches beyond its ends."""
    (window, d, n), ground = place, view.parts[0]
    inside = window.start >= 0 and window.step * (n - 1) + window.start + window.width <= view.shape[d]
    if inside and known is None and ground.fills and ground.size == view.shape:
        return ground.source.atom
    if inside and known is not None:
        return known
    if halo.fill_operand is not None:
        return region.read(eqn.inputs[halo.fill_operand])[0]
    return literal(halo.fill, eqn.inputs[0].aval.dtype)
