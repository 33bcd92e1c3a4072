"""`gather` and `scatter` in small programs: one window after the other, at positions that vectors of indices say.

Where devices have indices of their own, theirs come one device after the other; a scatter that adds up over devices puts all their
updates into one operand, in their order. Windows that do not lie inside of the operand are moved until they do (CLIP), or are filled or
left out, as the op's mode says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.ir import Equation, Spread, Var
from shardwise.ir.op import find_op
from shardwise.runtime.fused import takes_type
from shardwise.runtime.monoids import MONOIDS
from shardwise.runtime.small.code import Code, Value
from shardwise.runtime.small.loops import pointwise, store
from shardwise.runtime.small.moves import Wanted, view_value
from shardwise.runtime.small.positions import as_index, axes_joined, global_place, split_dims

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter


def gather(
    body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted, fill: Any, clips: bool
) -> list[Value]:
    """Windows of an operand. `fill`: what windows outside of it hold, unless it `clips`."""
    code, into, params, lead = body.code, wanted[0], eqn.params, body.code.lead
    numbers = params["dimension_numbers"]
    sizes: Shape = tuple(params["slice_sizes"])
    dims: Shape = numbers.start_index_map
    x, indices = code.in_memory(values[0]), values[1]
    split = split_dims(eqn)
    joined = {code.env.dim(a) for axes in split.values() for a in axes}
    devices = tuple(1 if d in joined else n for d, n in enumerate(x.shape[:lead]))
    shape = np.broadcast_shapes(devices, indices.shape[:lead]) + eqn.outputs[0].aval.shape
    into = code.memory(shape, x.dtype, into)
    rank = len(shape) - lead
    apart = [d for d in range(lead) if indices.shape[d] != 1]  # devices with indices of their own
    alike = [d for d in range(lead) if d not in apart]
    batch = [*apart, *(d + lead for d in range(rank) if d not in numbers.offset_dims)]
    window = [*alike, *(d + lead for d in numbers.offset_dims)]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [*alike, *(d + lead for d in range(len(sizes)) if d not in gone)]
    pairs: list[tuple[int, int]] = list(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    whole = _whole(code, x, split)
    limits = {d: whole[d] - sizes[d] for d in dims}

    def one(index: list[str], starts: list[str]) -> None:
        target = _part(code, into, window, batch, index)

        def inside(clamped: list[str]) -> None:
            place = _address_at(code, x, apart, index)
            for d, at in [*zip(dims, clamped, strict=True), *((d, index[len(apart) + b]) for d, b in pairs)]:
                place = global_place(code, x, place, d, split.get(d, ()), at)
            full = devices + sizes
            source = replace(x, shape=tuple(full[d] for d in kept), steps=tuple(x.steps[d] for d in kept), place=place)
            store(code, code.settle_value(source), target)

        def outside() -> None:
            store(code, code.constant_value(np.asarray(fill), x.dtype, (1,) * len(target.shape)), target)

        sizes_of = [whole[d] for d in dims]
        _place_window(
            code,
            starts,
            sizes_of,
            [limits[d] for d in dims],
            params["wrap_negative"],
            clips,
            inside,
            outside,
        )

    _each_vector(code, indices, apart, tuple(shape[d] for d in batch), one)
    return [code.settle_value(into)]


def scatter(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted, clips: bool) -> list[Value]:
    """An operand with windows replaced, or combined with the elements there, in the order of the updates."""
    code, into, params, lead = body.code, wanted[0], eqn.params, body.code.lead
    numbers = params["dimension_numbers"]
    x, indices, updates = values[0], values[1], code.in_memory(values[2])
    summed = [code.env.dim(a) for a in axes_joined(code, eqn, values)]
    for d in summed:  # what is there before counts once
        x = _first(code, x, d)
    leads = np.broadcast_shapes(*[v.shape[:lead] for v in (x, indices, updates)])
    split = split_dims(eqn)
    parted = {code.env.dim(a): code.env.size(a) for axes in split.values() for a in axes}
    shape: Shape = tuple(1 if d in summed else parted.get(d) or n for d, n in enumerate(leads)) + x.shape[lead:]
    into = code.memory(shape, x.dtype, into)
    if (x.place, x.steps) != (into.place, into.steps):
        store(code, x, into)
    rank = len(updates.shape) - lead
    apart = [*summed, *(d for d in range(lead) if indices.shape[d] != 1 and d not in summed)]
    alike = [d for d in range(lead) if d not in apart]
    own = [d + lead for d in range(rank) if d not in numbers.update_window_dims]
    batch = [*apart, *own]
    window = [*alike, *(d + lead for d in numbers.update_window_dims)]
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = [*alike, *(d + lead for d in range(len(shape) - lead) if d not in gone)]
    pairs: list[tuple[int, int]] = list(
        zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    )
    full = [1 if d in parted or d >= lead else n for d, n in enumerate(shape)]
    whole = _whole(code, into, split)
    for d, u in zip(kept[len(alike) :], numbers.update_window_dims, strict=True):
        full[d] = updates.shape[lead + u]
    combine = find_op(params["combine"]) if params["combine"] else None
    dims: Shape = numbers.scatter_dims_to_operand_dims

    def one(index: list[str], starts: list[str]) -> None:
        def inside(clamped: list[str]) -> None:
            update = code.settle_value(_part(code, updates, window, batch, index))
            place = _address_at(code, into, apart, index)
            for d, at in [*zip(dims, clamped, strict=True), *((d, index[len(apart) + b]) for d, b in pairs)]:
                place = global_place(code, into, place, d, split.get(d, ()), at)
            target = replace(
                into, shape=tuple(full[d] for d in kept), steps=tuple(into.steps[d] for d in kept), place=place
            )
            if combine is not None:
                update = _combine_update(code, combine, target, update)
            store(code, update, target)

        limits = [whole[d] - full[lead + d] for d in dims]
        _place_window(
            code, starts, [whole[d] for d in dims], limits, params["wrap_negative"], clips, inside, lambda: None
        )

    # A value that is the same on all devices counts once for each.
    repeats = MONOIDS[eqn.op.reduction_of(eqn.params)].repeated is not None
    rounds = [code.env.axis_sizes[d] if d in summed and repeats else leads[d] for d in apart]
    _each_vector(code, indices, apart, (*rounds, *(updates.shape[d] for d in own)), one)
    return [code.settle_value(into)]


def windows_fit(eqn: Equation, spread: Spread) -> bool:
    """Whether a small program can hold windows of split dims: a window has one element along each of them, positions are the same on all
    devices there, and the equation itself adds up the devices' parts, whether of what is read or of the updates.
    """
    params, operands = eqn.params, eqn.inputs
    assert eqn.op.indexed is not None
    windows = eqn.op.indexed(params, tuple([a.aval for a in operands]))
    assert windows is not None
    sizes, split = dict(zip(windows.dims, windows.sizes, strict=True)), split_dims(eqn)
    axes = {a for names in split.values() for a in names}
    if any(sizes.get(d) != 1 for d in split) or any(isinstance(a, Var) and axes & a.aval.vma for a in operands[1:]):
        return False
    summed = axes if eqn.op.extracts else set(params.get("update_axes") or ())
    if set(params.get("sum_axes") or ()) != summed:
        return False
    if not isinstance(eqn.inputs[1], Var):
        return False
    combined = params.get("combine")
    form = find_op(combined).emit if combined else None
    return form is None or takes_type(eqn.outputs[0].aval, form.kinds)


def _combine_update(code: Code, op: Any, there: Value, update: Value) -> Value:
    """`op` of the values in memory and an update."""
    update = code.align_rank(update, len(there.shape))
    return pointwise(code, [there, update], lambda lanes: code.emit(op, lanes, {}, there.dtype), there.dtype)


def _part(code: Code, x: Value, window: Sequence[int], batch: Sequence[int], index: Sequence[str]) -> Value:
    """The window of a result, or of updates, that belongs to a vector of indices."""
    place = _address_at(code, x, batch, index)
    return replace(x, shape=tuple(x.shape[d] for d in window), steps=tuple(x.steps[d] for d in window), place=place)


def _address_at(code: Code, x: Value, dims: Sequence[int], index: Sequence[str]) -> str:
    """The address of the element at these positions of dims; a dim of one element has it everywhere."""
    place = x.place
    for d, at in zip(dims, index, strict=False):
        place = code.advance_address(place, at, x.steps[d]) if x.shape[d] != 1 else place
    return place


def _first(code: Code, x: Value, d: int) -> Value:
    """`x` as it is at the first position of a dim."""
    if x.shape[d] == 1:
        return x
    x = code.in_memory(x)
    return replace(x, shape=(*x.shape[:d], 1, *x.shape[d + 1 :]), steps=(*x.steps[:d], 0, *x.steps[d + 1 :]))


def _whole(code: Code, x: Value, split: Mapping[int, tuple[str, ...]]) -> Shape:
    """The sizes of dims on all devices that split them."""
    return tuple(n * math.prod(map(code.env.size, split.get(d, ()))) for d, n in enumerate(x.shape[code.lead :]))


def _each_vector(
    code: Code, indices: Value, apart: Sequence[int], batch: Shape, one: Callable[[list[str], list[str]], None]
) -> None:
    """`one(position, its indices)` for each vector of indices: of each device of the leading dims `apart`, which `batch` begins with."""
    count = indices.shape[-1]
    if math.prod(batch) == 1:

        def element(i: int) -> Value:
            def place(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
                return array.reshape(-1)[i : i + 1].reshape(())

            return view_value(code, indices, place)[0]

        parts = [element(i) for i in range(count)]
        one(["0"] * len(batch), [as_index(code, p) for p in parts])
        return
    source = code.in_memory(indices)
    dims = [*apart, *range(code.lead, len(source.shape) - 1)]
    steps = [source.steps[d] if source.shape[d] != 1 else 0 for d in dims]

    def at(position: list[str], place: str) -> None:
        if len(position) < len(batch):

            def body(i: str, _: list[str]) -> list[str]:
                at([*position, i], code.advance_address(place, i, steps[len(position)]))
                return []

            code.loop(0, batch[len(position)], body)
            return
        starts = [
            replace(source, shape=(), steps=(), place=code.advance_address(place, "1", i * source.steps[-1]))
            for i in range(count)
        ]
        one(position, [as_index(code, s) for s in starts])

    at([], source.place)


def _place_window(
    code: Code,
    starts: list[str],
    sizes: Sequence[int],
    limits: Sequence[int],
    wrap: bool,
    clips: bool,
    inside: Callable[[list[str]], None],
    outside: Callable[[], None],
) -> None:
    """`inside(clamped starts)` if all starts lie within their limits, or always if it `clips`; else `outside()`."""
    clamped, good = list[str](), "true"
    for start, n, limit in zip(starts, sizes, limits, strict=True):
        at = start
        if wrap:
            at = code.from_end(at, n)
        if clips:
            clamped.append(code.clamp(at, 0, limit))
            continue
        clamped.append(at)
        good = code.value(f"and i1 {good}, {code.test('ule', at, limit)}")
    if good == "true":
        inside(clamped)
        return
    code.branch(good, lambda: inside(clamped), outside)
