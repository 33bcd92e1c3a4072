"""When each place of a program is reached, though a schedule starts some tasks before what stands in front of them.

In: a schedule. Out: a time for each task, in the program's order and never falling: by the heaviest tasks that start in that order.
"""

from __future__ import annotations

from bisect import bisect_right

from shardwise.planner.result import Schedule, Task


def times_by_place(schedule: Schedule) -> list[tuple[float, Task]]:
    """(seconds, task) in the program's order. A collective has the time of the next computation: memory counts it there."""
    order = sorted(schedule.tasks, key=lambda t: t.place)
    heaviest = _in_order([t for t in order if t.kind != "collective"])
    timed_tasks: list[tuple[float, Task]] = []
    time = schedule.seconds
    for task in reversed(order):
        if task.place in heaviest:
            time = task.start
        timed_tasks.append((time, task))
    timed_tasks.reverse()
    return timed_tasks


def _in_order(tasks: list[Task]) -> set[int]:
    """The places of those tasks with the most seconds in all whose starts do not fall."""
    # Chains that no other beats: by the start of the last task, each with more seconds than those before it.
    starts: list[float] = []
    chains: list[tuple[float, int]] = []  # seconds, and the last task
    before: list[int] = []
    for i, task in enumerate(tasks):
        at = bisect_right(starts, task.start)
        total, previous = chains[at - 1] if at else (0.0, -1)
        total += task.seconds
        before.append(previous)
        end = at
        while end < len(chains) and chains[end][0] <= total:
            end += 1
        if at and starts[at - 1] == task.start:
            at -= 1
        starts[at:end] = [task.start]
        chains[at:end] = [(total, i)]
    places: set[int] = set()
    last = chains[-1][1] if chains else -1
    while last >= 0:
        places.add(tasks[last].place)
        last = before[last]
    return places
