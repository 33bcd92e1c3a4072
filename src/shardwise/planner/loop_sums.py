"""Advice on sums over devices that loops take in every round and only add up, where compilers leave them.

Compilers take such a sum behind the loop by themselves (`passes/late_sums.py`), but not the mean over devices that a loop adds up, and
not the sum of what an inner loop stacks, as a scan over layers does with the gradients of weights that are the same on all devices.

In: a device program and its plan. Out: an `Advice` whose effect is planned: the program with these sums behind its loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwise.passes import Transfer, transfers_of, with_late_sums
from shardwise.planner.axes import parts_of_axes, place_axes
from shardwise.planner.buffers import Memory
from shardwise.planner.clock import schedule as schedule_groups
from shardwise.planner.fuse import framed_groups
from shardwise.planner.machine import Machine
from shardwise.planner.memory import memory_of
from shardwise.planner.result import Advice, Schedule
from shardwise.planner.target import for_chip
from shardwise.planner.texts import gib_text, seconds_text
from shardwise.planner.work import DeviceProgram


def sum_behind_loops(
    program: DeviceProgram, machine: Machine, memory: Memory, schedule: Schedule, least: float
) -> Iterator[Advice]:
    """Advice to take sums behind loops, if that shortens a step by the share `least`."""
    if program.executed is not None:  # it runs as the engine has scheduled it
        return
    later = replace(program, program=with_late_sums(program.program, far=True))
    if later.program is program.program:
        return
    target = for_chip(machine.chip)
    parts, frame = framed_groups(later, target)
    new = schedule_groups(parts, machine, place_axes(program.sizes, machine))
    saved_seconds = schedule.seconds - new.seconds
    fewer = _fewer_runs(program, later)
    if saved_seconds < least * schedule.seconds or not fewer:
        return
    t, runs, left = fewer[0]
    axes = [axis for axis, own in parts_of_axes(program.sizes).items() if not set(own).isdisjoint(t.axes)]
    peak = memory_of(later, parts, target, frame).peak
    before, after = gib_text(memory.peak), gib_text(peak)
    peaks = (
        "" if before == after else f", the peak {'falls' if peak < memory.peak else 'rises'} from {before} to {after}"
    )
    yield Advice(
        f"Sum {t.value} over {', '.join(map(repr, axes))} {'once' if left == 1 else f'{left:,} times'} in place of {runs:,} times, "
        f"behind the loops that add it up: {_how(t, axes)}",
        f"a step takes {seconds_text(new.seconds)} instead of {seconds_text(schedule.seconds)}{peaks}",
        source=None if t.source is None else t.source.place,
        seconds=saved_seconds,
        nbytes=memory.peak - peak,
    )


def _fewer_runs(program: DeviceProgram, later: DeviceProgram) -> list[tuple[Transfer, int, int]]:
    """The sums that run less often in the later program, how often they run and then run; what sends most comes first."""
    runs: list[dict[object, int]] = []
    first: dict[object, Transfer] = {}
    sent_bytes: dict[object, int] = {}
    for one in (program, later):
        counts: dict[object, int] = {}
        for t in transfers_of(one.program, one.sizes):
            key = t.kind, t.axes, t.cause, t.source.place if t.source else None
            first.setdefault(key, t)
            counts[key] = counts.get(key, 0) + t.known_trips
            if one is program:
                sent_bytes[key] = sent_bytes.get(key, 0) + t.total
        runs.append(counts)
    before, after = runs
    fewer = [key for key in before if 0 < after.get(key, 0) < before[key]]
    return [(first[k], before[k], after[k]) for k in sorted(fewer, key=lambda k: -sent_bytes[k])]


def _how(t: Transfer, mesh_axes: Sequence[str]) -> str:
    """What to write: sums of the partitioner, of derivatives, and of the user stand for different lines."""
    axes = ", ".join(map(repr, mesh_axes))
    if t.implicit:
        return (
            f"run the loops in jax.shard_map over {axes}, on weights that vary there (jax.lax.pcast(w, ({axes},), to='varying')), "
            "and psum what comes out"
        )
    if t.backward:
        return f"let the weights vary before the loops (jax.lax.pcast(w, ({axes},), to='varying'))"
    return "add up each device's own part, and psum that"
