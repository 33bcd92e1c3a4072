"""Time: groups as tasks on streams, so that what can run at once does.

In: groups (see `work`), a machine, and where the mesh axes lie in it. Out: a `Schedule`. A device
computes one group at a time; each level of the network is a stream beside that. Groups start in their order as soon as what they read is
there. In a loop, collectives that do not depend on the carry run one trip ahead, and those whose results nobody in the body reads end
behind it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Atom, Equation, Loop, Var, region_of, unwrap_op
from shardwise.planner.axes import MeshPlacement
from shardwise.planner.causes import HOST
from shardwise.planner.copies import op_name
from shardwise.planner.efficiency import BESIDE, Seconds, kernel_seconds, reach_of, stays_near
from shardwise.planner.flops import chained_operations, work_of
from shardwise.planner.launches import before_trips, between_trips, more_kernels
from shardwise.planner.links import SHIFT, cross_axes
from shardwise.planner.machine import Machine
from shardwise.planner.passes import whole_pass
from shardwise.planner.result import Line, Schedule, Task
from shardwise.planner.roles import memory_kind_of, reduces_columns
from shardwise.planner.steps import without_steps
from shardwise.planner.work import Group, Pass
from shardwise.planner.written_kernels import kernel_seconds_of

COMPUTE = "compute"
_FIRST_NAMES = 4  # of the ops of a fused group


def schedule(groups: Sequence[Group], machine: Machine, placement: MeshPlacement) -> Schedule:
    """The tasks of one run of these groups, in the order in which they start; the critical ones marked."""
    return _Clock(machine, placement).run(groups)


@dataclass(slots=True)
class _TimedGroup:
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


_Body = tuple[tuple[Group, ...], Schedule, float]


@dataclass(slots=True)
class _Clock:
    machine: Machine
    placement: MeshPlacement
    bodies: dict[int, _Body] = field(default_factory=dict[int, _Body])  # by identity of the groups

    def run(self, groups: Sequence[Group]) -> Schedule:
        """A schedule of groups that run once."""
        timed, _ = self._time_groups(groups, frozenset())
        return _share_bandwidth(timed)

    def _trip(self, group: Group, region: Loop) -> tuple[Schedule, float]:
        """One trip of a loop in its steady state, and the seconds before the first one."""
        body = region.body
        carry = body.inputs[region.num_consts : region.num_consts + region.num_carry]
        timed, makers = self._time_groups(group.body, frozenset(carry))
        carried = {makers[v] for v in body.outputs[: region.num_carry] if isinstance(v, Var) and v in makers}
        read = set[int]().union(*(t.waits_for for t in timed)) if timed else set[int]()
        depends = _depends(timed[: len(group.body)], group.body, frozenset(carry))
        ahead, behind = set[int](), set[int]()
        for i, t in enumerate(timed):
            if COMPUTE in t.streams:
                continue
            if i not in depends:
                ahead.add(i)
            elif i not in read and i not in carried:
                behind.add(i)
        before = math.fsum(timed[i].task.seconds for i in ahead)
        for t in timed:
            t.waits_for -= ahead
        plan = _share_bandwidth(timed, free=ahead | behind)
        return plan, before

    def _time_groups(self, groups: Sequence[Group], carry: frozenset[Var]) -> tuple[list[_TimedGroup], dict[Atom, int]]:
        makers: dict[Atom, int] = {v: i for i, g in enumerate(groups) for v in g.writes}
        chip = self.machine.chip
        near = {v for g in groups for v in g.writes if stays_near(v.aval.nbytes, chip)}
        near |= {v for v in carry if stays_near(v.aval.nbytes, chip)}
        timed: list[_TimedGroup] = []
        known: dict[object, _TimedGroup] = {}  # layers of an unrolled model repeat the same groups
        for i, group in enumerate(groups):
            key = _likeness(group, near)
            like = known.get(key)
            if like is None:
                like = known[key] = self._time(group, near)
            waits_for = {at for v in group.reads if (at := makers.get(v, i)) != i}
            timed.append(_TimedGroup(like.task, like.streams, like.slower, waits_for))
        return timed + self._fetches(groups, timed, makers), makers

    def _fetches(self, groups: Sequence[Group], timed: list[_TimedGroup], makers: dict[Atom, int]) -> list[_TimedGroup]:
        """The copies of values from the host's memory, each once, for which their readers wait; none where it is the device's."""
        found: dict[Var, int] = {}
        copies: list[_TimedGroup] = []
        for i, group in enumerate(groups if self.machine.chip.host_bandwidth else ()):
            for var in group.fetched:
                if var not in found:
                    found[var] = len(timed) + len(copies)
                    seconds = var.aval.nbytes / self.machine.chip.host_bandwidth
                    task = _task(group, "move", HOST, seconds, hbm_bytes=var.aval.nbytes, bound="link")
                    before = {makers[var]} if var in makers else set[int]()
                    copy = replace(task, name="fetch", value=var.aval.str_short())
                    copies.append(_TimedGroup(copy, (HOST,), waits_for=before, place=i))
                timed[i].waits_for.add(found[var])
        return copies

    def _time(self, group: Group, near: set[Var]) -> _TimedGroup:
        if group.body or (group.kind == "loop" and group.equations):
            return self._loop(group)
        if group.kind == "collective":
            return self._collective(group)
        crossed = _bytes_to_host(group) if self.machine.chip.host_bandwidth else 0
        if crossed:
            seconds = crossed / self.machine.chip.host_bandwidth
            return _TimedGroup(_task(group, "move", HOST, seconds, hbm_bytes=crossed, bound="link"), (HOST,))
        if group.kind == "kernel":
            return self._time_written_kernel(group, near)
        passes = group.passes or (whole_pass(group, lookups=self.machine.chip.counts_places),)
        took = [self._pass(p, near, group.copies, group.writes) for p in passes]
        overhead = (len(took) - 1) * self.machine.chip.overhead  # a kernel is called once
        task = _task(
            group,
            group.kind,
            COMPUTE,
            math.fsum(seconds.total for _, _, seconds in took) - overhead,
            flops=math.fsum(flops for flops, _, _ in took),
            hbm_bytes=math.fsum(far for _, far, _ in took),
            bound=max((seconds for _, _, seconds in took), key=lambda s: s.total).bound,
        )
        return self._with_rings(_TimedGroup(task, (COMPUTE,)), group)

    def _time_written_kernel(self, group: Group, near: set[Var]) -> _TimedGroup:
        """A kernel that the program brings along."""
        touched = {v: v.aval.nbytes for v in (*group.reads, *group.writes) if isinstance(v, Var)}
        inside = math.fsum(n for v, n in touched.items() if v in near)
        far = math.fsum(touched.values()) - inside
        flops, took = kernel_seconds_of(group.equations[-1], far, inside, self.machine.chip)
        task = _task(group, group.kind, COMPUTE, took.total, flops=flops, hbm_bytes=far, bound=took.bound)
        return _TimedGroup(task, (COMPUTE,))

    def _pass(self, part: Pass, near: set[Var], copies: int, writes: Sequence[Var]) -> tuple[float, float, Seconds]:
        """FLOPs of products, bytes of memory, and seconds of one pass of a kernel."""
        chip = self.machine.chip
        others, own = part.equations, 0.0
        if chip.steps:
            others, own = without_steps(part.equations, chip.steps, chip.turns)
        own += chip.chained * chained_operations(part.equations) if chip.chained else 0.0
        work = work_of(others, function_costs=chip.function_costs)
        inside = math.fsum(n for v, n in part.touched.items() if v in near)
        far = math.fsum(part.touched.values()) - inside
        written = min(far, math.fsum(part.touched.get(v, 0) for v in writes if v not in near))
        down = far - written if chip.rates is not None and any(map(reduces_columns, part.equations)) else 0.0
        took = kernel_seconds(work, far, inside, chip, part.cached, copies, part.lookups, own, written, down)
        took = Seconds(took.total + more_kernels(part.equations, chip), took.bound)
        flops = work.product_flops if others is part.equations else work_of(part.equations).product_flops
        return copies * flops, copies * far, took

    def _with_rings(self, timed: _TimedGroup, group: Group) -> _TimedGroup:
        """A kernel in which collectives run part by part: the links are busy as well, and the first part comes before all work."""
        link = first = sent = 0.0
        axes: dict[str, None] = {}
        streams: dict[str, None] = {COMPUTE: None}
        for eqn in group.equations:
            op, params, _ = unwrap_op(eqn.op, eqn.params)
            if op.collective is None or not op.collective.counted:
                continue
            own = tuple(params.get("axes", ()))
            held = sum(a.aval.nbytes for a in eqn.inputs)
            took = cross_axes(op.collective.pattern, held, own, self.placement)
            seconds = took.latency + (took.seconds - took.latency) / reach_of(self.machine.chip).links
            link += seconds
            first += seconds / max(1, group.rings)
            sent += op.collective.bytes_sent(tuple(a.aval for a in eqn.inputs), params, self._sizes())
            axes.update(dict.fromkeys(own))
            streams.update(dict.fromkeys(took.by_level))
        if not link:
            return timed
        task = timed.task
        compute = task.seconds + BESIDE * min(link, task.seconds)
        bound = task.bound if compute >= link else "link"
        seconds = max(compute, link) + first
        return _TimedGroup(
            replace(task, seconds=seconds, bound=bound, sent_bytes=sent, axes=tuple(axes)), tuple(streams)
        )

    def _collective(self, group: Group) -> _TimedGroup:
        total = latency = moved = sent = 0.0
        axes: dict[str, None] = {}
        pattern = ""
        by_level: dict[str, float] = {}
        for eqn in group.equations:
            op, params, _ = unwrap_op(eqn.op, eqn.params)
            if op.collective is None or not op.collective.counted:
                continue
            own = tuple(params.get("axes", ()))
            axes.update(dict.fromkeys(own))
            pattern = op.collective.pattern
            sent_now = op.collective.bytes_sent(tuple(a.aval for a in eqn.inputs), params, self._sizes())
            held = sum(a.aval.nbytes for a in eqn.inputs)
            nbytes = sent_now if op.collective.pattern == SHIFT else held
            took = cross_axes(op.collective.pattern, nbytes, own, self.placement)
            total += took.seconds
            latency += took.latency
            for name, seconds in took.by_level.items():
                by_level[name] = by_level.get(name, 0.0) + seconds
            sent += sent_now
            moved += sum(a.aval.nbytes for a in eqn.inputs) + sum(v.aval.nbytes for v in eqn.outputs)
        reach = reach_of(self.machine.chip)
        seconds = latency + (total - latency) / reach.links + self.machine.chip.overhead
        stream = max(by_level, key=lambda name: by_level[name], default=COMPUTE)
        bound = "link" if total - latency > latency else "latency"
        task = _task(
            group,
            "collective",
            stream,
            seconds,
            hbm_bytes=moved,
            sent_bytes=sent,
            axes=tuple(axes),
            bound=bound,
            pattern=pattern,
        )
        # Accelerators have engines of their own for transfers; on CPUs the cores that compute send as well.
        beside = group.overlaps or self.machine.chip.platform != "cpu"
        streams = (stream,) if beside else tuple(dict.fromkeys((COMPUTE, stream)))
        return _TimedGroup(task, streams)

    def _sizes(self) -> dict[str, int]:
        return {name: math.prod(s.size for s in parts) for name, parts in self.placement.segments.items()}

    def _loop(self, group: Group) -> _TimedGroup:
        known = self.bodies.get(id(group.body))
        if known is None:
            region = region_of(group.equations[-1]) if group.equations else None
            body, before = self._trip(group, region) if isinstance(region, Loop) else (self.run(group.body), 0.0)
            self.bodies[id(group.body)] = group.body, body, before
        else:
            _, body, before = known
        trips = 1 if group.trips is None else group.trips
        before += before_trips(group, self.machine.chip)
        seconds = before + trips * (body.seconds + between_trips(group, self.machine.chip))
        flops, moved, sent = (
            trips * math.fsum(amount)
            for amount in zip(*((t.flops, t.hbm_bytes, t.sent_bytes) for t in body.tasks), (0.0, 0.0, 0.0), strict=True)
        )
        task = _task(
            group, "loop", COMPUTE, seconds, flops=flops, hbm_bytes=moved, sent_bytes=sent, trips=trips, body=body
        )
        busy = (COMPUTE, *dict.fromkeys(t.stream for t in body.tasks if t.stream != COMPUTE))
        return _TimedGroup(task, busy)


def _likeness(group: Group, near: set[Var]) -> object:
    """Equal for groups that compute the same from values of the same types, on behalf of the same line."""
    numbers: dict[Atom, int] = {}
    key: list[object] = [group.kind, group.overlaps, group.rings, group.trips, id(group.body)]
    lists: list[tuple[Atom, ...]] = []
    for e in group.equations:
        key += (e.op, id(e.params), e.source)
        lists += (e.inputs, e.outputs)
    number_of = numbers.setdefault
    for atoms in (*lists, group.reads, group.writes):
        key += [number_of(a, len(numbers)) for a in atoms]
        key.append(None)
    key += [a.aval for a in numbers]
    if not near.isdisjoint(numbers):
        key += [a in near for a in numbers]
    return tuple(key)


def _depends(timed: Sequence[_TimedGroup], groups: Sequence[Group], carry: frozenset[Var]) -> set[int]:
    """The groups that need the carry, themselves or through others."""
    found: set[int] = set()
    for i, (t, group) in enumerate(zip(timed, groups, strict=True)):
        if not carry.isdisjoint(v for v in group.reads if isinstance(v, Var)) or t.waits_for & found:
            found.add(i)
    return found


def _share_bandwidth(timed: list[_TimedGroup], free: set[int] | frozenset[int] = frozenset()) -> Schedule:
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


def _start_task(timed: _TimedGroup, place: int, start: float, critical: bool) -> Task:
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


def _simulate(timed: Sequence[_TimedGroup], free: set[int] | frozenset[int] = frozenset()) -> _Run:
    """Start each task in order of its place, as soon as its streams are free and what it waits for is there.

    `free` tasks keep their stream busy, but the end of the schedule waits for them only if the stream has no time for them within it.
    """
    if not timed:
        return _Run((), set(), 0.0)
    missing = [len(t.waits_for) for t in timed]
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

    for i, count in enumerate(missing):
        if not count:
            wake(i)
    now = 0.0
    while True:
        # The task that comes first in the program among those that can start; then the next one.
        while True:
            i, streams, waiting = len(timed), (), []
            for able, heap in ready.items():
                if heap and heap[0] < i and free_at[able] <= now:
                    i, streams, waiting = heap[0], able, heap
            if not waiting:
                break
            heapq.heappop(waiting)
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
            missing[reader] -= 1
            if not missing[reader]:
                cause[reader] = i
                wake(reader)
    return _run_of(timed, free, starts, cause, freed_by)


def _run_of(
    timed: Sequence[_TimedGroup],
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
    spent: dict[str, float] = {}
    for t, took in zip(timed, seconds, strict=True):
        for s in t.streams:
            spent[s] = spent.get(s, 0.0) + took
    stream = max(spent, key=lambda s: spent[s])
    if spent[stream] > total:
        # The stream has more to do than the rest takes: its tasks are the critical path.
        total = spent[stream]
        critical = {i for i, t in enumerate(timed) if stream in t.streams}
    else:
        critical = _critical(last, starts, ends, cause, freed_by)
    return _Run(starts, critical, total)


def _critical(
    last: int, starts: Sequence[float], ends: Sequence[float], cause: Sequence[int], freed_by: Sequence[int]
) -> set[int]:
    """The chain of tasks that ends last: each one started when the one before it ended."""
    found: set[int] = set()
    at = last
    while at >= 0 and at not in found:
        found.add(at)
        start, maker, busy = starts[at], cause[at], freed_by[at]
        if start <= 0:
            break
        at = maker if busy < 0 or (maker >= 0 and min(ends[maker], start) >= min(ends[busy], start)) else busy
    return found


def _bytes_to_host(group: Group) -> int:
    """The bytes that a group copies to the host's memory, or from there."""
    copies = [e for e in group.equations if memory_kind_of(e) is not None]
    return sum(a.aval.nbytes for e in copies for a in e.inputs)


def _name(group: Group) -> str:
    eqns = group.equations
    if not eqns:
        return group.kind
    if group.kind == "collective":
        op = unwrap_op(eqns[-1].op, eqns[-1].params)[0]
        return op.collective.label if op.collective is not None else op.name
    if group.kind == "kernel":
        return eqns[-1].params["kernel"].name
    names = [op_name(e) for e in eqns]
    if group.kind == "product":
        at = next((i for i, e in enumerate(eqns) if unwrap_op(e.op, e.params)[0].product), 0)
        return names[at] if len(names) == 1 else f"{names[at]} with {_list_names(names[:at] + names[at + 1 :])}"
    return names[0] if len(names) == 1 else f"fused: {_list_names(names)}"


def _list_names(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return " ".join(unique[:_FIRST_NAMES]) + (" ..." if len(unique) > _FIRST_NAMES else "")


def _task(group: Group, kind: str, stream: str, seconds: float, **amounts: Any) -> Task:
    """A task of a group, with where it comes from; its start is not known yet."""
    value, line, backward, cause = _origin(group)
    return Task(
        _name(group), kind, stream, 0.0, seconds, value=value, source=line, backward=backward, cause=cause, **amounts
    )


def _origin(group: Group) -> tuple[str, Line | None, bool, str]:
    """A group's label: the type of its first result, the user's line, whether it is a backward pass's, and the cause of a collective."""
    eqn = _heaviest(group.equations)
    value = group.writes[0].aval.str_short() if group.writes else ""
    source = None if eqn is None else eqn.source
    if source is None:
        return value, None, False, ""
    cause = ""
    if group.kind == "collective" and source.need is not None:
        cause = source.need.op if source.need.implicit else "written by the program"
    return value, source.place if source else None, source.backward, cause


def _heaviest(equations: Sequence[Equation]) -> Equation | None:
    """The equation that names the group's line: its product, or its last one."""
    return next((e for e in equations if unwrap_op(e.op, e.params)[0].product), equations[-1] if equations else None)
