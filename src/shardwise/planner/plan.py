"""From a device program and a machine to a `Plan`: memory, traffic and time put together.

In: a `DeviceProgram` and a `Machine`. Out: a `Plan`. The parts are the planner's other modules; this one only joins them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shardwise.ir import Equation, Source, source_text, unwrapped
from shardwise.passes.transfers import Transfer, transfers_of
from shardwise.planner.axes import place_axes
from shardwise.planner.fuse import groups
from shardwise.planner.machine import Machine
from shardwise.planner.memory import memory_of
from shardwise.planner.result import Interval, Line, Plan, Schedule, Task, Traffic
from shardwise.planner.target import target_of
from shardwise.planner.work import DeviceProgram, Group


def make_plan(
    program: DeviceProgram, machine: Machine, *, name: str = "", calls: int = 1, notes: Sequence[str] = ()
) -> Plan:
    """The plan of one compiled step; `calls` is how often the program was called in the run that it comes from."""
    start = time.perf_counter()
    place_axes(program.sizes, machine)  # raises where the mesh does not fit
    target = target_of(machine.chip.platform)
    parts = groups(program, target)
    memory = memory_of(program, parts, target)
    clock = _Clock(program.sizes, machine)
    schedule = clock.schedule(parts)
    chip = machine.chip
    likely = schedule.seconds
    flops = math.fsum(t.flops for t in schedule.tasks)
    return Plan(
        name=name or program.program.name,
        machine=machine.name,
        chip=chip.kind,
        devices=math.prod(program.sizes.values()),
        mesh=dict(program.sizes),
        capacity=chip.usable_bytes,
        arguments=memory.arguments,
        results=memory.results,
        aliased=memory.aliased,
        temporaries=memory.temporaries,
        peak=memory.peak,
        buffers=memory.buffers[:200],
        profile=tuple(zip(clock.starts, memory.usage, strict=True)),
        schedule=schedule,
        seconds=Interval(0.7 * likely, likely, 1.6 * likely),
        flops=flops,
        model_flops=flops,
        peak_flops=max(chip.flops.values()),
        shares=clock.shares,
        traffic=tuple(_traffic(t, machine) for t in transfers_of(program.program, program.sizes)),
        notes=(*_notes(program, machine, parts), *notes),
        calls=calls,
        planning_seconds=time.perf_counter() - start,
    )


def _notes(program: DeviceProgram, machine: Machine, parts: Sequence[Group]) -> Iterator[str]:
    """What the plan takes for granted, one sentence each."""
    used = math.prod(program.sizes.values())
    if used < machine.devices:
        yield f"the program runs on {used} of the {machine.devices} devices of {machine.name}; the others are idle"
    yield from machine.notes
    yield from dict.fromkeys(_endless(parts))


def _endless(parts: Sequence[Group]) -> Iterator[str]:
    for group in parts:
        if group.body and group.trips is None:
            source = group.equations[-1].source
            where = f"{source_text(source)}: " if source else ""
            yield f"{where}how often the loop runs depends on values: one trip of it is counted"
        yield from _endless(group.body)


def _place(source: Source | None) -> Line | None:
    return source.place if source else None


def _traffic(transfer: Transfer, machine: Machine) -> Traffic:
    level = machine.levels[0]
    seconds = transfer.known_trips * (level.latency + transfer.bytes / level.bandwidth)
    return Traffic(transfer.kind, transfer.axes, transfer.total, transfer.trips, transfer.value, transfer.cause, transfer.implicit,
                   _place(transfer.source), level.name, seconds)  # fmt: skip


@dataclass
class _Clock:
    """Seconds of each equation by the roofline, one after the other."""

    sizes: Mapping[str, int]
    machine: Machine
    shares: dict[str, float] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)

    def schedule(self, parts: Sequence[Group], times: int = 1) -> Schedule:
        """The groups in order; `times`: how often they run."""
        tasks: list[Task] = []
        at = 0.0
        starts: list[float] = []
        for group in parts:
            task = self._task(group, at, times)
            starts.append(at)
            tasks.append(task)
            at += task.seconds
        self.starts = starts
        return Schedule(tuple(tasks), at)

    def _task(self, group: Group, at: float, times: int) -> Task:
        chip, eqn = self.machine.chip, group.equations[-1]
        shown = group.writes[0].aval.str_short() if group.writes else ""
        if group.body:
            trips = group.trips or 1
            body = self.schedule(group.body, times * trips)
            flops, moved, sent = (
                trips * math.fsum(getattr(t, f) for t in body.tasks) for f in ("flops", "hbm_bytes", "sent_bytes")
            )
            return Task(eqn.op.name, "loop", "compute", at, trips * body.seconds, flops, moved, sent, trips=trips, body=body,
                        source=_place(eqn.source))  # fmt: skip
        if group.kind == "collective":
            op, params, _ = unwrapped(eqn.op, eqn.params)
            assert op.collective is not None
            sent = op.collective.bytes_sent(tuple(a.aval for a in eqn.inputs), params, self.sizes)
            level = self.machine.levels[0]
            seconds = level.latency + sent / level.bandwidth
            axes = tuple(params.get("axes", ()))
            self._add(f"collective:{','.join(axes)}", seconds * times)
            return Task(op.collective.label, "collective", level.name, at, seconds, sent_bytes=sent, axes=axes, bound="link",
                        value=shown, source=_place(eqn.source))  # fmt: skip
        moved = sum(a.aval.nbytes for a in (*group.reads, *group.writes))
        flops = sum(product_flops(e) for e in group.equations if unwrapped(e.op, e.params)[0].product)
        compute, memory = flops / max(chip.flops.values()), moved / chip.hbm_bandwidth
        seconds, bound = max((compute, "flops"), (memory, "memory"))
        self._add("product" if bound == "flops" else "memory", seconds * times)
        return Task(
            _name(group),
            group.kind,
            "compute",
            at,
            seconds,
            flops,
            moved,
            bound=bound,
            value=shown,
            source=_place(eqn.source),
        )

    def _add(self, cause: str, seconds: float) -> None:
        self.shares[cause] = self.shares.get(cause, 0.0) + seconds


def _name(group: Group) -> str:
    names = list(dict.fromkeys(e.op.name for e in group.equations))
    return names[0] if len(names) == 1 else f"{group.kind}: {' '.join(names[:6])}{' ...' if len(names) > 6 else ''}"


def product_flops(eqn: Equation) -> float:
    """Operations of a product: for each element of the result a multiply-add for each element of an operand that it lacks."""
    in_types, out_types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
    rule = eqn.op.sharding_rule(in_types, out_types, eqn.params)
    shared = {f for dim in rule.outputs[0] for f in dim}
    own = [n for n, dim in zip(in_types[1].shape, rule.inputs[1], strict=True) if not shared & set(dim)]
    return 2.0 * sum(v.aval.size for v in eqn.outputs) * math.prod(own)
