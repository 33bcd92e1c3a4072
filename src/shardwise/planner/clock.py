"""Time: groups as tasks on streams, so that what can run at once does.

In: groups (see `work`), a machine, and where the mesh axes lie in it. Out: a `Schedule`. A device
computes one group at a time; each level of the network is a stream beside that. Groups start in their order as soon as what they read is
there. In a loop, collectives that do not depend on the carry run one trip ahead, and those whose results nobody in the body reads end
behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import count
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
from shardwise.planner.streams import COMPUTE, TimedGroup, share_bandwidth
from shardwise.planner.work import Group, Pass
from shardwise.planner.written_kernels import kernel_seconds_of

_FIRST_NAMES = 4  # of the ops of a fused group


def schedule(groups: Sequence[Group], machine: Machine, placement: MeshPlacement) -> Schedule:
    """The tasks of one run of these groups, in the order in which they start; the critical ones marked."""
    return _Clock(machine, placement).run(groups)


_Body = tuple[tuple[Group, ...], Schedule, float]


@dataclass(slots=True)
class _Clock:
    machine: Machine
    placement: MeshPlacement
    bodies: dict[int, _Body] = field(default_factory=dict[int, _Body])  # by identity of the groups

    def run(self, groups: Sequence[Group]) -> Schedule:
        """A schedule of groups that run once."""
        timed_groups, _ = self._time_groups(groups, frozenset())
        return share_bandwidth(timed_groups)

    def _trip(self, group: Group, region: Loop) -> tuple[Schedule, float]:
        """One trip of a loop in its steady state, and the seconds before the first one."""
        body = region.body
        carry = body.inputs[region.num_consts : region.num_consts + region.num_carry]
        timed_groups, makers = self._time_groups(group.body, frozenset(carry))
        carried_groups = {makers[v] for v in body.outputs[: region.num_carry] if isinstance(v, Var) and v in makers}
        read = set[int]().union(*(t.waits_for for t in timed_groups)) if timed_groups else set[int]()
        depends = _depends(timed_groups[: len(group.body)], group.body, frozenset(carry))
        ahead, behind = set[int](), set[int]()
        for i, t in enumerate(timed_groups):
            if COMPUTE in t.streams:
                continue
            if i not in depends:
                ahead.add(i)
            elif i not in read and i not in carried_groups:
                behind.add(i)
        before = math.fsum(timed_groups[i].task.seconds for i in ahead)
        for t in timed_groups:
            t.waits_for -= ahead
        plan = share_bandwidth(timed_groups, free=ahead | behind)
        return plan, before

    def _time_groups(self, groups: Sequence[Group], carry: frozenset[Var]) -> tuple[list[TimedGroup], dict[Atom, int]]:
        makers: dict[Atom, int] = {v: i for i, g in enumerate(groups) for v in g.writes}
        chip = self.machine.chip
        near = {v for g in groups for v in g.writes if stays_near(v.aval.nbytes, chip)}
        near |= {v for v in carry if stays_near(v.aval.nbytes, chip)}
        timed_groups: list[TimedGroup] = []
        timed_by_key: dict[object, TimedGroup] = {}  # layers of an unrolled model repeat the same groups
        for i, group in enumerate(groups):
            key = _likeness(group, near)
            like = timed_by_key.get(key)
            if like is None:
                like = timed_by_key[key] = self._time(group, near)
            waits_for = {at for v in group.reads if (at := makers.get(v, i)) != i}
            timed_groups.append(TimedGroup(like.task, like.streams, like.slower, waits_for))
        return timed_groups + self._fetches(groups, timed_groups, makers), makers

    def _fetches(self, groups: Sequence[Group], timed: list[TimedGroup], makers: dict[Atom, int]) -> list[TimedGroup]:
        """The copies of values from the host's memory, each once, for which their readers wait; none where it is the device's."""
        fetch_tasks: dict[Var, int] = {}
        copies: list[TimedGroup] = []
        for i, group in enumerate(groups if self.machine.chip.host_bandwidth else ()):
            for var in group.fetched:
                if var not in fetch_tasks:
                    fetch_tasks[var] = len(timed) + len(copies)
                    seconds = var.aval.nbytes / self.machine.chip.host_bandwidth
                    task = _task(group, "move", HOST, seconds, hbm_bytes=var.aval.nbytes, bound="link")
                    before = {makers[var]} if var in makers else set[int]()
                    copy = replace(task, name="fetch", value=var.aval.str_short())
                    copies.append(TimedGroup(copy, (HOST,), waits_for=before, place=i))
                timed[i].waits_for.add(fetch_tasks[var])
        return copies

    def _time(self, group: Group, near: set[Var]) -> TimedGroup:
        if group.body or (group.kind == "loop" and group.equations):
            return self._loop(group)
        if group.kind == "collective":
            return self._collective(group)
        crossing_bytes = _bytes_to_host(group) if self.machine.chip.host_bandwidth else 0
        if crossing_bytes:
            seconds = crossing_bytes / self.machine.chip.host_bandwidth
            return TimedGroup(_task(group, "move", HOST, seconds, hbm_bytes=crossing_bytes, bound="link"), (HOST,))
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
        return self._with_rings(TimedGroup(task, (COMPUTE,)), group)

    def _time_written_kernel(self, group: Group, near: set[Var]) -> TimedGroup:
        """A kernel that the program brings along."""
        bytes_by_var = {v: v.aval.nbytes for v in (*group.reads, *group.writes) if isinstance(v, Var)}
        inside = math.fsum(n for v, n in bytes_by_var.items() if v in near)
        far = math.fsum(bytes_by_var.values()) - inside
        flops, took = kernel_seconds_of(group.equations[-1], far, inside, self.machine.chip)
        task = _task(group, group.kind, COMPUTE, took.total, flops=flops, hbm_bytes=far, bound=took.bound)
        return TimedGroup(task, (COMPUTE,))

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

    def _with_rings(self, timed: TimedGroup, group: Group) -> TimedGroup:
        """A kernel in which collectives run part by part: the links are busy as well, and the first part comes before all work."""
        link = first = sent_bytes = 0.0
        axes: dict[str, None] = {}
        streams: dict[str, None] = {COMPUTE: None}
        for eqn in group.equations:
            op, params, _ = unwrap_op(eqn.op, eqn.params)
            if op.collective is None or not op.collective.counted:
                continue
            own = tuple(params.get("axes", ()))
            held_bytes = sum(a.aval.nbytes for a in eqn.inputs)
            took = cross_axes(op.collective.pattern, held_bytes, own, self.placement)
            seconds = took.latency + (took.seconds - took.latency) / reach_of(self.machine.chip).links
            link += seconds
            first += seconds / max(1, group.rings)
            sent_bytes += op.collective.bytes_sent(tuple(a.aval for a in eqn.inputs), params, self._sizes())
            axes.update(dict.fromkeys(own))
            streams.update(dict.fromkeys(took.by_level))
        if not link:
            return timed
        task = timed.task
        compute = task.seconds + BESIDE * min(link, task.seconds)
        bound = task.bound if compute >= link else "link"
        seconds = max(compute, link) + first
        return TimedGroup(
            replace(task, seconds=seconds, bound=bound, sent_bytes=sent_bytes, axes=tuple(axes)), tuple(streams)
        )

    def _collective(self, group: Group) -> TimedGroup:
        total = latency = moved_bytes = sent_bytes = 0.0
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
            held_bytes = sum(a.aval.nbytes for a in eqn.inputs)
            nbytes = sent_now if op.collective.pattern == SHIFT else held_bytes
            took = cross_axes(op.collective.pattern, nbytes, own, self.placement)
            total += took.seconds
            latency += took.latency
            for name, seconds in took.by_level.items():
                by_level[name] = by_level.get(name, 0.0) + seconds
            sent_bytes += sent_now
            moved_bytes += sum(a.aval.nbytes for a in eqn.inputs) + sum(v.aval.nbytes for v in eqn.outputs)
        reach = reach_of(self.machine.chip)
        seconds = latency + (total - latency) / reach.links + self.machine.chip.overhead
        stream = max(by_level, key=lambda name: by_level[name], default=COMPUTE)
        bound = "link" if total - latency > latency else "latency"
        task = _task(
            group,
            "collective",
            stream,
            seconds,
            hbm_bytes=moved_bytes,
            sent_bytes=sent_bytes,
            axes=tuple(axes),
            bound=bound,
            pattern=pattern,
        )
        # Accelerators have engines of their own for transfers; on CPUs the cores that compute send as well.
        beside = group.overlaps or self.machine.chip.platform != "cpu"
        streams = (stream,) if beside else tuple(dict.fromkeys((COMPUTE, stream)))
        return TimedGroup(task, streams)

    def _sizes(self) -> dict[str, int]:
        return {name: math.prod(s.size for s in parts) for name, parts in self.placement.segments.items()}

    def _loop(self, group: Group) -> TimedGroup:
        known_body = self.bodies.get(id(group.body))
        if known_body is None:
            region = region_of(group.equations[-1]) if group.equations else None
            body, before = self._trip(group, region) if isinstance(region, Loop) else (self.run(group.body), 0.0)
            self.bodies[id(group.body)] = group.body, body, before
        else:
            _, body, before = known_body
        trips = 1 if group.trips is None else group.trips
        before += before_trips(group, self.machine.chip)
        seconds = before + trips * (body.seconds + between_trips(group, self.machine.chip))
        flops, moved_bytes, sent_bytes = (
            trips * math.fsum(amount)
            for amount in zip(*((t.flops, t.hbm_bytes, t.sent_bytes) for t in body.tasks), (0.0, 0.0, 0.0), strict=True)
        )
        task = _task(
            group,
            "loop",
            COMPUTE,
            seconds,
            flops=flops,
            hbm_bytes=moved_bytes,
            sent_bytes=sent_bytes,
            trips=trips,
            body=body,
        )
        busy = (COMPUTE, *dict.fromkeys(t.stream for t in body.tasks if t.stream != COMPUTE))
        return TimedGroup(task, busy)


def _likeness(group: Group, near: set[Var]) -> object:
    """Equal for groups that compute the same from values of the same types, on behalf of the same line."""
    key: list[object] = [group.kind, group.overlaps, group.rings, group.trips, id(group.body)]
    atoms: list[Atom] = [*group.reads, *group.writes]
    key += (len(group.reads), len(atoms))
    for e in group.equations:
        key += (e.op, id(e.params), e.source, len(e.inputs))
        atoms += e.inputs
        atoms += e.outputs
    numbers = dict(zip(dict.fromkeys(atoms), count()))
    key += map(numbers.__getitem__, atoms)
    key += [a.aval for a in numbers]
    if not near.isdisjoint(numbers):
        key += [a in near for a in numbers]
    return tuple(key)


def _depends(timed: Sequence[TimedGroup], groups: Sequence[Group], carry: frozenset[Var]) -> set[int]:
    """The groups that need the carry, themselves or through others."""
    positions: set[int] = set()
    for i, (t, group) in enumerate(zip(timed, groups, strict=True)):
        if not carry.isdisjoint(v for v in group.reads if isinstance(v, Var)) or t.waits_for & positions:
            positions.add(i)
    return positions


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
