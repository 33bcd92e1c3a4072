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
from shardwise.planner.axes import MeshPlacement, place_axes
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
    if program.together or machine.devices == 1:
        return
    own = tuple(program.sizes)
    costs = {
        order: _link_seconds(transfers, program, order, machine)
        for order in {own: None, **dict.fromkeys(_orders(program))}
    }
    best = min(costs, key=lambda order: costs[order])
    if (
        best == own or costs[own] - costs[best] < least * schedule.seconds
    ):  # of equal ones the program's own is the best
        return
    new = schedule_groups(groups, machine, _placement(program, best, machine))
    saved = schedule.seconds - new.seconds
    if saved < least * schedule.seconds:
        return
    shape = ", ".join(str(program.sizes[a]) for a in best)
    yield Advice(
        f"Make the mesh with its axes in another order, so that those that send most go over faster links: "
        f"make_mesh(({shape}), ({', '.join(map(repr, best))}))",
        f"a step takes {seconds_text(new.seconds)} instead of {seconds_text(schedule.seconds)}",
        seconds=saved,
    )


def _orders(program: DeviceProgram) -> Iterator[tuple[str, ...]]:
    """Other orders of the axes along which there are several devices; the others keep their places."""
    names = list(program.sizes)
    places = [i for i, a in enumerate(names) if program.sizes[a] > 1]
    moved = [names[i] for i in places]
    chosen = list(permutations(moved)) if len(moved) <= MOST_PERMUTED else list[tuple[str, ...]]()
    for i, j in combinations(range(len(moved)), 2) if not chosen else ():
        pair = list(moved)
        pair[i], pair[j] = pair[j], pair[i]
        chosen.append(tuple(pair))
    for order in chosen:
        new = list(names)
        for i, a in zip(places, order, strict=True):
            new[i] = a
        yield tuple(new)


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
