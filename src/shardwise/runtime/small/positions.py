"""Windows at computed positions in small programs: `dynamic_slice`, `dynamic_update_slice`, and `window_part` along a split dim.

Comes in: an operand and its starts, one scalar per dim. Goes out: the window's address; where starts differ from device to device, one
window after the other. A dim that mesh axes split counts as one: `global_place` finds the device that has a position, and where there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shardwise.base.shapes import Axes, Shape
from shardwise.ir import Equation, Spread, Var
from shardwise.runtime.small.code import Code, Value
from shardwise.runtime.small.loops import store
from shardwise.runtime.small.moves import Wanted, apart

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter

Split = Mapping[int, Axes]  # the mesh axes of dims that they split


def dynamic_slice(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """A window that begins at scalars, shifted until it fits into the operand."""
    code, (x, *starts) = body.code, values
    sizes, wrap = tuple(eqn.params["slice_sizes"]), eqn.params["wrap"]
    own, lead = _own_starts(code, starts), x.shape[: code.lead]
    if not own:
        return [apart(code, x, code.settle_value(_window(code, x, starts, lead + sizes, wrap)))]
    lead = np.broadcast_shapes(lead, *[s.shape[: code.lead] for s in starts])
    x, into = code.in_memory(x), code.memory(lead + sizes, x.dtype, wanted[0])

    def one(index: list[str], starts: list[Value]) -> None:
        source, target = _of_device(code, x, own, index), _of_device(code, into, own, index)
        window = _window(code, source, starts, source.shape[: code.lead] + sizes, wrap)
        store(code, code.settle_value(window), target)

    _each_device(code, own, lead, starts, one)
    return [code.settle_value(into)]


def dynamic_update(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """An operand with a window replaced."""
    code, into, (x, update, *starts), wrap = body.code, wanted[0], values, eqn.params["wrap"]
    split, own = split_dims(eqn), _own_starts(code, starts)
    lead = np.broadcast_shapes(x.shape[: code.lead], update.shape[: code.lead])
    lead = _with_devices(code, lead, [a for axes in split.values() for a in axes])
    lead = np.broadcast_shapes(lead, *[s.shape[: code.lead] for s in starts])
    into = code.memory(lead + x.shape[code.lead :], x.dtype, into)
    if (x.place, x.steps) != (into.place, into.steps):
        store(code, x, into)
    if own:
        update = code.in_memory(update)

        def one(index: list[str], starts: list[Value]) -> None:
            target, part = _of_device(code, into, own, index), code.settle_value(_of_device(code, update, own, index))
            sizes = target.shape[: code.lead] + update.shape[code.lead :]
            store(code, part, _window(code, target, starts, sizes, wrap))

        _each_device(code, own, lead, starts, one)
    elif update is not body.rooms.get(eqn.inputs[1]):  # else it was computed there
        store(code, update, _window(code, into, starts, lead + update.shape[code.lead :], wrap, split))
    return [code.settle_value(into)]


def updated_window(body: BodyWriter, eqn: Equation) -> Value | None:
    """The window that a `dynamic_update` replaces, if the result is written over the operand; else None."""
    code, (x, update, *_) = body.code, eqn.inputs
    old, into = body.value(x), body.wanted.get(eqn.outputs[0])
    if into is None or (old.place, old.steps, old.shape) != (into.place, into.steps, into.shape):
        return None
    starts = [body.value(a) for a in eqn.inputs[2:]]
    if _own_starts(code, starts):
        return None
    return _window(code, into, starts, into.shape[: code.lead] + update.aval.shape, eqn.params["wrap"], split_dims(eqn))


def window_part(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The window of a dim that mesh axes split: rows of several devices are put together."""
    code, params, (x, *starts) = body.code, eqn.params, values
    d: int = params["dim"]
    axes: Axes = params["axes"]
    sizes: Shape = tuple(params["slice_sizes"])
    x, split = code.in_memory(x), {d: axes}
    lead = _without_devices(code, x.shape[: code.lead], axes)
    if sizes[d] == 1 or _even_step(code, x, d, axes) is not None:
        return [apart(code, x, code.settle_value(_window(code, x, starts, lead + sizes, params["wrap"], split)))]
    into, at = code.memory(lead + sizes, x.dtype, wanted[0]), code.lead + d
    first = clamp_position(code, starts[d], *_limit(code, x, d, axes, sizes[d]), params["wrap"][d])
    row = (*sizes[:d], 1, *sizes[d + 1 :])
    here = [s if e != d else code.constant_value(np.zeros((), np.int64), "int64") for e, s in enumerate(starts)]
    rows = _window(code, x, here, lead + row, params["wrap"], split)

    def one(i: str, _: list[str]) -> list[str]:
        place = global_place(code, x, rows.place, d, axes, code.integer("add", first, i))
        target = replace(into, shape=lead + row, place=code.advance_address(into.place, i, into.steps[at]))
        store(code, code.settle_value(replace(rows, place=place)), target)
        return []

    code.loop(0, sizes[d], one)
    return [code.settle_value(into)]


def axes_joined(code: Code, eqn: Equation, values: Sequence[Value]) -> Axes:
    """The mesh axes over which an op adds up parts: all of them, as it reads each position where it is."""
    return tuple(eqn.params.get("sum_axes") or ())


# -- what fits -----------------------------------------------------------------------------------------------------------------


def starts_fit(eqn: Equation, spread: Spread) -> bool:
    """Whether a dim that is cut and split has windows of one element, at the same place for all devices there."""
    assert eqn.op.indexed is not None
    windows = eqn.op.indexed(eqn.params, tuple([a.aval for a in eqn.inputs]))
    assert windows is not None
    split = split_dims(eqn)
    sizes = dict(zip(windows.dims, windows.sizes, strict=True))
    return all(sizes[d] == 1 for d in split) and _alike(eqn.inputs[1:], split)


def part_fits(eqn: Equation, spread: Spread) -> bool:
    """Whether the devices' parts are summed at once, at the same place for all of them."""
    axes, starts = eqn.params["axes"], eqn.inputs[1:]
    varying = {a for s in starts if isinstance(s, Var) for a in s.aval.vma}
    return set(eqn.params.get("sum_axes", ())) == set(axes) and not varying


def split_dims(eqn: Equation) -> dict[int, Axes]:
    """The dims of operand 0 that mesh axes split and at which positions count through all devices."""
    return {d: axes for d, axes in enumerate(eqn.params.get("operand_axes") or ()) if axes}


def _alike(operands: Sequence[object], split: Split) -> bool:
    """Whether operands are the same on all devices of the axes."""
    axes = {a for names in split.values() for a in names}
    return not any(isinstance(a, Var) and axes & a.aval.vma for a in operands)


# -- addresses -----------------------------------------------------------------------------------------------------------------


def _window(
    code: Code, x: Value, starts: Sequence[Value], sizes: Shape, wrap: Sequence[bool], split: Split | None = None
) -> Value:
    """The window of that size; `sizes` begins with the leading extents, which are 1 for axes of `split`."""
    x = code.in_memory(x)
    place, split = x.place, split or {}
    for d, (start, wraps) in enumerate(zip(starts, wrap, strict=True)):
        size = sizes[code.lead + d]
        n, limit = _limit(code, x, d, split.get(d, ()), size)
        if not limit:
            continue
        if start.constant is not None:
            first = int(start.constant.item())
            index = str(min(max(first + n if wraps and first < 0 else first, 0), limit))
        else:
            index = clamp_position(code, start, n, limit, wraps)
        place = global_place(code, x, place, d, split.get(d, ()), index)
    lead = _without_devices(code, sizes[: code.lead], [a for axes in split.values() for a in axes])
    return replace(x, shape=lead + sizes[code.lead :], place=place)


def _limit(code: Code, x: Value, d: int, axes: Axes, size: int) -> tuple[int, int]:
    """The size of a dim on all devices of the axes, and the last start of a window."""
    n = x.shape[code.lead + d] * math.prod(map(code.env.size, axes))
    return n, n - size


def global_place(code: Code, x: Value, place: str, d: int, axes: Axes, at: str) -> str:
    """The address of position `at` of dim `d`, which counts through the parts of all devices of the axes, from that of position 0."""
    step = x.steps[code.lead + d]
    if not axes or _even_step(code, x, d, axes) is not None:
        return code.advance_address(place, at, step)
    *devices, local = code.split(at, [*map(code.env.size, axes), x.shape[code.lead + d]])
    for axis, device in zip(axes, devices, strict=True):
        lead = code.env.dim(axis)
        place = code.advance_address(place, device, x.steps[lead]) if x.shape[lead] != 1 else place
    return code.advance_address(place, local, step)


def _even_step(code: Code, x: Value, d: int, axes: Axes) -> int | None:
    """The step between neighbours where the devices' parts lie one after the other; None where they do not."""
    step = x.steps[code.lead + d]
    after = step * x.shape[code.lead + d]
    for axis in reversed(axes):
        lead = code.env.dim(axis)
        if x.shape[lead] != code.env.size(axis) or (x.shape[lead] > 1 and x.steps[lead] != after):
            return None
        after *= x.shape[lead]
    return step


def _with_devices(code: Code, lead: Shape, axes: Sequence[str]) -> Shape:
    dims = {code.env.dim(a): code.env.size(a) for a in axes}
    return tuple(dims.get(d, n) for d, n in enumerate(lead))


def _without_devices(code: Code, lead: Shape, axes: Sequence[str]) -> Shape:
    gone = {code.env.dim(a) for a in axes}
    return tuple(1 if d in gone else n for d, n in enumerate(lead))


def _own_starts(code: Code, starts: Sequence[Value]) -> list[int]:
    """The leading dims along which devices have starts of their own."""
    return [d for d in range(code.lead) if any(s.shape[d] != 1 for s in starts if s.shape)]


def _of_device(code: Code, x: Value, dims: Sequence[int], index: Sequence[str]) -> Value:
    """`x`, which is in memory, as one device has it."""
    place, shape = x.place, list(x.shape)
    for d, i in zip(dims, index, strict=True):
        place = code.advance_address(place, i, x.steps[d]) if shape[d] != 1 else place
        shape[d] = 1
    return replace(x, shape=tuple(shape), place=place)


def _each_device(
    code: Code,
    dims: Sequence[int],
    lead: Shape,
    starts: Sequence[Value],
    one: Callable[[list[str], list[Value]], None],
) -> None:
    """`one(position, starts there)` for each device along leading dims."""
    kept = [s if s.even or not s.shape else code.in_memory(s) for s in starts]

    def at(index: list[str]) -> None:
        if len(index) < len(dims):

            def body(i: str, _: list[str]) -> list[str]:
                at([*index, i])
                return []

            code.loop(0, lead[dims[len(index)]], body)
            return
        here = [replace(_of_device(code, s, dims, index), shape=(), steps=()) if s.place else s for s in kept]
        one(index, here)

    at([])


def clamp_position(code: Code, start: Value, n: int, limit: int, wrap: bool) -> str:
    """A computed position as an i64 in 0..limit; a negative one counts from `n` if `wrap`."""
    at = as_index(code, start)
    if wrap and start.dtype.startswith("int"):
        at = code.from_end(at, n)
    return code.clamp(at, 0, limit)


def as_index(code: Code, x: Value) -> str:
    """An integer scalar as an i64; uint64 beyond its range as the largest."""
    lane = code.lane_of(replace(x, shape=(1,)) if x.shape else x, (1,) if x.shape else ())
    one = code.value(f"extractelement <1 x {lane.type}> {lane.ref}, i64 0")
    if lane.bits < 64:
        return code.value(f"{'sext' if lane.signed else 'zext'} {lane.type} {one} to i64")
    if lane.signed:
        return one
    most = (1 << 63) - 1
    return code.least(one, most, signed=False)
