"""Section 'here': time and memory of programs on this machine, predicted beside measured."""

from __future__ import annotations

import gc
import importlib
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from separate import environment

SECONDS = 0.06  # of measuring, for each program and round
ROUNDS = 4
SKIPPED = ("Linear algebra", "First calls")  # LAPACK's routines, and what is no run
FAMILIES = ("loops", "products_and_models")  # modules that register programs
OWN = "Kernels and training steps"


@dataclass
class Program:
    """A program of this machine.

    Attributes:
        family, name: of the benchmark that it belongs to.
        call: one call of it, which gives its results.
        executables: what the engine compiled for a call, with how often a call runs it.
        seconds: the least that a call took.
    """

    family: str
    name: str
    call: Callable[[], Any]
    executables: list[tuple[Any, int]] = field(default_factory=list[tuple[Any, int]])
    seconds: float = float("inf")


def page() -> str:
    """The section as Markdown: of a process with one thread."""
    command = [sys.executable, "-m", "planning.here"]
    where = {**environment(1), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=Path(__file__).parents[1], env=where, capture_output=True, text=True, check=True)
    return _text([Row(**row) for row in json.loads(done.stdout.splitlines()[-1])])


@dataclass(frozen=True)
class Row:
    """Seconds and bytes of a program: measured, planned."""

    family: str
    name: str
    seconds: tuple[float, float]
    peak: tuple[int, int]

    @property
    def slower(self) -> float:
        """How much longer the plan says it takes."""
        return self.seconds[1] / self.seconds[0] - 1

    @property
    def larger(self) -> float:
        """How much more memory the plan says it needs."""
        return self.peak[1] / self.peak[0] - 1


def _text(rows: list[Row]) -> str:
    lines: list[str] = []
    for family in dict.fromkeys(r.family for r in rows):
        own = [r for r in rows if r.family == family]
        lines.append(f"| **{family}**: {_spread([r.slower for r in own])} | | | | | | |")
        for r in own:
            took, planned = (f"{1e3 * s:.3f}" for s in r.seconds)
            held, needed = (f"{n / 2**20:.1f}" for n in r.peak)
            lines.append(f"| {r.name} | {took} | {planned} | {r.slower:+.0%} | {held} | {needed} | {r.larger:+.0%} |")
    near = sum(abs(r.slower) <= 0.2 for r in rows)
    fitting = sum(abs(r.larger) <= 0.05 for r in rows)
    return f"""## This machine

`--on here`: the rates of memory, caches, products and elementwise functions are measured (`planner/machines/here.py`), and programs
that were not among what was measured are planned with them and run: {len(rows)} of the benchmarks, all models and training steps,
elementwise work, reductions, rearrangements and products. Because other processes use the machine as well, one thread runs, seconds are
those of the processor, and rates and times are the best of {ROUNDS} rounds, each of which measures the machine and all programs. Memory
is the arguments and what Python and NumPy allocate in a call.

Time: **{_spread([r.slower for r in rows])}**; {near} of {len(rows)} within 20 %.
Peak memory: **{_spread([r.larger for r in rows])}**; {fitting} of {len(rows)} within 5 %.

| program | measured, ms | planned, ms | error | peak, MiB | planned, MiB | error |
|---|---|---|---|---|---|---|
{chr(10).join(lines)}

What the model does not know: how full the caches are when a kernel begins; numbers that are slow to compute with; what Python takes
between kernels beyond the measured call.
"""


def _spread(errors: list[float]) -> str:
    sizes = [abs(e) for e in errors]
    return f"median error {statistics.median(sizes):.0%}, worst {max(sizes):.0%}"


def _programs() -> Iterator[Program]:
    """All programs: made, and called often enough for their memory to be there."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from registry import CASES

    importlib.import_module("planning.own_kinds")
    from planning.own_programs import CASES as OWN_CASES

    for name, make in OWN_CASES.items():
        f, args = make()
        yield _watched(OWN, name, lambda f=f, args=args: partial(jax.jit(f), *args))
    for module in FAMILIES:
        importlib.import_module(module)
    for case in CASES.values():
        if case.family not in SKIPPED:
            yield _watched(case.family, case.name, lambda case=case: case.prepare(jax, jnp, np))


def _watched(family: str, name: str, prepare: Callable[[], Callable[[], Any]]) -> Program:
    """A program with what the engine compiles for a call of it."""
    from shardwise import block_until_ready
    from shardwise.engine.compile import observe_programs
    from shardwise.runtime.machine import settle_drafts

    counts: list[list[Any]] = []

    def watch(executable: Any, _: Any) -> Any:
        entry, run = [executable, 0], executable.call
        counts.append(entry)

        def call(args: Any) -> Any:
            entry[1] += 1
            return run(args)

        return call

    with observe_programs(watch):
        call = prepare()
        block_until_ready(call())
        before = [n for _, n in counts]
        block_until_ready(call())
        settle_drafts()
    runs = [(executable, n - b) for (executable, n), b in zip(counts, before, strict=True) if n > b]
    return Program(family, name, call, runs)


def _time(program: Program) -> None:
    """Measure for a while, and keep the least seconds of the processor: other processes use the machine as well."""
    from shardwise import block_until_ready

    end = time.perf_counter() + SECONDS
    while True:
        begin = time.process_time()
        block_until_ready(program.call())
        program.seconds = min(program.seconds, time.process_time() - begin)
        if time.perf_counter() > end:
            return


def _held(program: Program) -> int:
    """What a call allocates at most, in bytes; Python's own objects, a few kilobytes, included."""
    from shardwise import block_until_ready
    from shardwise.runtime.memory import pool

    found: list[int] = []
    for _ in range(3):
        gc.collect()
        pool.trim(0)
        tracemalloc.start()
        block_until_ready(program.call())
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return sorted(found)[1]


def _row(program: Program, machine: Any) -> Row:
    """What was measured of a program, beside its plan."""
    from shardwise.planner import HERE, device_program_of, make_plan

    plans = [
        (make_plan(device_program_of(executable, HERE, together=True), machine), runs)
        for executable, runs in program.executables
    ]
    largest = max((plan for plan, _ in plans), key=lambda plan: plan.peak)
    held = _held(program) + largest.arguments
    planned = sum(runs * plan.seconds.likely for plan, runs in plans)
    return Row(program.family, program.name, (program.seconds, planned), (held, largest.peak))


def main() -> None:
    """In the child: rows as JSON."""
    from shardwise import alias
    from shardwise.planner.machines import here

    alias.install()
    programs: list[Program] = []
    for program in _programs():
        if program.executables:
            programs.append(program)
        else:  # single ops, which `jit` has not compiled
            print(f"{program.name} runs no compiled program", file=sys.stderr)
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for rate, value in here.measure(time.process_time).items():
            better = min if here.is_seconds(rate) else max
            best[rate] = better(value, best.get(rate, value))
        for program in programs:
            _time(program)
    machine = here.machine_of(best)
    print(json.dumps([vars(_row(p, machine)) for p in programs]))


if __name__ == "__main__":
    main()
