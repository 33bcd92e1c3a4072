"""Advice: changes of a program that are worth trying, each with what the planner predicts of it.

In: a device program, its groups and its memory. Out: `Advice`s, what saves most first. The effect of donating is planned; that of splitting
an argument is the size of its parts, without what gathering them costs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from shardwise.planner.machine import Machine
from shardwise.planner.memory import Memory, donated_homes, memory_of
from shardwise.planner.result import Advice
from shardwise.planner.target import for_chip
from shardwise.planner.work import DeviceProgram, Group

LEAST = 0.005  # of the device's memory: what saves less is not worth a line
_NUMBER = re.compile(r"\d+")


def advise(program: DeviceProgram, groups: Sequence[Group], memory: Memory, machine: Machine) -> tuple[Advice, ...]:
    """What to change of the program."""
    least = LEAST * machine.chip.usable_bytes
    found = [*_donations(program, groups, memory, machine), *_splits(program)]
    return tuple(sorted((a for a in found if a.nbytes >= least), key=lambda a: -a.nbytes))


def _donations(program: DeviceProgram, groups: Sequence[Group], memory: Memory, machine: Machine) -> Iterable[Advice]:
    """Arguments that results replace, but which are not donated."""
    inputs, outputs = program.program.inputs, program.program.outputs
    kept = [i for i in range(program.program.num_consts, len(inputs)) if i not in program.donated]
    homes = donated_homes(replace(program, donated=(*program.donated, *kept)), outputs)
    position = {v: i for i, v in enumerate(inputs)}
    new = {position[home] for home in homes if home is not None} - set(program.donated)
    if not new:
        return
    donated = tuple(sorted({*program.donated, *new}))
    after = memory_of(replace(program, donated=donated), groups, for_chip(machine.chip))
    names = list(dict.fromkeys(re.split(r"[.\[]", program.names[i], maxsplit=1)[0] for i in sorted(new)))
    listed = f"{', '.join(names[:4])}{' and others' if len(names) > 4 else ''}"
    saved = memory.peak - after.peak
    yield Advice(
        f"Donate {listed} (donate_argnums, donate_argnames) if the caller needs them no more: results have their types",
        f"the peak falls by {_gib(saved)} to {_gib(after.peak)}",
        nbytes=saved,
    )


def _splits(program: DeviceProgram) -> Iterable[Advice]:
    """Arguments that lie whole over a mesh axis which divides one of their dims."""
    saved: dict[tuple[str, str, int, int], int] = {}
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
        saved[key] = saved.get(key, 0) + var.aval.nbytes * (program.sizes[axis] - 1) // program.sizes[axis]
    for (name, axis, dim, _), nbytes in saved.items():
        yield Advice(
            f"Split dim {dim} of {name} over {axis!r}, along which every device holds the same",
            f"its parts take {_gib(nbytes)} less; gathering them where they are needed costs time, which is not counted here",
            nbytes=nbytes,
        )


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB"
