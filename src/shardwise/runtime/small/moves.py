"""Ops that only move elements, as small programs do them: views, concatenations, paddings, slices at computed positions.

The op's own kernel says where elements go: applied to element numbers it gives the lane that each lane comes from, applied to an
array with the operand's strides it shows whether the result is a view.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.ir import Equation, Spread
from shardwise.runtime import costs
from shardwise.runtime.loops import dtype_name
from shardwise.runtime.machine import Lane
from shardwise.runtime.small.code import Code, Unwritable, Value, ValueBox
from shardwise.runtime.small.loops import dense, store

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter

Kernel = Callable[..., Any]
Wanted = Sequence[Value | None]  # the memory where results are wanted


def kernel_of(code: Code, eqn: Equation) -> Kernel:
    """The op's kernel on arrays with the leading dims at hand."""
    kernel = eqn.op.block_kernel
    return lambda *arrays: kernel(code.env, *arrays, **eqn.params)


def view(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """Results of an op whose kernel gives views of its operand."""
    x, code = values[0], body.code
    return [apart(code, x, v) for v in view_value(code, x, kernel_of(code, eqn))]


def apart(code: Code, x: Value, part: Value) -> Value:
    """`part` of `x`, out of reach of updates of `x`."""
    if not (x.updated and part.place):
        return part
    into = code.buffer(part.shape, part.dtype)
    store(code, part, into)
    return into


def constant(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The result of an op without operands."""
    return [body.code.constant_value(kernel_of(body.code, eqn)(), dtype_name(eqn.outputs[0].aval))]


def recast(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The same bits as another type of that size."""
    code, (x,), dtype = body.code, values, dtype_name(eqn.outputs[0].aval)
    if x.constant is not None:
        return [replace(x, dtype=dtype, constant=x.constant.view(dtype))]
    if x.lane is not None:
        return [replace(x, dtype=dtype, lane=code.at(x.width).bitcast(x.lane, dtype))]
    return [replace(x, dtype=dtype)]


def recast_fits(eqn: Equation, spread: Spread) -> bool:
    """Whether the value's bits are those of its register: not for what lives in wider ones."""
    names = [dtype_name(a.aval) for a in (*eqn.inputs, *eqn.outputs)]
    return eqn.inputs[0].aval.shape == eqn.outputs[0].aval.shape and not {"float16", "bfloat16", "bool"} & set(names)


def view_value(code: Code, x: Value, kernel: Kernel) -> list[Value]:
    """`x` as `kernel` takes it apart or turns it."""
    if x.constant is not None and x.constant.size != 1:
        return [code.constant_value(a, x.dtype) for a in _list_results(kernel(x.constant))]
    if x.even:
        shapes = [a.shape for a in _list_results(kernel(np.broadcast_to(np.int8(0), x.shape)))]
        return [replace(x, shape=shape) for shape in shapes]
    if x.lane is not None:
        numbers = _list_results(kernel(np.arange(x.size).reshape(x.shape)))
        if all(a.size <= costs.REGISTER_ELEMENTS for a in numbers):
            return [_pick_lanes(code, x, a) for a in numbers]
        x = code.in_memory(x)
    found = _in_place(x, kernel)
    if found is None:
        x = dense(code, x)
        found = _in_place(x, kernel)
    if found is None:
        raise Unwritable(f"{x.shape} with steps {x.steps} has no such view")
    out = [
        replace(x, shape=shape, steps=steps, place=code.advance_address(x.place, "1", offset))
        for shape, steps, offset in found
    ]
    return [code.settle_value(v) for v in out]


def _pick_lanes(code: Code, x: Value, numbers: np.ndarray[Any, Any]) -> Value:
    assert x.lane is not None
    return code.of_lane(
        code.shuffle_lanes(x.lane, x.width, numbers.ravel().tolist()), numbers.shape, x.dtype, numbers.size
    )


def _list_results(result: Any) -> list[np.ndarray[Any, Any]]:
    several: list[Any] = [*result] if isinstance(result, (tuple, list)) else [result]
    return several


def _in_place(x: Value, kernel: Kernel) -> list[tuple[Shape, Shape, int]] | None:
    """Shape, steps and first byte of each result in the memory of `x`; None if the kernel copies."""
    low = sum(min(0, s * (n - 1)) for n, s in zip(x.shape, x.steps, strict=True))
    high = sum(max(0, s * (n - 1)) for n, s in zip(x.shape, x.steps, strict=True)) + x.itemsize
    memory = np.empty(high - low, np.uint8)
    array = np.ndarray(x.shape, f"u{x.itemsize}" if x.itemsize <= 8 else "c16", memory, -low, x.steps)
    start, end = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    out = list[tuple[Shape, Shape, int]]()
    for a in _list_results(kernel(array)):
        if not start <= a.ctypes.data < end:
            return None
        out.append((a.shape, a.strides, a.ctypes.data - start + low))
    return out


def join_parts(
    code: Code, shape: Shape, dtype: str, parts: Sequence[Value], places: Sequence[Kernel], into: Value | None
) -> Value:
    """A value of that shape whose parts, as `places` cut them out, are `parts`; later ones lie over earlier ones."""
    if math.prod(shape) > costs.REGISTER_ELEMENTS:
        boxes = _boxes(shape, parts, places) if code.puts_off else None
        if boxes is not None:
            return Value(shape, dtype, boxes=boxes, owners=tuple([o for p in parts for o in p.owners]))
        into = code.buffer(shape, dtype) if into is None or into.shape != shape else into
        for part, cut in zip(parts, places, strict=True):
            (target,) = _in_place(into, cut) or [None]
            assert target is not None
            store(
                code,
                part,
                replace(into, shape=target[0], steps=target[1], place=code.advance_address(into.place, "1", target[2])),
            )
        return into
    if all(p.constant is not None for p in parts):
        array = np.empty(shape, np.asarray(parts[0].constant).dtype)
        for part, cut in zip(parts, places, strict=True):
            constant = np.asarray(part.constant)
            cut(array)[...] = constant if constant.size == 1 else np.reshape(constant, part.shape)
        return code.constant_value(array, dtype)
    n, out, held = math.prod(shape), "poison", [-1] * math.prod(shape)
    for part, cut in zip(parts, places, strict=True):
        numbers = cut(np.arange(n).reshape(shape))
        lane = code.lane_of(code.align_rank(code.settle_value(part), numbers.ndim), numbers.shape)
        at = numbers.ravel().tolist()
        if numbers.size == 1:
            kind = code.at(n).vector(lane.type)
            one = code.value(f"extractelement <1 x {lane.type}> {lane.ref}, i64 0")
            out = code.value(f"insertelement {kind} {out}, {lane.type} {one}, i64 {at[0]}")
        else:
            spread = [0] * n
            mask = list(range(n))
            for k, place in enumerate(at):
                spread[place], mask[place] = k, n + place
            wide = code.shuffle_lanes(lane, numbers.size, spread)
            kind = code.at(n).vector(lane.type)
            if held == [-1] * n:
                out = wide.ref
            else:
                out = code.value(
                    f"shufflevector {kind} {out}, {kind} {wide.ref}, <{n} x i32> <{', '.join(f'i32 {m}' for m in mask)}>"
                )
        for place in at:
            held[place] = 1
    return code.of_lane(Lane(out, dtype), shape, dtype, n)


def _boxes(shape: Shape, parts: Sequence[Value], places: Sequence[Kernel]) -> tuple[ValueBox, ...] | None:
    """The parts as boxes; None if there are many, if they are no boxes of whole rows, which vectors go along, or may change before they
    are read.
    """
    if len(parts) > costs.SMALL_PUT_OFF or any(p.updated for p in parts):
        return None
    memory, inner = np.empty(shape, np.uint8), max(d for d, n in enumerate(shape) if n > 1)
    found = list[ValueBox]()
    for part, cut in zip(parts, places, strict=True):
        taken = cut(memory)
        if taken.ndim != memory.ndim or taken.shape[inner] != shape[inner]:
            return None
        if any(n > 1 and s != t for n, s, t in zip(taken.shape, taken.strides, memory.strides, strict=True)):
            return None
        first, start = taken.ctypes.data - memory.ctypes.data, list[int]()
        for step in memory.strides:
            at, first = divmod(first, step)
            start.append(at)
        found.append(ValueBox(tuple(start), taken.shape, part))
    return tuple(found)


def store_boxes(code: Code, value: Value, into: Value) -> None:
    """Put a value together from its boxes, there."""
    for box in value.boxes:
        store(code, box.value, cut_out(code, into, box.start, box.shape))


def cut_out(code: Code, value: Value, start: Shape, shape: Shape) -> Value:
    """The box of a value, broadcast to the rank of `shape`, that begins at `start`."""
    value = code.align_rank(value, len(shape))
    if value.even:
        return value
    value = code.in_memory(value)
    sizes = tuple([1 if m == 1 else n for m, n in zip(value.shape, shape, strict=True)])
    first = sum([a * s for a, s, m in zip(start, value.steps, value.shape, strict=True) if m != 1])
    return replace(value, shape=sizes, place=code.advance_address(value.place, "1", first) if first else value.place)


def cells(values: Sequence[Value], shape: Shape) -> list[tuple[Shape, Shape]]:
    """The finest common boxes of several values of one shape, each put together from boxes: starts and shapes that cover the shape."""
    edges = [
        sorted({0, n} | {at for v in values for b in v.boxes for at in (b.start[d], b.start[d] + b.shape[d])})
        for d, n in enumerate(shape)
    ]
    rows = [list(pairwise(e)) for e in edges]
    return [(tuple([a for a, _ in c]), tuple([b - a for a, b in c])) for c in itertools.product(*rows)]


def in_cell(code: Code, value: Value, start: Shape, shape: Shape) -> Value:
    """A value in a cell."""
    for box in reversed(value.boxes):
        inside = [a - b for a, b in zip(start, box.start, strict=True)]
        if all(0 <= a < n for a, n in zip(inside, box.shape, strict=True)):
            return cut_out(code, box.value, tuple(inside), shape)
    return cut_out(code, value, start, shape)


def write_concatenate(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """Operands one after the other along a dim."""
    code = body.code
    axis: int = eqn.params["dimension"] + code.lead
    lead = np.broadcast_shapes(*[v.shape[: code.lead] for v in values])
    shape = list(lead + values[0].shape[code.lead :])
    shape[axis] = sum(v.shape[axis] for v in values)
    cuts, start = list[Kernel](), 0
    for v in values:
        cuts.append(itemgetter((slice(None),) * axis + (slice(start, start + v.shape[axis]),)))
        start += v.shape[axis]
    return [join_parts(code, tuple(shape), values[0].dtype, values, cuts, wanted[0])]


def write_pad(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """An operand with a value around it and between its elements; negative padding cuts off."""
    x, fill = values
    code, lead = body.code, body.code.lead
    cut, put, shape = (
        [slice(None)] * lead,
        [slice(None)] * lead,
        list(np.broadcast_shapes(x.shape[:lead], fill.shape[:lead])),
    )
    for n, (low, high, between) in zip(x.shape[lead:], eqn.params["padding_config"], strict=True):
        step = between + 1
        size = low + high + max(0, n * step - between)
        shape.append(size)
        kept = [i for i in range(n) if 0 <= low + i * step < size]
        cut.append(slice(kept[0], kept[-1] + 1) if kept else slice(0, 0))
        put.append(slice(low + kept[0] * step, low + kept[-1] * step + 1, step) if kept else slice(0, 0))
    fill = code.align_rank(fill, len(shape))
    cuts: list[Kernel] = [itemgetter(...)]
    parts = [fill]
    if all(c != slice(0, 0) for c in cut):
        parts += view_value(code, x, itemgetter(tuple(cut)))
        cuts.append(itemgetter(tuple(put)))
    return [join_parts(code, tuple(shape), x.dtype, parts, cuts, wanted[0])]
