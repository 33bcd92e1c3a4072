"""A run on this machine that is watched: which programs it compiles, how often it calls them, and on demand how long each kernel takes.

In: the run of a program. Out: `OwnRun.plans`: what the planner says of each program as this process runs it, beside what was measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from types import FrameType
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.engine.array import ArrayImpl
from shardwise.engine.compile import observe_programs
from shardwise.engine.executable import Executable
from shardwise.ir import Literal
from shardwise.planner import HERE, Machine, Plan, device_program_of, is_view, make_plan, product_flops_of
from shardwise.planner.machines import find
from shardwise.runtime.plan import Plan as Code
from shardwise.runtime.plan import equation_lines

_Call = Callable[[Sequence[ArrayImpl | Literal]], list[ArrayImpl]]


@dataclass(slots=True)
class WatchedProgram:
    """A compiled program of the run.

    Attributes:
        executable: the program that the engine runs.
        names: the arguments' paths.
        calls: how often it was called.
        seconds: of the quickest call, if calls are measured; the first one, which prepares kernels, counts only if it is the only one.
        kernels: in that call the seconds of each equation, by its number.
    """

    executable: Executable
    names: tuple[str, ...]
    calls: int = 0
    seconds: float = float("inf")
    kernels: dict[int, float] = field(default_factory=dict[int, float])

    def work(self) -> float:
        """FLOPs of products, and bytes of arguments and results: programs with more of it are shown first."""
        program = self.executable.program
        return product_flops_of(program) + sum(t.nbytes for t in (*program.in_types, *program.out_types))


class OwnRun:
    """The record of a run on this machine.

    Attributes:
        measure: whether calls are timed, kernel by kernel. That slows small programs down.
        programs: those that the user compiled by `jit`.
    """

    def __init__(self, measure: bool = False) -> None:
        self.measure = measure
        self.programs: list[WatchedProgram] = []

    def watch(self, executable: Executable, names: Sequence[str]) -> _Call:
        """`executable.call` that counts, and measures if that is asked for."""
        program = WatchedProgram(executable, tuple(names))
        self.programs.append(program)
        call: _Call = executable.call

        def count_call(args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
            program.calls += 1
            return _measure_call(program, call, args) if self.measure else call(args)

        return count_call

    def plans(self) -> tuple[Plan, ...]:
        """A plan for each program that was called, the one with the most work in the run first."""
        called_programs = sorted((w for w in self.programs if w.calls), key=lambda w: (-w.work() * w.calls, -w.calls))
        return tuple(map(self._plan, called_programs))

    def _plan(self, watched: WatchedProgram) -> Plan:
        executable = watched.executable
        program = device_program_of(executable, HERE, watched.names, together=True)
        notes = _notes(executable)
        plan = make_plan(program, _machine(len(executable.grid.devices)), calls=watched.calls, notes=notes)
        return replace(plan, measured=_by_task(watched), measured_seconds=watched.seconds) if watched.kernels else plan


@contextmanager
def watched_run(measure: bool = False) -> Generator[OwnRun]:
    """Watch the programs that run inside; those compiled before are not seen. With `measure` also measure them.

    >>> with jax.plan.watched_run() as run:
    ...     _ = jax.jit(lambda x: x + 1)(jnp.arange(3))
    >>> len(run.plans())
    1
    """
    run = OwnRun(measure)
    with observe_programs(run.watch):
        yield run


def _machine(devices: int) -> Machine:
    """This machine with `devices` devices, which share it."""
    machine = find("here")
    (level,) = machine.levels
    return replace(machine, levels=(replace(level, shape=(devices,)),))


def _notes(executable: Executable) -> list[str]:
    if executable.grid.processes is None:
        return []
    return [
        "the program runs on several processes: memory and time are those of one of them, without the time of what they exchange"
    ]


def _measure_call(watched: WatchedProgram, call: _Call, args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
    """One call, timed line by line. The trace function that was set before stays in force."""
    plan = watched.executable.plan
    if not isinstance(plan, Code):  # stepped: its programs have no lines
        return call(args)
    timer = _LineTimer(plan.run.__code__)
    before = sys.gettrace()
    sys.settrace(timer.enter)
    start = time.perf_counter()
    try:
        results = call(args)
    finally:
        took = time.perf_counter() - start
        sys.settrace(before)
    if took < watched.seconds or watched.calls == 2:
        watched.seconds = took
        numbers = equation_lines(plan)
        watched.kernels = {}
        for line, seconds in timer.seconds.items():
            if line in numbers:
                watched.kernels[numbers[line]] = watched.kernels.get(numbers[line], 0.0) + seconds
    return results


class _LineTimer:
    """Seconds by line of one function's code, as Python's trace function."""

    def __init__(self, code: Any) -> None:
        self.code = code
        self.seconds: dict[int, float] = {}
        self._line, self._since = 0, 0.0

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Follow the function's lines, and nothing else."""
        return self._step if frame.f_code is self.code else None

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        now = time.perf_counter()
        if self._line:
            self.seconds[self._line] = self.seconds.get(self._line, 0.0) + now - self._since
        self._line = frame.f_lineno if event == "line" else 0
        self._since = time.perf_counter()
        return self._step


def _by_task(watched: WatchedProgram) -> tuple[tuple[int, float], ...]:
    """The place of the task that stands for each equation, and its seconds: views have none."""
    equations = watched.executable.plan.program.equations
    kernels = [i for i, eqn in enumerate(equations) if eqn.outputs and not is_view(eqn)]
    return tuple((place, watched.kernels[i]) for place, i in enumerate(kernels) if i in watched.kernels)
