"""`relayout`: move a value directly from one layout to another, in one exchange.

The partitioner uses it for a reshard that would need several collectives between processes, or would send whole blocks where a
part is enough; and for one that would send blocks to other devices before it cuts them, as where axes of 4 and of 2 change places.
Each process receives only the parts that it lacks, each part from one of the processes that hold it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import DimAxes, Ndarray
from shardwise.ir import Collective, ShapedArray
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.declare import define_collective
from shardwise.ops.devices.each import Operands
from shardwise.ops.devices.lines import Kernel, annotate_sends, as_slice, block_bytes, line_of, settle_extents, tag_of
from shardwise.runtime.blocks import expand_dim
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes import Message, Route, the_world
from shardwise.sharding.ownership import owned_positions
from shardwise.sharding.rule import Rule

Parts = tuple[tuple[int, ...], ...]  # per dim, the unit numbers, ascending


class Units:
    """The route between two layouts, in units: the parts of each dim between neighbouring cuts of either layout.

    `own` and `wanted` are this process's units before and after; `route` lists the units that processes send each other.
    """

    __slots__ = ("own", "ranks", "route", "units", "wanted")

    def __init__(self, env: Env, source: DimAxes, target: DimAxes) -> None:
        owners = env.processes
        assert owners is not None
        axes = layout_axes(source, target)
        line = line_of(env, axes)
        self.ranks = line.ranks
        self.units = tuple(math.lcm(_ways(a, env), _ways(b, env)) for a, b in zip(source, target, strict=True))
        have = [self._units(env, source, owners.owned[r]) for r in line.ranks]
        want = [self._units(env, target, owners.owned[r]) for r in line.ranks]
        self.own, self.wanted = have[line.me], want[line.me]
        holders = _processes_of(have)
        for a, b in itertools.combinations(holders, 2):
            if _common(a, b) is not None:
                raise ValueError(f"processes hold parts that overlap in layout {source}")
        self.route = Route(holders, _processes_of(want), _common, line.me)

    def _units(self, env: Env, dims: DimAxes, coordinates: tuple[tuple[int, ...], ...]) -> Parts:
        positions = tuple(tuple(env.dim(a) for a in axes) for axes in dims)
        unit_numbers = []
        for units, axes, parts in zip(
            self.units, dims, owned_positions(positions, env.axis_sizes, coordinates), strict=True
        ):
            ways = _ways(axes, env)
            each = units // ways
            numbers = range(ways) if parts is None else parts.tolist()
            unit_numbers.append(tuple(n * each + i for n in numbers for i in range(each)))
        return tuple(unit_numbers)


def _ways(axes: tuple[str, ...], env: Env) -> int:
    return math.prod(env.size(a) for a in axes)


def _common(a: Parts, b: Parts) -> Parts | None:
    common_axes = tuple(tuple(sorted(set(x) & set(y))) for x, y in zip(a, b, strict=True))
    return common_axes if all(common_axes) else None


def _processes_of(parts: Sequence[Parts]) -> dict[Parts, list[int]]:
    """The processes that hold each part."""
    processes: dict[Parts, list[int]] = {}
    for k, of_process in enumerate(parts):
        processes.setdefault(of_process, []).append(k)
    return processes


def layout_axes(source: DimAxes, target: DimAxes) -> tuple[str, ...]:
    """The axes used by either layout."""
    return tuple(dict.fromkeys(a for axes in (*source, *target) for a in axes))


@recent(1024)
def route(env: Env, source: DimAxes, target: DimAxes) -> Units | None:
    """The (cached) route between two layouts; None where processes hold parts that overlap but differ."""
    try:
        return Units(env, source, target)
    except ValueError:
        return None


def _index(parts: Parts, within: Parts, carried: int) -> tuple[Any, ...] | None:
    """An index of `parts` in an array that holds `within`, with dims (unit, inside unit) per dim; None if it is no view."""
    index: list[Any] = [slice(None)] * carried
    for numbers, all_numbers in zip(parts, within, strict=True):
        at = {n: i for i, n in enumerate(all_numbers)}
        where = as_slice([at[n] for n in numbers])
        if not isinstance(where, slice):
            return None
        index += [where, slice(None)]
    return tuple(index)


def _take_units(x: Ndarray, parts: Parts, within: Parts, carried: int) -> Ndarray:
    """Select the units `parts` of `x`: a view where they are evenly spaced."""
    index = _index(parts, within, carried)
    if index is not None:
        return x[index]
    for d, (numbers, all_numbers) in enumerate(zip(parts, within, strict=True)):
        at = {n: i for i, n in enumerate(all_numbers)}
        x = x.take([at[n] for n in numbers], carried + 2 * d)
    return x


def _put_units(out: Ndarray, value: Ndarray, parts: Parts, within: Parts, carried: int) -> None:
    """Write units that are not evenly spaced."""
    lists = [
        [{n: i for i, n in enumerate(all_numbers)}[n] for n in numbers]
        for numbers, all_numbers in zip(parts, within, strict=True)
    ]
    for at in itertools.product(*[range(len(numbers)) for numbers in lists]):
        index: list[Any] = [slice(None)] * carried
        of: list[Any] = [slice(None)] * carried
        for i, numbers in zip(at, lists, strict=True):
            index += [numbers[i], slice(None)]
            of += [i, slice(None)]
        out[tuple(index)] = value[tuple(of)]


def _type(
    x: ShapedArray, *, source: DimAxes, target: DimAxes, axes: tuple[str, ...], sizes: tuple[int, ...]
) -> ShapedArray:
    axis_sizes = dict(zip(axes, sizes, strict=True))
    ways = lambda names: math.prod(axis_sizes[a] for a in names)  # noqa: E731
    shape = [n * ways(a) // ways(b) for n, a, b in zip(x.shape, source, target, strict=True)]
    vma = (x.vma - {a for names in source for a in names}) | {a for names in target for a in names}
    return ShapedArray(shape, x.dtype, x.weak_type, vma=vma)


def _kernel(
    env: Env, x: Ndarray, *, source: DimAxes, target: DimAxes, axes: tuple[str, ...], sizes: tuple[int, ...]
) -> Ndarray:
    """In one process: the whole value, a view where strides allow, and its parts in the other layout."""
    lead, names = env.lead, env.axis_names
    held_axes = [a for split_axes in source for a in split_axes]
    for a in held_axes:
        x = expand_dim(x, env.dim(a), env.size(a))
    unused_dims = [env.dim(a) for a in axes if a not in held_axes]
    x = x[tuple(slice(0, 1) if d in unused_dims else slice(None) for d in range(x.ndim))]
    loop_dims = [d for d in range(lead) if d >= len(names) or names[d] not in axes]
    order, split = list(loop_dims), [x.shape[d] for d in loop_dims]
    whole = list(split)
    for d, (before, after) in enumerate(zip(source, target, strict=True)):
        order += [*(env.dim(a) for a in before), lead + d]
        n, parts = x.shape[lead + d] * _ways(before, env), [env.size(a) for a in after]
        whole.append(n)
        split += [*parts, n // math.prod(parts)]
    dense = x.transpose(order + unused_dims).reshape(whole)
    return _way_back(env, target, loop_dims)(dense.reshape(split))


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    source, target, axes = params["source"], params["target"], params["axes"]
    if not line_of(env, axes).crosses:
        return lambda x: _kernel(env, x, **params)
    way = route(env, source, target)
    assert way is not None, "the partitioner asks for routes before it uses them"
    known_way, aval, out_aval = way, in_types[0], out_types[0]
    source_axes = tuple(a for names in source for a in names)
    extents = {a: env.extent(a) for a in axes}
    lead, names = env.lead, env.axis_names
    loop_dims = [d for d in range(lead) if d >= len(names) or names[d] not in axes]
    unused_dims = [env.dim(a) for a in axes if a not in source_axes]
    order = list(loop_dims)
    inner = [n * _ways(s, env) // u for n, s, u in zip(aval.shape, source, way.units, strict=True)]  # elements per unit
    for d, split_axes in enumerate(source):
        order += [*(env.dim(a) for a in split_axes), lead + d]
    back = _way_back(env, target, loop_dims)
    out_split = [
        n for d, split_axes in enumerate(target) for n in (*(extents[a] for a in split_axes), out_aval.shape[d])
    ]
    settle, tag = settle_extents(env, aval, source_axes), tag_of("relayout", env, in_types, params)
    c = len(loop_dims)
    per_dim = lambda parts: [n for d, numbers in enumerate(parts) for n in (len(numbers), inner[d])]  # noqa: E731
    moves = way.route
    counts = sorted({tuple(map(len, parts)) for parts in moves.shared})

    def run(x: Ndarray) -> Ndarray:
        x = settle(x)
        for a in source_axes:
            x = expand_dim(x, env.dim(a), extents[a])
        if unused_dims:
            x = x[tuple(slice(0, 1) if d in unused_dims else slice(None) for d in range(x.ndim))]
        loops = tuple(x.shape[d] for d in loop_dims)
        dense = x.transpose(order + unused_dims).reshape(loops + tuple(per_dim(known_way.own)))
        out = pool.empty(loops + tuple(per_dim(known_way.wanted)), x.dtype)
        later = []

        def into(message: Message) -> Ndarray:
            index = _index(message.shared, known_way.wanted, c)
            if index is not None:
                return out[index]
            room = pool.empty(loops + tuple(per_dim(message.shared)), x.dtype)
            later.append((room, message.shared))
            return room

        shapes = [loops + tuple(n for d, count in enumerate(of) for n in (count, inner[d])) for of in counts]
        part = lambda message: _take_units(dense, message.shared, known_way.own, c)  # noqa: E731
        moves.exchange(the_world().link(known_way.ranks), part, into, shapes, x.itemsize, tag)
        for message in moves.kept:
            index = _index(message.shared, known_way.wanted, c)
            if index is not None:
                out[index] = part(message)
            else:
                later.append((part(message), message.shared))
        for value, parts in later:
            _put_units(out, value, parts, known_way.wanted, c)
        return back(out.reshape(loops + tuple(out_split)))

    unit = block_bytes(env, aval, axes) // max(aval.size, 1) * math.prod(inner)
    return annotate_sends(run, unit * sum(math.prod(map(len, m.shared)) for m in moves.sends), way.ranks)


def _way_back(env: Env, target: DimAxes, carried: Sequence[int]) -> Any:
    """A function from dims (carried, then per dim its axes and the rest) to block form: leading dims, then the value's dims."""
    place: dict[int, int] = {d: i for i, d in enumerate(carried)}
    at, own = len(carried), []
    for split_axes in target:
        for a in split_axes:
            place[env.dim(a)] = at
            at += 1
        own.append(at)
        at += 1
    order = [place[d] for d in range(env.lead) if d in place] + own
    missing_dims = tuple(d for d in range(env.lead) if d not in place)

    def back(x: Ndarray) -> Ndarray:
        return np.expand_dims(x.transpose(order), missing_dims)

    return back


def device_bytes(
    source: DimAxes, target: DimAxes, shape: Sequence[int], itemsize: int, sizes: Mapping[str, int]
) -> int:
    """The most bytes that a device receives in a relayout from `source` to `target`."""
    axes = layout_axes(source, target)
    coordinates = dict(zip(axes, np.indices([sizes[a] for a in axes]).reshape(len(axes), -1), strict=True))
    shared_elements: Any = 1
    needed_elements = 1
    for n, have, want in zip(shape, source, target, strict=True):
        (start, own), (first, part) = _interval(n, have, sizes, coordinates), _interval(n, want, sizes, coordinates)
        shared_elements = shared_elements * np.maximum(
            0, np.minimum(start + own, first + part) - np.maximum(start, first)
        )
        needed_elements *= part
    return int(np.max(needed_elements - shared_elements)) * itemsize


def _interval(n: int, axes: Sequence[str], sizes: Mapping[str, int], coordinates: Mapping[str, Any]) -> tuple[Any, int]:
    """The first position and the size of each device's part of a dim of size n."""
    ways, number = 1, 0
    for a in axes:
        number = number * sizes[a] + coordinates[a]
        ways *= sizes[a]
    return number * (n // ways), n // ways


def _nothing_splits(in_types: Types, out_types: Types, params: Params) -> Rule:
    return Rule((((),) * in_types[0].ndim,), (((),) * out_types[0].ndim,), (), ())


def _bytes_sent(in_types: Types, params: Params, sizes: Mapping[str, int]) -> int:
    (x,), source, target = in_types, params["source"], params["target"]
    axis_sizes = dict(zip(params["axes"], params["sizes"], strict=True))
    shape = [n * math.prod(axis_sizes[a] for a in axes) for n, axes in zip(x.shape, source, strict=True)]
    return device_bytes(source, target, shape, x.itemsize, axis_sizes)


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    """Each device's block goes to its place in the whole value, from which the blocks of the other layout are cut."""
    axis_sizes = dict(zip(params["axes"], params["sizes"], strict=True))
    devices = len(operands)
    coordinates = dict(zip(axis_sizes, np.indices(params["sizes"]).reshape(len(axis_sizes), -1), strict=True))
    blocks = [values[0] for values in operands]
    shape = [
        n * math.prod(axis_sizes[a] for a in axes) for n, axes in zip(blocks[0].shape, params["source"], strict=True)
    ]

    def places(layout: DimAxes) -> list[tuple[slice, ...]]:
        intervals = [_interval(n, axes, axis_sizes, coordinates) for n, axes in zip(shape, layout, strict=True)]
        firsts = [(np.broadcast_to(first, devices), part) for first, part in intervals]
        return [tuple(slice(int(f[i]), int(f[i]) + part) for f, part in firsts) for i in range(devices)]

    whole = np.empty(shape, blocks[0].dtype)
    for place, block in zip(places(params["source"]), blocks, strict=True):
        whole[place] = block
    return [whole[place] for place in places(params["target"])]


relayout_op = define_collective(
    "relayout",
    type_rule=_type,
    kernel=_kernel,
    rule=_nothing_splits,
    across=_across,
    collective=Collective("relayout", sent_of=_bytes_sent, moves=True, exchange=_exchange),
)
