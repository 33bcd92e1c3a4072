"""Groups on streams: when each begins, and what makes the schedule as long as it is.

In: groups with their times, the streams that they keep busy, and the groups that they wait for. Out: a `Schedule`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import field

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.planner.causes import HOST
from shardwise.planner.efficiency import BESIDE
from shardwise.planner.result import Schedule, Task

COMPUTE = "compute"


@dataclass(slots=True)
class TimedGroup:
    """A group with its time, or a copy that it waits for, before it is known when it starts.

    `seconds` are those of its task, or more beside transfers.
    """

    task: Task
    streams: tuple[str, ...]
    slower: float = 1.0
    waits_for: set[int] = field(default_factory=set[int])
    place: int | None = None  # of the group that it belongs to, where that is not its own position

    @property
    def seconds(self) -> float:
        """The seconds on its stream."""
        return self.task.seconds * self.slower


def share_bandwidth(timed: list[TimedGroup], free: set[int] | frozenset[int] = frozenset()) -> Schedule:
    """The schedule where computations slow down while transfers run beside them: both want the memory.

    Copies to and from the host are too slow for that: a hundredth of the memory's bandwidth.
    """
    run = _simulate(timed, free)
    links = math.fsum(t.task.seconds for t in timed if COMPUTE not in t.streams and HOST not in t.streams)
    compute = math.fsum(t.task.seconds for t in timed if COMPUTE in t.streams)
    hidden = min(links - (run.seconds - compute), compute)
    kernels = math.fsum(t.task.seconds for t in timed if COMPUTE in t.streams and t.task.body is None)
    if hidden > 0 and kernels:
        slower = 1 + BESIDE * hidden / kernels
        for t in timed:
            if COMPUTE in t.streams and t.task.body is None:
                t.slower = slower
        run = _simulate(timed, free)
    order = sorted(range(len(timed)), key=lambda i: (run.starts[i], i))
    tasks = [_start_task(timed[i], i, run.starts[i], i in run.critical) for i in order]
    return Schedule(tuple(tasks), run.seconds)


def _start_task(timed: TimedGroup, place: int, start: float, critical: bool) -> Task:
    """The task of the group at a place, which starts then."""
    place = place if timed.place is None else timed.place
    t = timed.task
    return Task(
        t.name, t.kind, t.stream, start, timed.seconds, t.flops, t.hbm_bytes, t.sent_bytes, t.axes, t.bound, t.value, t.cause, t.source,
        t.backward, t.trips, t.body, critical, place, t.pattern,
    )  # fmt: skip  # as `replace`, which takes twice as long, and there is a task for every kernel


@dataclass(frozen=True, slots=True)
class _Run:
    """When tasks start, which of them are critical, and how long all of them take."""

    starts: Sequence[float]
    critical: set[int]
    seconds: float


def _simulate(timed: Sequence[TimedGroup], free: set[int] | frozenset[int] = frozenset()) -> _Run:
    """Start each task in order of its place, as soon as its streams are free and what it waits for is there.

    `free` tasks keep their stream busy, but the end of the schedule waits for them only if the stream has no time for them within it.
    """
    if not timed:
        return _Run((), set(), 0.0)
    missing_counts = [len(t.waits_for) for t in timed]
    seconds = [t.seconds for t in timed]
    streams_of = [t.streams for t in timed]
    readers: list[list[int]] = [[] for _ in timed]
    for i, t in enumerate(timed):
        for j in t.waits_for:
            readers[j].append(i)
    ready: dict[tuple[str, ...], list[int]] = {}
    free_at = dict.fromkeys(streams_of, 0.0)
    meeting = {one: [other for other in free_at if not set(one).isdisjoint(other)] for one in free_at}
    last_on: dict[str, int] = {}
    starts = [0.0] * len(timed)
    cause = [-1] * len(timed)
    freed_by = [-1] * len(timed)
    events: list[tuple[float, int]] = []  # when which task ends

    def wake(i: int) -> None:
        heapq.heappush(ready.setdefault(streams_of[i], []), i)

    for i, count in enumerate(missing_counts):
        if not count:
            wake(i)
    now = 0.0
    while True:
        # The task that comes first in the program among those that can start; then the next one.
        while True:
            i, streams, waiting_tasks = len(timed), (), []
            for able, heap in ready.items():
                if heap and heap[0] < i and free_at[able] <= now:
                    i, streams, waiting_tasks = heap[0], able, heap
            if not waiting_tasks:
                break
            heapq.heappop(waiting_tasks)
            starts[i] = now
            end = now + seconds[i]
            if len(streams) == 1:
                freed_by[i] = last_on.get(streams[0], -1)
            else:
                before = [last_on[s] for s in streams if s in last_on]
                freed_by[i] = max(before, key=lambda j: starts[j] + seconds[j], default=-1)
            for s in streams:
                last_on[s] = i
            for others in meeting[streams]:
                free_at[others] = max(free_at[others], end)
            heapq.heappush(events, (end, i))
        if not events:
            break
        now, i = heapq.heappop(events)
        for reader in readers[i]:
            missing_counts[reader] -= 1
            if not missing_counts[reader]:
                cause[reader] = i
                wake(reader)
    return _run_of(timed, free, starts, cause, freed_by)


def _run_of(
    timed: Sequence[TimedGroup],
    free: set[int] | frozenset[int],
    starts: Sequence[float],
    cause: Sequence[int],
    freed_by: Sequence[int],
) -> _Run:
    """The length of a schedule and its critical tasks: `cause` is the last task that each one waited for, `freed_by` the one before it
    on its stream.
    """
    seconds = [t.seconds for t in timed]
    ends = [start + took for start, took in zip(starts, seconds, strict=True)]
    bound = [i for i in range(len(timed)) if i not in free]
    total = max((ends[i] for i in bound), default=0.0)
    last = max(bound, key=lambda i: ends[i], default=-1)
    spent_seconds: dict[str, float] = {}
    for t, took in zip(timed, seconds, strict=True):
        for s in t.streams:
            spent_seconds[s] = spent_seconds.get(s, 0.0) + took
    stream = max(spent_seconds, key=lambda s: spent_seconds[s])
    if spent_seconds[stream] > total:
        # The stream has more to do than the rest takes: its tasks are the critical path.
        total = spent_seconds[stream]
        critical = {i for i, t in enumerate(timed) if stream in t.streams}
    else:
        critical = _critical(last, starts, ends, cause, freed_by)
    return _Run(starts, critical, total)


def _critical(
    last: int, starts: Sequence[float], ends: Sequence[float], cause: Sequence[int], freed_by: Sequence[int]
) -> set[int]:
    """The chain of tasks that ends last: each one started when the one before it ended."""
    critical_tasks: set[int] = set()
    at = last
    while at >= 0 and at not in critical_tasks:
        critical_tasks.add(at)
        start, maker, busy = starts[at], cause[at], freed_by[at]
        if start <= 0:
            break
        at = maker if busy < 0 or (maker >= 0 and min(ends[maker], start) >= min(ends[busy], start)) else busy
    return critical_tasks
