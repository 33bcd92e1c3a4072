"""Windows over split dims, where the mesh axes do not divide the number of windows: compute extra windows, then slice them off.

    windows of 3 over 64 rows on 4 devices       64 windows, 16 on each, the last two of which extend beyond the end;
                                                 the result is a view of the first 62

Comes in: an equation of an op that reduces or multiplies windows. Goes out: one with more padding at the end, and a slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Equation, Var, literal
from shardwise.ir.op import Params
from shardwise.ops.shapes.pieces import pad_p, slice_p
from shardwise.sharding.rule import Kind

_LEAST = 2  # windows per device; with fewer, another sharding of the result is used


@dataclass(frozen=True, slots=True)
class Place:
    """A dim with windows: dim `d` of operand 0 and `d_out` of the result, its index `i` in the padding, its stride.

    `taps` is the dim of operand 1 with the factors of a window's elements, `gap` apart; parts are multiples of `unit`.
    """

    i: int
    d: int
    d_out: int
    stride: int
    taps: int | None = None
    gap: int = 1
    unit: int = 1


def even_windows(places: Callable[[Params, int], Sequence[Place]]) -> Callable[[Any, Equation], None]:
    """The `partition` of an op with windows; `places` gives its window dims from its params and its number of dims."""

    def partition(region: Any, eqn: Equation) -> None:
        view, window_places = region.view(eqn.inputs[0]), places(eqn.params, eqn.inputs[0].aval.ndim)
        ways = {p: math.prod(region.sizes_of(view.axes(p.d))) for p in window_places}
        split = [p for p in window_places if ways[p] > 1]
        if split:
            eqn, region = _with_even_taps(region, eqn, view, split, ways)
        uneven = {p: more for p in split if (more := _missing_windows(eqn, p, ways[p]))}
        if not uneven:
            return region.usual(eqn)
        (out,) = eqn.outputs
        shape, padding, layout = list(out.aval.shape), list(eqn.params["padding"]), list(region.result_layouts(eqn)[0])
        for p, more in uneven.items():
            low, high = padding[p.i]
            padding[p.i] = low, high + more * p.stride
            shape[p.d_out] += more
        own = {a for p in uneven for a in view.axes(p.d)}
        layout = [() if own.intersection(axes) else axes for axes in layout]
        for p in uneven:
            layout[p.d_out] = view.axes(p.d)
        whole = Var(out.aval.update(shape=tuple(shape)))
        region = region.with_placements({whole: tuple(layout)})
        region.usual(Equation(eqn.op, eqn.inputs, (whole,), {**eqn.params, "padding": tuple(padding)}, eqn.source))
        cut = {"start_indices": (0,) * len(shape), "limit_indices": out.aval.shape, "strides": None}
        region.usual(Equation(slice_p, (whole,), (out,), cut, eqn.source))

    return partition


def _missing_windows(eqn: Equation, p: Place, ways: int) -> int:
    """The number of windows missing for equal parts along a place where every device has windows of its own; else 0."""
    rule = eqn.op.sharding_rule(tuple([a.aval for a in eqn.inputs]), (eqn.outputs[0].aval,), eqn.params)
    factors, n = rule.inputs[0][p.d], eqn.outputs[0].aval.shape[p.d_out]
    if len(factors) != 1 or rule.kinds[factors[0]] is not Kind.PERMUTE or rule.outputs[0][p.d_out] != factors:
        return 0
    return -n % (ways * p.unit) if n >= _LEAST * ways * p.unit else 0


def _with_even_taps(region: Any, eqn: Equation, view: Any, split: list[Place], ways: dict[Place, int]) -> Any:
    """The equation with zeros after the taps of an image that is summed over, as in a kernel's gradient, if parts are unequal."""
    padding, edges = list(eqn.params["padding"]), [(0, 0, 0)] * eqn.inputs[-1].aval.ndim
    layout = list(region.layout(eqn.inputs[-1]) or ((),) * len(edges))
    for p in split:
        taps = 0 if p.taps is None else eqn.inputs[1].aval.shape[p.taps]
        if p.taps is None or taps <= eqn.outputs[0].aval.shape[p.d_out] or taps < _LEAST * ways[p]:
            continue
        low, high = padding[p.i]
        padding[p.i] = low, high + (-taps % ways[p]) * p.gap
        edges[p.taps] = 0, -taps % ways[p], 0
        layout = [() if set(axes).intersection(view.axes(p.d)) else axes for axes in layout]
        layout[p.taps] = view.axes(p.d)
    if not any(map(any, edges)):
        return eqn, region
    taps = eqn.inputs[1]
    zero, shape = (
        literal(0, taps.aval.dtype),
        [n + high for n, (_, high, _) in zip(taps.aval.shape, edges, strict=True)],
    )
    whole = Var(taps.aval.update(shape=tuple(shape)))
    region = region.with_placements({whole: tuple(layout)})
    region.usual(Equation(pad_p, (taps, zero), (whole,), {"padding_config": tuple(edges)}, eqn.source))
    params = {**eqn.params, "padding": tuple(padding)}
    return Equation(eqn.op, (eqn.inputs[0], whole), eqn.outputs, params, eqn.source), region
