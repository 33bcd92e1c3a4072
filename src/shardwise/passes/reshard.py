"""Planning communication: the cheapest sequence of collectives between two layouts of one value.

Comes in: two layouts (per dim the mesh axes that split it, major first) of one value on one mesh.
Goes out: `ReshardStep`s, each an explicit collective on the local block, with the layout after it and the bytes it sends.

Four moves suffice. A *slice* splits a dim further by axes that the value does not use yet; it is local and free.
An *all-gather* undoes the minor-most axes of a dim. An *all-to-all* takes the minor-most axes off one dim and puts
them, as minor-most, on another. A *permute* sends whole blocks between devices and keeps every local shape: it reorders
or renames axes. Only minor-most axes can be gathered or moved, because only those are contiguous on the device, so
removing an axis from a major position costs a permute first. The planner takes the sequence that sends the fewest
bytes; among equals, the one with the fewest collectives.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes, DimAxes, with_entry
from shardwise.ir import Op
from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.ops.devices.all_slice import all_slice
from shardwise.ops.devices.all_to_all import all_to_all_op
from shardwise.ops.devices.ppermute import ppermute_op
from shardwise.runtime import costs
from shardwise.sharding import Crowding

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ReshardStep:
    """One collective over the joint mesh axes `axes` (first name major).

    all_slice    splits `dim` by `axes`, which become its minor-most axes.
    all_gather   joins the blocks of `dim` over its minor-most axes, `axes`.
    all_to_all   joins `dim` over its minor-most axes, `axes`, and splits `target_dim` by them, as minor-most axes.
    ppermute     sends whole blocks: `perm` holds (source, target) positions along `axes`. Along axes that `result` no
                 longer uses, all devices hold equal blocks afterwards.

    `result` is the layout afterwards; `bytes_sent` counts the bytes that a device sends to others.
    """

    op: Op
    axes: Axes
    dim: int
    result: DimAxes
    bytes_sent: int = 0
    target_dim: int | None = None
    perm: Pairs = ()


def bytes_sent(op: Op, local_bytes: int, n: int) -> int:
    """Bytes that one device sends in a step over a group of n devices, each of which holds `local_bytes` before it."""
    assert op.collective is not None
    return op.collective.block_bytes_sent(local_bytes, n)


def ways(axes: Axes, mesh_axes: Mapping[str, int]) -> int:
    """The number of parts into which `axes` split a dim."""
    n = 1
    for a in axes:
        n *= mesh_axes[a]
    return n


def local_shape(shape: tuple[int, ...], dims: DimAxes, mesh_axes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of one device's block. Raises ValueError if the axes of a dim do not divide its size."""
    out = []
    for d, (size, axes) in enumerate(zip(shape, dims, strict=True)):
        if axes:
            n = ways(axes, mesh_axes)
            if size % n:
                raise ValueError(f"dim {d} of shape {shape} is split {n} ways over {axes}; {n} does not divide {size}")
            size //= n
        out.append(size)
    return tuple(out)


def plan_reshard(
    source: DimAxes, target: DimAxes, shape: tuple[int, ...], itemsize: int, mesh_axes: Mapping[str, int]
) -> tuple[ReshardStep, ...]:
    """The steps that turn layout `source` of a value of this shape into layout `target`; () if they are equal.

    Both layouts must divide the shape; so does the layout after every step.
    """
    if source == target:
        return ()
    used = sorted({a for axes in (*source, *target) for a in axes})
    devices = math.prod(mesh_axes[a] for a in used)
    # A plan depends on the sizes only through their divisibility by the axes, so values of many shapes share one plan.
    divisible = tuple(math.gcd(size, devices) for size in shape)
    steps = _plan(source, target, divisible, tuple((a, mesh_axes[a]) for a in used))
    local = math.prod(local_shape(shape, source, mesh_axes)) * itemsize
    steps_with_bytes = []
    for step in steps:
        n = ways(step.axes, mesh_axes)
        sent_bytes = bytes_sent(step.op, local, n)
        steps_with_bytes.append(
            ReshardStep(step.op, step.axes, step.dim, step.result, sent_bytes, step.target_dim, step.perm)
        )
        local = math.prod(local_shape(shape, step.result, mesh_axes)) * itemsize
    return tuple(steps_with_bytes)


def resharding_bytes(
    source: DimAxes, target: DimAxes, shape: tuple[int, ...], itemsize: int, mesh_axes: Mapping[str, int]
) -> int:
    """The bytes that a device sends in these steps."""
    return sum(step.bytes_sent for step in plan_reshard(source, target, shape, itemsize, mesh_axes))


def resharding_cost(
    source: DimAxes,
    target: DimAxes,
    shape: tuple[int, ...],
    itemsize: int,
    mesh_axes: Mapping[str, int],
    crowding: Crowding | None,
) -> float:
    """`resharding_bytes`, those of an all-to-all as many times as they take longer than others."""
    return sum(
        step.bytes_sent * (crowding(step.axes) if crowding is not None and step.op is all_to_all_op else 1)
        for step in plan_reshard(source, target, shape, itemsize, mesh_axes)
    )


def sends_blocks_twice(steps: Sequence[ReshardStep]) -> bool:
    """Whether whole blocks go to other devices, and parts of them again to others."""
    senders = [s.op for s in steps if s.bytes_sent]
    return len(senders) > 1 and ppermute_op in senders


def takes_detours(steps: Sequence[ReshardStep], crossing: frozenset[str]) -> bool:
    """Whether these steps may send a process data that it does not need in the end. Processes talk along `crossing` axes."""
    first = next((i for i, s in enumerate(steps) if s.op is not all_slice and crossing.intersection(s.axes)), None)
    if first is None:
        return False
    rest = steps[first + 1 :]
    return steps[first].op is ppermute_op or any(s.op is all_slice or crossing.intersection(s.axes) for s in rest)


# -- choosing the sequence -------------------------------------------------------------------------

Move = tuple[Op, Axes, int, int | None, DimAxes]  # op, axes, dim, target dim, layout afterwards


@recent(4096)
def _plan(
    source: DimAxes, target: DimAxes, shape: tuple[int, ...], mesh: tuple[tuple[str, int], ...]
) -> tuple[ReshardStep, ...]:
    sizes = dict(mesh)
    moves = _only_slices(source, target) or _only_gathers(source, target) or _search(source, target, shape, sizes)
    steps: list[ReshardStep] = []
    layout = source
    for op, axes, dim, target_dim, result in _merge_slices(moves):
        perm: Pairs = ()
        if op is ppermute_op:
            axes, perm = _permutation(layout, result, sizes)
        steps.append(ReshardStep(op, axes, dim, result, 0, target_dim, perm))
        layout = result
    return tuple(steps)


def _only_slices(source: DimAxes, target: DimAxes) -> list[Move]:
    """The moves if `target` is `source` split further by unused axes; else []."""
    used = {a for axes in source for a in axes}
    moves: list[Move] = []
    layout = source
    for d, (have, want) in enumerate(zip(source, target, strict=True)):
        new = want[len(have) :]
        if want[: len(have)] != have or used.intersection(new):
            return []
        if new:
            layout = with_entry(layout, d, want)
            moves.append((all_slice, new, d, None, layout))
    return moves


def _only_gathers(source: DimAxes, target: DimAxes) -> list[Move]:
    """The moves, last dim first, if `target` is `source` without some minor axes; else []."""
    moves: list[Move] = []
    layout = source
    for d in reversed(range(len(source))):
        have, want = source[d], target[d]
        if have[: len(want)] != want:
            return []
        if have != want:
            layout = with_entry(layout, d, want)
            moves.append((all_gather_op, have[len(want) :], d, None, layout))
    return moves


def _gather_then_slice(source: DimAxes, target: DimAxes) -> list[Move]:
    """Gather each dim down to the common prefix, then slice: always correct, never cheap."""
    common = tuple(a[: _common(a, b)] for a, b in zip(source, target, strict=True))
    return _only_gathers(source, common) + _only_slices(common, target)


def _common(a: Axes, b: Axes) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def _search(source: DimAxes, target: DimAxes, shape: tuple[int, ...], sizes: Mapping[str, int]) -> list[Move]:
    """Dijkstra over layouts: fewest bytes, then fewest collectives, then fewest moves."""
    unit = math.prod(sizes.values()) ** 2  # the whole value; so that every cost is a whole number
    best: dict[DimAxes, tuple[int, int, int]] = {source: (0, 0, 0)}
    came: dict[DimAxes, tuple[DimAxes, Move]] = {}
    tie = itertools.count()
    queue: list[tuple[tuple[int, int, int], int, DimAxes]] = [((0, 0, 0), next(tie), source)]
    visited_layouts: set[DimAxes] = set()
    while queue and len(visited_layouts) < costs.RESHARD_LAYOUTS:
        cost, _, layout = heapq.heappop(queue)
        if layout == target:
            moves: list[Move] = []
            while layout != source:
                layout, move = came[layout]
                moves.append(move)
            return moves[::-1]
        if layout in visited_layouts:
            continue
        visited_layouts.add(layout)
        local = unit // math.prod(sizes[a] for axes in layout for a in axes)
        for move in _moves(layout, target, shape, sizes):
            op, axes, _, _, result = move
            sent_bytes = bytes_sent(op, local, ways(axes, sizes))
            total = (cost[0] + sent_bytes, cost[1] + (op is not all_slice), cost[2] + 1)
            if result not in best or total < best[result]:
                best[result] = total
                came[result] = (layout, move)
                heapq.heappush(queue, (total, next(tie), result))
    return _gather_then_slice(source, target)


def _moves(layout: DimAxes, target: DimAxes, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Iterator[Move]:
    """Every move from `layout` that can bring it closer to `target`."""
    home = {a: d for d, axes in enumerate(target) for a in axes}
    used = {a for axes in layout for a in axes}
    for a, d in home.items():
        if a not in used and shape[d] % (ways(layout[d], sizes) * sizes[a]) == 0:
            yield all_slice, (a,), d, None, with_entry(layout, d, (*layout[d], a))
    for d in reversed(range(len(layout))):
        axes = layout[d]
        for k in range(_common(axes, target[d]), len(axes)):
            moved_axes = axes[k:]
            rest = with_entry(layout, d, axes[:k])
            yield all_gather_op, moved_axes, d, None, rest
            e = home.get(moved_axes[0], d)
            if e == d or any(home.get(a) != e for a in moved_axes):
                continue
            if shape[e] % ways((*layout[e], *moved_axes), sizes) == 0:
                yield all_to_all_op, moved_axes, d, e, with_entry(rest, e, (*layout[e], *moved_axes))
    for result in _rearranged_layouts(layout, target, home, used, sizes):
        if result != layout:
            changed_axes = tuple(a for have, want in zip(layout, result, strict=True) if have != want for a in have)
            yield ppermute_op, changed_axes, -1, None, result


def _rearranged_layouts(
    layout: DimAxes, target: DimAxes, home: Mapping[str, int], used: set[str], sizes: Mapping[str, int]
) -> Iterator[DimAxes]:
    """Layouts of the same local shape that one permute can produce."""
    parts = [ways(axes, sizes) for axes in layout]
    if parts == [ways(axes, sizes) for axes in target]:
        yield target
    new_layouts = [layout]
    places = [(d, i, a) for d, axes in enumerate(layout) for i, a in enumerate(axes) if home.get(a) != d]
    for d, i, a in places:
        for z, e in home.items():
            if e == d and z not in used and sizes[z] == sizes[a]:
                new_layouts.append(with_entry(layout, d, (*layout[d][:i], z, *layout[d][i + 1 :])))
    for (d, i, a), (e, j, b) in itertools.combinations(places, 2):
        if d != e and sizes[a] == sizes[b] and (home.get(a) == e or home.get(b) == d):
            swapped_layout = with_entry(layout, d, (*layout[d][:i], b, *layout[d][i + 1 :]))
            new_layouts.append(with_entry(swapped_layout, e, (*layout[e][:j], a, *layout[e][j + 1 :])))
    for dims in new_layouts:
        yield from itertools.product(*[_orders(axes, want) for axes, want in zip(dims, target, strict=True)])


def _orders(axes: Axes, want: Axes) -> list[Axes]:
    """The orders worth trying for the axes of one dim whose target is `want`."""
    keep = _common(axes, want)
    if len(axes) - keep <= 1:
        return [axes]
    if len(axes) - keep <= costs.RESHARD_ORDERED_AXES:
        return [axes[:keep] + rest for rest in itertools.permutations(axes[keep:])]
    at_home = tuple(a for a in want if a in axes)
    return [axes, at_home + tuple(a for a in axes if a not in at_home)]


def _merge_slices(moves: list[Move]) -> list[Move]:
    """`moves` with adjacent slices of one dim merged."""
    out: list[Move] = []
    for move in moves:
        if out and move[0] is all_slice is out[-1][0] and move[2] == out[-1][2]:
            out[-1] = (all_slice, (*out[-1][1], *move[1]), move[2], None, move[4])
        else:
            out.append(move)
    return out


# -- permutations ----------------------------------------------------------------------------------


def _permutation(source: DimAxes, target: DimAxes, sizes: Mapping[str, int]) -> tuple[Axes, Pairs]:
    """The axes of the permute between two layouts of equal local shape, and its (source, target) pairs.

    Devices that hold the same block are interchangeable; a device that already has its block keeps it.
    """
    suffixes = [(a[_common(a, b) :], b[_common(a, b) :]) for a, b in zip(source, target, strict=True)]
    axes = tuple(dict.fromkeys([a for have, _ in suffixes for a in have] + [a for _, want in suffixes for a in want]))
    strides = dict(zip(axes, _strides([sizes[a] for a in axes]), strict=True))
    total = ways(axes, sizes)

    def blocks(layout: list[Axes]) -> list[int]:
        """For every position along `axes`, the number of the block that it holds."""
        out = [0] * total
        for part in layout:
            for a in part:
                n, stride = sizes[a], strides[a]
                for p in range(total):
                    out[p] = out[p] * n + p // stride % n
        return out

    holds = blocks([have for have, _ in suffixes])
    needs = blocks([want for _, want in suffixes])
    pairs = [(p, p) for p in range(total) if holds[p] == needs[p]]
    senders: dict[int, list[int]] = {}
    for p in reversed(range(total)):
        if holds[p] != needs[p]:
            senders.setdefault(holds[p], []).append(p)
    pairs += [(senders[needs[p]].pop(), p) for p in range(total) if holds[p] != needs[p]]
    return axes, tuple(sorted(pairs))


def _strides(extents: list[int]) -> list[int]:
    out: list[int] = []
    stride = 1
    for n in reversed(extents):
        out.append(stride)
        stride *= n
    return out[::-1]
