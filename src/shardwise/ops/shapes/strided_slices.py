"""Strided slices along split dims, and their transposes, pads with interior padding: as local equations and views.

    x[2:8:2] of 8 elements on 2 devices                  x[0:8:2], two elements on each; then all but the first of these
    elements with zeros between them, two before         one more zero before, then a zero after each element

Comes in: an equation of a slice or a pad. Goes out: a local one for each device's part, and one without strides, a view that its
readers assemble.
"""

from __future__ import annotations

import math
from typing import Any

from shardwise.ir import Equation, Op, Var, literal


def strided_partition(region: Any, eqn: Equation, pad: Op) -> None:
    """Partition a strided slice into the two slices, where possible: of the operand that `pad` makes a multiple of parts and strides."""
    (x,), (out,), params = eqn.inputs, eqn.outputs, eqn.params
    shape, size = x.aval.shape, out.aval.shape
    strides: tuple[int, ...] = params["strides"] or (1,) * len(shape)
    if not any(k > 1 for k in strides) or not x.aval.size:
        return region.usual(eqn)
    layout = region.layout(x)
    axes = [region.view(x).axes(d) for d in range(len(shape))] if layout is None else list(layout)
    ways = [math.prod(region.sizes_of(a)) for a in axes]
    uneven = [d for d, n in enumerate(ways) if n > 1 and strides[d] > 1 and size[d] % n and size[d] >= n]
    if not uneven:
        return region.usual(eqn)
    more = [-n % (strides[d] * ways[d]) if d in uneven else 0 for d, n in enumerate(shape)]
    if any(more):
        shape = tuple([n + m for n, m in zip(shape, more, strict=True)])
        padded_x = Var(x.aval.update(shape=shape))
        region = region.with_placements({padded_x: tuple(axes)})
        config = {"padding_config": tuple((0, m, 0) for m in more)}
        region.record_views(Equation(pad, (x, literal(0, x.aval.dtype)), (padded_x,), config, eqn.source))
        x = padded_x
    starts, limits, steps = list(params["start_indices"]), list(params["limit_indices"]), list(strides)
    whole_starts, whole_limits, whole_steps, whole_shape = [0] * len(shape), list(shape), [1] * len(shape), list(shape)
    for d, step in enumerate(strides):
        if d in uneven:
            first, whole_starts[d] = divmod(starts[d], step)
            whole_steps[d], whole_shape[d] = step, shape[d] // step
            starts[d], limits[d], steps[d] = first, first + size[d], 1
        elif step > 1:
            whole_starts[d], whole_limits[d], whole_steps[d], whole_shape[d] = starts[d], limits[d], step, size[d]
            starts[d], limits[d], steps[d] = 0, size[d], 1
    whole = Var(x.aval.update(shape=tuple(whole_shape)))
    placement = [a if n % k == 0 else () for a, n, k in zip(axes, whole_shape, ways, strict=True)]
    region = region.with_placements({whole: tuple(placement)})
    region.generic(Equation(eqn.op, (x,), (whole,), _cut(whole_starts, whole_limits, whole_steps), eqn.source))
    region.usual(Equation(eqn.op, (whole,), (out,), _cut(starts, limits, steps), eqn.source))


def spread_partition(region: Any, eqn: Equation) -> None:
    """Pad the operand at its ends until its parts are equal; then each device adds the interior padding to its own part."""
    (x, fill), (out,), config = eqn.inputs, eqn.outputs, eqn.params["padding_config"]
    if any(interior for _, _, interior in config) and region.compute_in_frames(eqn):
        return None
    placement = region.placements.get(out, ((),) * out.aval.ndim)
    ways = [math.prod(region.sizes_of(axes)) for axes in placement]
    dims = [d for d, n in enumerate(ways) if n > 1 and config[d][2] > 0]
    if not dims or any(out.aval.shape[d] % ((config[d][2] + 1) * ways[d]) for d in dims):
        return _pad_then_view(region, eqn)
    around, between, shape = list(config), [(0, 0, 0)] * len(ways), list(out.aval.shape)
    for d in dims:
        low, _, interior = config[d]
        first, rest = divmod(low, interior + 1)
        shape[d] //= interior + 1
        around[d] = (first, shape[d] - first - x.aval.shape[d], 0)
        between[d] = (rest, interior - rest, interior)
    if any(interior for _, _, interior in around):  # interior padding of other dims
        return _pad_then_view(region, eqn)
    whole = Var(out.aval.update(shape=tuple(shape)))
    region = region.with_placements({whole: placement})
    region.usual(Equation(eqn.op, (x, fill), (whole,), {"padding_config": tuple(around)}, eqn.source))
    local, have = region.read(whole)
    parts = [region.reshard(local, have, placement, whole.aval), region.read(fill)[0]]
    region.define(out, region.emit(eqn.op, parts, {"padding_config": tuple(between)})[0], placement)


def _pad_then_view(region: Any, eqn: Equation) -> None:
    """Each device adds interior padding after each of its own elements; then the view is padded or cut."""
    (x, fill), (out,), config = eqn.inputs, eqn.outputs, eqn.params["padding_config"]
    view = region.view(x)
    split = [d for d, (_, _, interior) in enumerate(config) if interior and view.axes(d)]
    if not x.aval.size or not split:
        return region.usual(eqn)
    more = [-n % math.prod(region.sizes_of(view.axes(d))) if d in split else 0 for d, n in enumerate(x.aval.shape)]
    if any(more):  # the axes do not divide the view
        whole = Var(x.aval.update(shape=tuple(n + m for n, m in zip(x.aval.shape, more, strict=True))))
        region = region.with_placements({whole: tuple(view.axes(d) if d in split else () for d in range(len(more)))})
        region.usual(
            Equation(eqn.op, (x, fill), (whole,), {"padding_config": tuple((0, m, 0) for m in more)}, eqn.source)
        )
        x = whole
    if region.spread(eqn, x):
        return None
    local, have = region.read(x)
    between = tuple((0, interior, interior) for _, _, interior in config)
    around = tuple(
        (low, high - interior - m * (interior + 1), 0) for m, (low, high, interior) in zip(more, config, strict=True)
    )
    spread = Var(x.aval.update(shape=tuple(n * (i + 1) for n, (_, _, i) in zip(x.aval.shape, config, strict=True))))
    (local,) = region.emit(eqn.op, [local, region.read(fill)[0]], {"padding_config": between})
    region.define(spread, local, have)
    region.usual(Equation(eqn.op, (spread, fill), (out,), {"padding_config": around}, eqn.source))


def _cut(starts: Any, limits: Any, steps: Any) -> dict[str, Any]:
    strides = tuple(steps) if any(s != 1 for s in steps) else None
    return {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": strides}
