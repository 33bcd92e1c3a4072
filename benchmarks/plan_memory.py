"""The planner's memory beside that of XLA's compiler for CPUs, as a section of `docs/plan-accuracy.md`.

    PLAN_PROGRAMS=FOLDER [PLAN_FACTS=FOLDER] python benchmarks/plan_memory.py

PLAN_PROGRAMS is a folder with a module `programs`: a table ``PROGRAMS`` of programs, each with a `topology` (``v5e:4x4``), a `mesh`
and `build(env)`, which gives a function, the types of its arguments and keywords of jit. PLAN_FACTS is a folder with what XLA's compiler
for CPUs said of each over as many virtual devices, ``NAME.json`` with the fields of `memory_analysis`; programs without are planned only.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax, sharding
from shardwise.plan import on
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
misses on CPUs are second copies of bfloat16 values in float32, which TPUs do not make.
"""


def page() -> str:
    """The section of the programs that the environment names; a note where it names none."""
    programs, facts = os.environ.get("PLAN_PROGRAMS"), os.environ.get("PLAN_FACTS")
    if programs is None:
        return "## Memory\n\nNot compared: PLAN_PROGRAMS names no folder of programs.\n"
    return section(Path(programs), None if facts is None else Path(facts))


def section(programs: Path, facts: Path | None) -> str:
    """The section as Markdown."""
    lines = [
        INTRODUCTION,
        "| program | machine | arguments MiB | peak MiB | of it temporaries | planned in ms | XLA CPU total MiB | predicted | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    ratios: list[float] = []
    exact = compared = 0
    for name, machine, program in device_programs(programs):
        start = time.perf_counter()
        memory = memory_under(program, for_chip(machine.chip))
        row = [
            f"`{name}`",
            machine.name,
            mib(memory.arguments),
            mib(memory.peak),
            mib(memory.temporaries),
            f"{1000 * (time.perf_counter() - start):.0f}",
        ]
        said = None if facts is None else said_by_xla(facts, name)
        if said is not None:
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


def device_programs(folder: Path) -> Iterator[tuple[str, Any, DeviceProgram]]:
    """The name, machine and device program of each program in a folder."""
    sys.path.insert(0, str(folder))
    module = importlib.import_module("programs")
    for name, entry in module.PROGRAMS.items():
        with on(entry.topology.replace(":", "-")) as run:
            axes, sizes = zip(*entry.mesh, strict=True)
            mesh = sharding.Mesh(np.array(jax.devices()[: entry.devices]).reshape(sizes), axes)
            env = module.Env(jax, jnp, lax, sharding.PartitionSpec, sharding.NamedSharding, mesh)
            function, arguments, keywords = entry.build(env)
            executable: Any = jax.jit(function, **keywords).lower(*arguments)._entry.executable
            yield name, run.machine, device_program_of(executable, for_chip(run.machine.chip))


def memory_under(program: DeviceProgram, target: Target) -> Memory:
    """The memory that a program needs as a target compiles it."""
    return memory_of(program, groups(program, target), target)


def said_by_xla(folder: Path, name: str) -> dict[str, int] | None:
    """Bytes of arguments, output, alias and temp as XLA's `memory_analysis` said them; None if it was not asked."""
    file = folder / f"{name}.json"
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    return {k: found[f"{k}_size_in_bytes"] for k in ("argument", "output", "alias", "temp")}


def mib(nbytes: int) -> str:
    """Bytes as MiB for a table."""
    return f"{nbytes / MIB:,.1f}"


if __name__ == "__main__":
    print(page())
