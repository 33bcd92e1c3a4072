"""Advice on the order of a mesh's axes, which decides over which links each axis goes.

The first axes of a mesh go over slices and nodes, the last ones over the links of a slice or node (see `axes`). Where an axis that sends
much comes first, its bytes take the slow way though another axis could.

In: a device program, its groups and schedule, and its transfers. Out: an `Advice` whose effect is planned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

from shardwise.passes import Transfer
from shardwise.planner.axes import MeshPlacement, parts_of_axes, place_axes
from shardwise.planner.clock import schedule as schedule_groups
from shardwise.planner.links import crossing_of
from shardwise.planner.machine import Machine
from shardwise.planner.result import Advice, Schedule
from shardwise.planner.texts import seconds_text
from shardwise.planner.work import DeviceProgram, Group

MOST_PERMUTED = 4  # axes; of more, pairs are exchanged


def other_order(
    program: DeviceProgram,
    groups: Sequence[Group],
    machine: Machine,
    schedule: Schedule,
    transfers: Sequence[Transfer],
    least: float,
) -> Iterator[Advice]:
    """Advice to order the axes of the mesh otherwise, if that shortens a step by the share `least`."""
    if (
        program.together or machine.devices == 1 or any(name.startswith("_") for name in program.sizes)
    ):  # parts of several meshes
        return
    parts = parts_of_axes(program.sizes)
    own = tuple(program.sizes)
    costs = {
        order: _link_seconds(transfers, program, order, machine)
        for order in {own: None, **dict.fromkeys(_orders(program))}
    }
    best = min(costs, key=lambda order: costs[order])
    # Of equal ones the program's own is the best.
    if best == own or costs[own] - costs[best] < least * schedule.seconds:
        return
    new = schedule_groups(groups, machine, _placement(program, best, machine))
    saved_seconds = schedule.seconds - new.seconds
    if saved_seconds < least * schedule.seconds:
        return
    axes = list(dict.fromkeys(next(axis for axis, own in parts.items() if a in own) for a in best))
    shape = ", ".join(str(math.prod(program.sizes[a] for a in parts[axis])) for axis in axes)
    yield Advice(
        f"Make the mesh with its axes in another order, so that those that send most go over faster links: "
        f"make_mesh(({shape}), ({', '.join(map(repr, axes))}))",
        f"a step takes {seconds_text(new.seconds)} instead of {seconds_text(schedule.seconds)}",
        seconds=saved_seconds,
    )


def _orders(program: DeviceProgram) -> Iterator[tuple[str, ...]]:
    """Other orders of the axes along which there are several devices; the others keep their places, and parts of an axis stay together."""
    parts = parts_of_axes(program.sizes)
    names = list(parts)
    places = [i for i, axis in enumerate(names) if any(program.sizes[a] > 1 for a in parts[axis])]
    moved_names = [names[i] for i in places]
    chosen = list(permutations(moved_names)) if len(moved_names) <= MOST_PERMUTED else list[tuple[str, ...]]()
    for i, j in combinations(range(len(moved_names)), 2) if not chosen else ():
        pair = list(moved_names)
        pair[i], pair[j] = pair[j], pair[i]
        chosen.append(tuple(pair))
    for order in chosen:
        new = list(names)
        for i, axis in zip(places, order, strict=True):
            new[i] = axis
        yield tuple([a for axis in new for a in parts[axis]])


def _placement(program: DeviceProgram, order: Sequence[str], machine: Machine) -> MeshPlacement:
    return place_axes({a: program.sizes[a] for a in order}, machine)


def _link_seconds(
    transfers: Sequence[Transfer], program: DeviceProgram, order: Sequence[str], machine: Machine
) -> float:
    """The seconds of all collectives, one after the other; infinite where the machine has no such mesh."""
    try:
        placement = _placement(program, order, machine)
    except ValueError:
        return math.inf
    return math.fsum(crossing_of(t, placement).seconds * t.known_trips for t in transfers)
