"""Order: groups in the order that needs least memory.

A compiler that plans memory tries several orders and takes the best. Here: the program's own; one that delays each group that needs more
memory than it frees until its result is read; and one that always runs the ready group that frees most. All keep the dependences.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from shardwise.ir import Atom
from shardwise.planner.roles import Role, role_of
from shardwise.planner.work import Group

Needs = Callable[[Sequence[Group]], int]


def order_groups(groups: Sequence[Group], needs: Needs) -> tuple[Group, ...]:
    """The groups in the best order found; `needs` gives the bytes that an order needs."""
    best = tuple(groups)
    if len(best) < 3:
        return best
    least = needs(best)
    late = postpone_growth(best)
    for order in (late, order_by_freed_bytes(late)):
        if order == best:
            continue
        need = needs(order)
        if need < least:
            best, least = order, need
    return best


def postpone_growth(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Delay groups that write more bytes than they free until right before their first reader."""
    position = list(range(len(groups)))
    first: dict[Atom, int] = {}
    last: dict[Atom, int] = {}
    made_values: set[Atom] = {v for group in groups for v in group.writes}
    for g, group in enumerate(groups):
        for var in group.reads:
            if var in made_values:
                first.setdefault(var, g)
                last[var] = g
    key: list[tuple[float, int]] = [(float(g), 0) for g in position]
    for g in range(len(groups) - 1, -1, -1):
        group = groups[g]
        readers = [first[v] for v in group.writes if v in first]
        if len(readers) != len(group.writes) or not readers or group.kind == "loop":
            continue
        written_bytes = 0 if _offloads(group) else sum([v.aval.nbytes for v in group.writes])
        freed = sum([v.aval.nbytes for v in group.reads if last.get(v) == g])
        if written_bytes > freed:
            at = min([key[r] for r in readers])
            key[g] = (at[0], at[1] - 1)
    return tuple([groups[g] for g in sorted(position, key=key.__getitem__)])  # groups with one key keep their order


def _offloads(group: Group) -> bool:
    """Whether a group writes to the host's memory alone."""
    return group.kind == "move" and role_of(group.equations[-1]) is Role.OFFLOAD


def breadth_first(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups in breadth-first order: as soon as their operands are computed."""
    waits, readers = dependences(groups)
    queue = deque(g for g, count in enumerate(waits) if count == 0)
    order: list[Group] = []
    while queue:
        g = queue.popleft()
        order.append(groups[g])
        for r in sorted({r for v in groups[g].writes for r in readers.get(v, ())}):
            waits[r] -= 1
            if waits[r] == 0:
                queue.append(r)
    return tuple(order)


def dependences(groups: Sequence[Group]) -> tuple[list[int], dict[Atom, set[int]]]:
    """The number of groups that each group waits for, and the readers of each value."""
    makers: dict[Atom, int] = {v: g for g, group in enumerate(groups) for v in group.writes}
    readers: dict[Atom, set[int]] = {}
    waits: list[int] = []
    for g, group in enumerate(groups):
        positions: set[int] = set()
        for var in group.reads:
            maker = makers.get(var)
            if maker is not None:
                positions.add(maker)
                at = readers.get(var)
                if at is None:
                    readers[var] = {g}
                else:
                    at.add(g)
        waits.append(len(positions))
    return waits, readers


def order_by_freed_bytes(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Greedy order: of the groups whose operands are ready, the one that frees the most bytes net of those that it writes."""
    waits, readers = dependences(groups)
    readers_left = {v: len(r) for v, r in readers.items()}
    gain = [0 if _offloads(g) else -sum([v.aval.nbytes for v in g.writes if v in readers]) for g in groups]
    for v, count in readers_left.items():
        if count == 1:
            (only,) = readers[v]
            gain[only] += v.aval.nbytes
    heap = [(-gain[g], g) for g in range(len(groups)) if waits[g] == 0]
    heapq.heapify(heap)
    is_done = [False] * len(groups)
    order: list[Group] = []
    while heap:
        rank, g = heapq.heappop(heap)
        if is_done[g] or -rank != gain[g]:
            continue
        is_done[g] = True
        order.append(groups[g])
        for var in groups[g].reads:
            count = readers_left.get(var)
            if count is None:
                continue
            readers_left[var] = count - 1
            readers[var].discard(g)
            if count == 2:
                (only,) = readers[var]
                gain[only] += var.aval.nbytes
                if waits[only] == 0:
                    heapq.heappush(heap, (-gain[only], only))
        woken = {r for v in groups[g].writes for r in readers.get(v, ())}
        for r in woken:
            waits[r] -= 1
            if waits[r] == 0:
                heapq.heappush(heap, (-gain[r], r))
    return tuple(order)
