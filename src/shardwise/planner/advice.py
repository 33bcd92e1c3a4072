"""Advice: changes of a program that are worth trying, each with what the planner predicts of it.

In: a device program, its groups, memory, schedule and transfers. Out: `Advice`s, what saves most first. The effects of donating, of sums
behind loops and of other orders of axes are planned; those of other changes are estimated here, and say so. `plan.advise` plans the changed
program where it can be compiled anew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from shardwise.passes import Transfer
from shardwise.planner.axis_order import other_order
from shardwise.planner.buffers import Memory
from shardwise.planner.loop_sums import sum_behind_loops
from shardwise.planner.machine import Machine
from shardwise.planner.memory import donated_homes, memory_of
from shardwise.planner.result import Advice, Schedule, Task
from shardwise.planner.target import for_chip
from shardwise.planner.texts import gib_text, seconds_text
from shardwise.planner.work import DeviceProgram, Group

LEAST_MEMORY = 0.005  # of the device's memory: what saves less is not worth a line
LEAST_TIME = 0.05  # of a step: what takes less time is not worth a line
_NUMBER = re.compile(r"\d+")


def advise(
    program: DeviceProgram,
    groups: Sequence[Group],
    memory: Memory,
    machine: Machine,
    schedule: Schedule,
    transfers: Sequence[Transfer],
) -> tuple[Advice, ...]:
    """Advice: changes of the program that would help."""
    least = LEAST_MEMORY * machine.chip.usable_bytes
    savers = [
        a for a in (*_donations(program, groups, memory, machine), *estimated_splits(program)) if a.nbytes >= least
    ]
    faster = [*_reshards(program, schedule, transfers), *_wide_gathers(schedule, transfers)]
    faster += other_order(program, groups, machine, schedule, transfers, LEAST_TIME)
    repeats = [times * t.seconds for t, times in _leaves(schedule, 1) if t.critical and t.axes and times > 1]
    if math.fsum(repeats) > LEAST_TIME * schedule.seconds:
        faster += sum_behind_loops(program, machine, memory, schedule, LEAST_TIME)
    return (*sorted(faster, key=lambda a: -a.seconds), *sorted(savers, key=lambda a: -a.nbytes))


def _donations(program: DeviceProgram, groups: Sequence[Group], memory: Memory, machine: Machine) -> Iterable[Advice]:
    """Arguments that results replace, but which are not donated."""
    inputs, outputs = program.program.inputs, program.program.outputs
    kept_inputs = [i for i in range(program.program.num_consts, len(inputs)) if i not in program.donated]
    homes = donated_homes(replace(program, donated=(*program.donated, *kept_inputs)), outputs)
    position = {v: i for i, v in enumerate(inputs)}
    new = {position[home] for home in homes if home is not None} - set(program.donated)
    if not new:
        return
    donated_inputs = tuple(sorted({*program.donated, *new}))
    after = memory_of(replace(program, donated=donated_inputs), groups, for_chip(machine.chip))
    names = list(dict.fromkeys(re.split(r"[.\[]", program.names[i], maxsplit=1)[0] for i in sorted(new)))
    name_list = f"{', '.join(names[:4])}{' and others' if len(names) > 4 else ''}"
    saved_bytes = memory.peak - after.peak
    yield Advice(
        f"Donate {name_list} (donate_argnums, donate_argnames) if the caller needs them no more: results have their types",
        f"the peak falls by {gib_text(saved_bytes)} to {gib_text(after.peak)}",
        nbytes=saved_bytes,
    )


def estimated_splits(program: DeviceProgram) -> Iterable[Advice]:
    """Arguments that lie whole over a mesh axis which divides one of their dims."""
    saved_bytes: dict[tuple[str, str, int, int], int] = {}
    for i, var in enumerate(program.program.inputs):
        used = {a for dim in program.in_dims[i] for a in dim}
        free = [a for a, n in program.sizes.items() if n > 1 and a not in used]
        fits = [
            (math.prod(var.aval.shape[d : d + 1]), d, a)
            for a in free
            for d in range(var.aval.ndim)
            if var.aval.shape[d] % program.sizes[a] == 0
        ]
        if not fits:
            continue
        _, dim, axis = max(fits, key=lambda f: (program.sizes[f[2]], f[0]))
        key = _NUMBER.sub("*", program.names[i]), axis, dim, var.aval.ndim
        saved_bytes[key] = saved_bytes.get(key, 0) + var.aval.nbytes * (program.sizes[axis] - 1) // program.sizes[axis]
    for (name, axis, dim, _), nbytes in saved_bytes.items():
        yield Advice(
            f"Split dim {dim} of {name} over {axis!r}, along which every device holds the same",
            f"estimated: its parts take {gib_text(nbytes)} less; gathering them where they are needed costs time",
            nbytes=nbytes,
        )


def _reshards(program: DeviceProgram, schedule: Schedule, transfers: Sequence[Transfer]) -> Iterable[Advice]:
    """Values that are laid out anew though nobody asked for it; arguments that are gathered where they are needed are meant to be."""
    given = set(program.in_shapes) | {shape[1:] for shape in program.in_shapes}
    moves = [t for t in transfers if t.unasked and not (_gathers(t) and _shape(t.value) in given)]
    for t, seconds in _critical(schedule, moves):
        yield Advice(
            f"Lay out {t.value} so that {t.cause} takes it as it is: {t.kind} over {', '.join(t.axes)} changes its layout there "
            "(constrain it, or what it is made of, by with_sharding_constraint)",
            f"estimated: up to {seconds_text(seconds)} of the {seconds_text(schedule.seconds)} of a step",
            source=None if t.source is None else t.source.place,
            seconds=seconds,
        )


def _wide_gathers(schedule: Schedule, transfers: Sequence[Transfer]) -> Iterable[Advice]:
    """Values that are gathered in float32, of which bfloat16 is half the bytes."""
    wide = [t for t in transfers if t.unasked and _gathers(t) and t.dtype == np.float32]
    for t, seconds in _critical(schedule, wide, share=2 * LEAST_TIME):
        yield Advice(
            f"Cast {t.value} to bfloat16 before {t.cause}, for which it is gathered over {', '.join(t.axes)} in float32, if that is "
            "exact enough",
            f"estimated: half the bytes, up to {seconds_text(seconds / 2)} of the {seconds_text(schedule.seconds)} of a step",
            source=None if t.source is None else t.source.place,
            seconds=seconds / 2,
        )


def _gathers(t: Transfer) -> bool:
    return t.op.collective is not None and t.op.collective.pattern == "gather"


def _critical(
    schedule: Schedule, transfers: Sequence[Transfer], share: float = LEAST_TIME
) -> Iterable[tuple[Transfer, float]]:
    """The collectives that lengthen the step noticeably, with the seconds that each adds."""
    first: dict[object, Transfer] = {}
    for t in transfers:
        first.setdefault((t.kind, t.axes, t.source.place if t.source else None, t.cause), t)
    seconds = dict.fromkeys(first, 0.0)
    for task, times in _leaves(schedule, 1):
        key = task.name, task.axes, task.source, task.cause
        if task.critical and key in seconds:
            seconds[key] += times * task.seconds
    return [(first[key], s) for key, s in seconds.items() if s >= share * schedule.seconds > 0]


def _leaves(schedule: Schedule, times: int) -> Iterator[tuple[Task, int]]:
    """Tasks other than loops, with how often they run."""
    for task in schedule.tasks:
        if task.body is None:
            yield task, times
        else:
            yield from _leaves(task.body, times * task.trips)


def _shape(value: str) -> tuple[int, ...]:
    """The shape in the text of a type: of ``bf16[8,512@fsdp]`` (8, 512)."""
    dims = [n.partition("@")[0] for n in value.partition("[")[2].rstrip("]").split(",")]
    return tuple(int(n) for n in dims if n.isdigit())
