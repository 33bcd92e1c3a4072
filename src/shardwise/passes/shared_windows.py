"""Windows that several ops need of one value are exchanged once, also if each op wants another value beyond the ends.

    mean and maximum over windows of x     the neighbours' rows of x come once; the second op replaces 0 by -inf where x ends

Comes in: the operands and params of a `halo_exchange`. Goes out: its result, made now or before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.shapes import Axes
from shardwise.ir import Atom, ShapedArray, literal
from shardwise.ops.devices.axis_index import axis_index_op
from shardwise.ops.devices.halo_exchange import halo_exchange
from shardwise.ops.elementwise.binary import add_p, mul_p
from shardwise.ops.elementwise.bitwise import and_p
from shardwise.ops.elementwise.comparison import ge_p, lt_p
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.iota import iota_p
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import slice_p
from shardwise.passes.views import PlacedValue

if TYPE_CHECKING:
    from shardwise.passes.partition import Region

_INDEX = np.dtype(np.int32)


def exchanged_windows(
    region: Region, sources: Sequence[Atom], fill: Atom, axes: Axes, aval: ShapedArray, params: dict[str, Any]
) -> Atom:
    """The devices' windows of `sources`, values of global type `aval`; positions outside of these hold `fill`."""
    if _are_the_parts(sources, params):
        return sources[0]
    region.known.changes.moves = True
    region.known.changes.alone = False
    ends = _ends(params)
    key = tuple(sources), axes, tuple(params.items())
    if ends is not None and key in region.windows:
        known, filled = region.windows[key]
        same = PlacedValue(filled, (), ()).is_same(PlacedValue(fill, (), ()))
        return known if same or _reach_no_end(params, ends) else _refill_ends(region, known, fill, axes, params, ends)
    if (
        ends is not None and sources[0] in region.refills
    ):  # along another dim the ends changed, and the rows here are known
        earlier, value, its_axes, its_params, its_ends = region.refills[sources[0]]
        key_before = (earlier,), axes, key[2]
        if its_params["dim"] != params["dim"] and key_before in region.windows and len(sources) == 1:
            known = _refill_ends(region, region.windows[key_before][0], value, its_axes, its_params, its_ends)
            return known if _reach_no_end(params, ends) else _refill_ends(region, known, fill, axes, params, ends)
    out = _extend_windows(region, sources, fill, axes, aval, params)
    if out is None:
        out = region.collective(halo_exchange, [*sources, fill], axes, aval, params)
    region.windows[key] = out, fill
    return out


def _are_the_parts(sources: Sequence[Atom], params: Mapping[str, Any]) -> bool:
    """Whether each device's window is its part of the one source: nothing moves."""
    step, parts = params["step"], math.prod(params["sizes"])
    return (
        len(sources) == 1
        and params["split"] == (True,)
        and (params["start"], params["width"], sources[0].aval.shape[params["dim"]]) == (0, step, step)
        and params["pieces"] == ((0, 0, 0, step * parts),)
    )


def _extend_windows(
    region: Region, sources: Sequence[Atom], fill: Atom, axes: Axes, aval: ShapedArray, params: dict[str, Any]
) -> Atom | None:
    """Windows put together from known overlapping windows and the rows that these lack; None if that does not send less.

        x[:-1:2] and x[1::2] of rows that the axes do not divide     the windows of the second begin and end one row later

    Where windows go on as the parts of the sources do, kernels read them where they lie, and they are left alone.
    """
    dim, start, width = params["dim"], params["start"], params["width"]
    if params["step"] == sources[0].aval.shape[dim]:
        return None
    ground = PlacedValue(fill, (), ())
    assert halo_exchange.collective is not None
    bytes_sent, sizes, types = (
        halo_exchange.collective.bytes_sent,
        region.grid.axis_sizes,
        tuple([a.aval for a in (*sources, fill)]),
    )
    best, fewest = None, bytes_sent(types, {"axes": axes, **params}, sizes)
    for (of, its_axes, items), (known, filled) in region.windows.items():
        its = dict(items)
        low, high = max(start, its["start"]), min(start + width, its["start"] + its["width"])
        like = {**its, "start": start, "width": width} == params
        if (
            of != tuple(sources)
            or its_axes != axes
            or low >= high
            or not like
            or not PlacedValue(filled, (), ()).is_same(ground)
        ):
            continue
        rest = [{**params, "start": a, "width": b - a} for a, b in ((start, low), (high, start + width))]
        sent = sum(bytes_sent(types, {"axes": axes, **p}, sizes) for p in rest if p["width"])
        if sent < fewest:
            best, fewest = (known, low - its["start"], high - its["start"], rest), sent
    if best is None:
        return None
    known, low, high, rest = best
    before, behind = [
        region.collectives(halo_exchange, [*sources, fill], axes, aval, p) if p["width"] else () for p in rest
    ]
    ends = {"start_indices": [0] * known.aval.ndim, "limit_indices": list(known.aval.shape)}
    ends["start_indices"][dim], ends["limit_indices"][dim] = low, high
    shared = region.emit(slice_p, [known], {**{k: tuple(v) for k, v in ends.items()}, "strides": None})
    return region.emit(concatenate_p, [*before, *shared, *behind], {"dimension": dim})[0]


def _ends(params: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first position of the dim that sources cover and the one behind the last; None if there are gaps between."""
    pieces = params["pieces"]
    low = end = pieces[0][2]
    for _, _, place, length in pieces:
        if place != end:
            return None
        end += length
    return low, end


def _reach_no_end(params: Mapping[str, Any], ends: tuple[int, int]) -> bool:
    """Whether all positions of all windows are covered."""
    last = params["step"] * (math.prod(params["sizes"]) - 1) + params["start"] + params["width"]
    return params["start"] >= ends[0] and last <= ends[1]


def _refill_ends(
    region: Region, known: Atom, fill: Atom, axes: Axes, params: Mapping[str, Any], ends: tuple[int, int]
) -> Atom:
    """Windows with `fill` at the positions outside of the `ends`."""
    emit, shape = region.emit, known.aval.shape
    line = {"dtype": _INDEX, "shape": (params["width"],), "dimension": 0, "out_sharding": None}
    (place,) = emit(iota_p, [], line)
    (device,) = emit(axis_index_op, [], {"axes": axes})
    (start,) = emit(mul_p, [device, literal(params["step"], _INDEX)], {})
    (place,) = emit(add_p, [place, start], {})
    low, high = (literal(end - params["start"], _INDEX) for end in ends)
    (inside,) = emit(and_p, [*emit(ge_p, [place, low], {}), *emit(lt_p, [place, high], {})], {})
    spread = {"shape": shape, "out_sharding": None}
    (inside,) = emit(broadcast_in_dim_p, [inside], {**spread, "broadcast_dimensions": (params["dim"],)})
    (ground,) = emit(broadcast_in_dim_p, [fill], {**spread, "broadcast_dimensions": ()})
    (out,) = emit(select_n_p, [inside, ground, known], {})
    region.refills[out] = known, fill, axes, params, ends
    return out
