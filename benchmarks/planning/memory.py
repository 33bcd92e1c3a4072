"""Section 'memory': the planner's memory beside that of XLA's compiler for CPUs."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

from planning.ask_xla import RECORD
from planning.programs import compiled
from shardwise.planner.device_program import device_program_of
from shardwise.planner.fuse import groups
from shardwise.planner.memory import Memory, memory_of
from shardwise.planner.target import CPU_XLA, Target, for_chip
from shardwise.planner.work import DeviceProgram

MIB = 2**20
INTRODUCTION = """## Memory

Bytes of one device. *Peak* is what the program needs on the chip that it was written for: arguments, results that take no donated
argument's memory, and temporaries. The columns after it compare the same passes, with the rules of XLA's compiler for CPUs (products of
16-bit floats widened, the order that its concurrent scheduler takes), with what that compiler says of the program over as many
virtual devices. It says nothing of a TPU's compiler, whose figures are not public; it checks liveness, aliasing, loops and sizes.
"""
UNKNOWN = """
What the model does not know: layouts that a compiler chooses for single values, and the copies between them; buffers that XLA's
assignment keeps apart though they could share memory; which operands of several loops XLA for CPUs converts before them. Most of what it
misses on CPUs are second copies of bfloat16 values in float32, which TPUs do not make. Other compilers do not share either what that for
CPUs does with random bits (loops over rounds, whose counters lie in memory), convolutions and attention (operands transposed for its
kernels), reductions (which take in no long chains of what makes their operands) and the parts of a roll (put together before they are
added).
"""


def page(folder: Path) -> str:
    """The section as Markdown, of the programs of a folder."""
    facts = json.loads(RECORD.read_text())
    lines = [
        INTRODUCTION,
        "| program | machine | arguments MiB | peak MiB | of it temporaries | planned in ms | XLA CPU total MiB | predicted | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    ratios: list[float] = []
    exact = compared = 0
    for one in compiled(folder):
        name, machine = one.name, one.machine
        start = time.perf_counter()
        program = device_program_of(one.executable, for_chip(machine.chip))
        memory = memory_under(program, for_chip(machine.chip))
        row = [
            f"`{name}`",
            machine.name,
            mib(memory.arguments),
            mib(memory.peak),
            mib(memory.temporaries),
            f"{1000 * (time.perf_counter() - start):.0f}",
        ]
        if name in facts:
            said = facts[name]["memory"]
            ours = memory_under(program, CPU_XLA)
            total = said["argument"] + said["output"] - said["alias"] + said["temp"]
            ratios.append(ours.peak / total)
            compared += 1
            exact += ours.arguments == said["argument"] and ours.results == said["output"]
            row += [mib(total), mib(ours.peak), f"{ratios[-1]:.2f}"]
        else:
            row += ["", "", ""]
        lines.append(f"| {' | '.join(row)} |")
    if ratios:
        errors = [abs(r - 1) for r in ratios]
        lines.append(
            f"\nOf {compared} programs {exact} have XLA's argument and result bytes exactly; the median error of the total is "
            f"{100 * statistics.median(errors):.0f} %, and {sum(e < 0.05 for e in errors)} are within 5 %."
        )
    return "\n".join([*lines, UNKNOWN])


def memory_under(program: DeviceProgram, target: Target) -> Memory:
    """The memory that a program needs as a target compiles it."""
    return memory_of(program, groups(program, target), target)


def mib(nbytes: int) -> str:
    """Bytes as MiB for a table."""
    return f"{nbytes / MIB:,.1f}"
