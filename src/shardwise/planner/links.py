"""Seconds that a collective takes over the links of its axes.

In: the pattern of a collective, the bytes of a device's operand, and the segments of its axes (see `axes`). Out: a `CollectiveTime`.

Models, all from public documents:
- a torus: bytes go around rings in both directions, over all dims of the group at once; a dim whose ends are not joined has half of
  that (JAX scaling book, part 3; Jain et al., optimal bucket algorithms for large MPI collectives on torus interconnects);
- all-to-all on a torus: each dim carries what crosses it, a quarter of the ring on average (scaling book, part 3);
- a switch: the port of a device is what is busy; small messages go along trees, large ones around rings (NCCL's tuning model);
- several levels: within the inner level and over the outer one after the other, so that each byte crosses the slow one once (NCCL's
  hierarchical rings; XLA's collectives over DCN).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.passes import Transfer
from shardwise.planner.axes import MeshPlacement, Segment, place_axes
from shardwise.planner.machine import Level, Machine

GATHER, SCATTER, REDUCE, TRANSPOSE, SHIFT = "gather", "scatter", "reduce", "transpose", "shift"


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """How long a collective takes.

    Attributes:
        seconds: in all.
        latency: the part of them that does not depend on the bytes.
        by_level: seconds on each level of the network, by name.
    """

    seconds: float
    latency: float
    by_level: dict[str, float]

    @property
    def level(self) -> str:
        """The level on which most of the time goes; '' if nothing is sent."""
        return max(self.by_level, key=lambda name: self.by_level[name], default="")


def cross_axes(pattern: str, nbytes: float, axes: Sequence[str], placement: MeshPlacement) -> CollectiveTime:
    """The time of a collective over these axes, for operands of `nbytes` on each device.

    Patterns: 'gather' (all-gather), 'scatter' (reduce-scatter), 'reduce' (all-reduce), 'transpose' (all-to-all), 'shift' (to a neighbour).

    Raises:
        ValueError: there is no such pattern.
    """
    key = pattern, nbytes, tuple(axes)
    took = placement.crossings.get(key)
    if took is None:
        took = placement.crossings[key] = _cross_axes(pattern, nbytes, axes, placement)
    return took


def _cross_axes(pattern: str, nbytes: float, axes: Sequence[str], placement: MeshPlacement) -> CollectiveTime:
    if pattern == REDUCE:
        one = cross_axes(SCATTER, nbytes, axes, placement)
        count = math.prod(s.size for s in placement.of(axes))
        other = cross_axes(GATHER, nbytes / count, axes, placement)
        levels = {name: one.by_level[name] + other.by_level[name] for name in one.by_level}
        return CollectiveTime(one.seconds + other.seconds, one.latency + other.latency, levels)
    if pattern not in (GATHER, SCATTER, TRANSPOSE, SHIFT):
        raise ValueError(f"No collective has the pattern {pattern!r}.")
    levels = placement.machine.levels
    by_level: dict[str, float] = {}
    latency = 0.0
    groups = [(levels[index], tuple(parts)) for index, parts in groupby(placement.of(axes), key=lambda s: s.level)]
    # What a device holds grows from level to level of a gather, which crosses the outermost first; a scatter goes the other way.
    held_bytes = float(nbytes)
    for level, parts in reversed(groups) if pattern == GATHER else groups:
        count = math.prod(p.size for p in parts)
        if pattern == SCATTER:
            held_bytes /= count
        volume, hops = _share(pattern, held_bytes, level, parts)
        by_level[level.name] = by_level.get(level.name, 0.0) + volume + hops
        latency += hops
        if pattern == GATHER:
            held_bytes *= count
        elif pattern == SHIFT:
            break  # neighbours are next to each other on the innermost level, and that one is busy as long as any
    return CollectiveTime(sum(by_level.values()), latency, by_level)


def crossing_of(transfer: Transfer, placement: MeshPlacement) -> CollectiveTime:
    """The time of one run of a collective of a device program."""
    collective = transfer.op.collective
    assert collective is not None
    unit = 2**40
    sent_bytes = collective.block_bytes_sent(unit, transfer.devices)
    # A device's operand, of which it sends a part; or what a shift sends.
    held_bytes = transfer.bytes if collective.pattern == SHIFT or not sent_bytes else transfer.bytes * unit / sent_bytes
    return cross_axes(collective.pattern, held_bytes, transfer.axes, placement)


def crowding_of(machine: Machine, sizes: Mapping[str, int]) -> Callable[[Sequence[str]], float] | None:
    """For a mesh of such axes, by the axes of an all-to-all: how much longer a byte of it takes than one of a gather over the same axes.

    On a torus bytes of an all-to-all go through the devices between sender and receiver, behind a switch they take the way of others.
    None where such a mesh does not fit the machine.
    """
    try:
        placement = place_axes(sizes, machine)
    except ValueError:
        return None

    @cache
    def crowding(axes: Sequence[str]) -> float:
        count = math.prod(sizes[a] for a in axes)
        if count == 1:
            return 1.0
        crossings = [cross_axes(pattern, 1.0, axes, placement) for pattern in (TRANSPOSE, GATHER)]
        transposed_seconds, gathered_seconds = [c.seconds - c.latency for c in crossings]
        # Of one byte held, a gather sends as many more as there are devices in the group.
        return transposed_seconds * count / gathered_seconds

    return crowding


def _share(pattern: str, held: float, level: Level, parts: tuple[Segment, ...]) -> tuple[float, float]:
    """Seconds for the bytes, and for latency, on one level. `held`: a device's bytes on the side where it has fewer."""
    count = math.prod(p.size for p in parts)
    if pattern == SHIFT:
        return held * (1 if level.switched else parts[0].stride) / level.bandwidth, level.latency
    if level.switched:
        sent_bytes = held * (count - 1) / (count if pattern == TRANSPOSE else 1)
        steps = count - 1 if pattern == TRANSPOSE else min(count - 1, 2 * math.ceil(math.log2(count)))
        return sent_bytes / level.bandwidth, level.latency * (1 if pattern == TRANSPOSE else steps)
    hops = sum((p.size // 2 if p.wrap else p.size - 1) * p.stride for p in parts)
    if pattern == TRANSPOSE:
        # Of a ring a quarter of its length is crossed on average, by 2 directions; the middle link of a line carries a quarter of all.
        volume = max(held * p.size * p.stride / (8 if p.wrap else 4) for p in parts) / level.bandwidth
        return volume, level.latency * hops
    width = sum((2.0 if p.wrap else 1.0) / p.stride for p in parts)
    return held * (count - 1) / (level.bandwidth * width), level.latency * hops
