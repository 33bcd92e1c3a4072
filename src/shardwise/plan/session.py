"""A planned run: programs run without data on the devices of a machine that one does not have.

In: the machine's name. Out: `Run`, which knows each compiled program, how often it was called, and what was read of values that
nobody computed; `Run.plans` says what the programs need there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.engine.data_free import DataFree
from shardwise.engine.planned import install_recorder, recorder
from shardwise.ir import Op, calls_user, source_text
from shardwise.ir.program import Source
from shardwise.ir.sources import user_source
from shardwise.planner import Machine, Plan, client_of, device_program_of, for_chip, make_plan, product_flops_of
from shardwise.planner.machines import find
from shardwise.sharding.backend import backend, backend_initialized, install_client

READ = ("zeros", "raise", "compute")
LEAST_WORK = 1e6  # FLOPs and bytes of a step: helpers that programs call between their steps have less
HELPER_CALLS = 100_000  # of such a helper, without a step: seconds of a run that would have no end otherwise
MANY_CALLS = 10_000  # of the largest program in a run without `steps`: it may wait for a value that nobody computes
LONG = 60.0  # seconds of such a run, in which the largest program is called again and again


class ValueUnknownError(RuntimeError):
    """A planned run reads a value that only a real run computes."""


class StepsDone(BaseException):
    """Ends a planned run after as many steps as were asked for. No error: `except Exception` lets it pass."""


@dataclass(slots=True)
class CalledFunction:
    """A function compiled for arguments of some types.

    Attributes:
        work: FLOPs of its products, and bytes of its arguments and results, on all devices.
        calls: how often it was called.
        layouts: the calls of each compiled form, which differ in how the arguments lie.
    """

    work: float
    calls: int = 0
    layouts: dict[DataFree, int] = field(default_factory=dict[DataFree, int])

    @property
    def executable(self) -> DataFree:
        """The most called one, the last of several: a first step's arguments often lie otherwise than its results."""
        return max(reversed(self.layouts), key=lambda e: self.layouts[e])


class Run:
    """The record of a planned run.

    Attributes:
        machine: the target.
        read: 'zeros', 'raise' or 'compute': what reading a value does.
        steps: the number of calls of the largest program after which the run ends; None: it runs to its end.
        programs: those that the user compiled by `jit`, by name and types.
        single_ops: calls of ops outside of `jit`.
        last_read: the line that read a value without data last; '' if none did.
    """

    def __init__(self, machine: Machine, read: str = "zeros", steps: int | None = None) -> None:
        if read not in READ:
            raise ValueError(
                f"read={read!r}: give 'zeros' (values read as zeros), 'raise' (reading one is an error) or 'compute' (programs run here)."
            )
        if steps is not None and steps < 1:
            raise ValueError(f"steps={steps}: a run ends after at least one step.")
        self.machine = machine
        self.read_mode = read
        self.steps = steps
        self.programs: dict[Any, list[CalledFunction]] = {}
        self.single_ops = 0
        self.last_read = ""
        self._told = False  # that it may have no end
        self._first = 0.0  # when its largest program was first called
        self._by_executable: dict[DataFree, CalledFunction] = {}
        self._largest: CalledFunction | None = None
        self._notes: dict[tuple[Source | None, str], None] = {}

    # -- what the engine tells (`engine.planned.Recorder`) ---------------------------------------------------------------------

    @property
    def computes(self) -> bool:
        """Whether programs compute, on this machine."""
        return self.read_mode == "compute"

    def note_program(self, executable: DataFree) -> None:
        """Note a program of the user's, and its parts that nobody will run."""
        silent: set[tuple[Op, int]] = set()  # ops with the ids of their params
        for eqn in executable.program.equations:
            key = (eqn.op, id(eqn.params))
            if key in silent:
                continue
            if calls_user(eqn) and not self.computes:
                self._note(eqn.source, "a callback is not called: its results are zeros")
            else:
                silent.add(key)
        if not executable.jitted:
            return
        program = executable.program
        types = [sig.aval for sig in (*executable.in_sigs, *executable.out_sigs)]
        work = product_flops_of(program) + sum(t.nbytes for t in types)
        alike = self.programs.setdefault((program.name, *[(t.shape, t.dtype) for t in types]), [])
        same_program = next((c for c in alike if _is_like(c.work, work)), None)
        if same_program is None:
            alike.append(same_program := CalledFunction(work))
        same_program.layouts[executable] = 0
        self._by_executable[executable] = same_program

    def note_call(self, executable: DataFree) -> None:
        """Count a call. The run ends before call `steps + 1` of the largest program, or after many of one that may be a helper."""
        called_program = self._by_executable.get(executable)
        if called_program is None:
            self.single_ops += 1
            return
        if self._largest is None or called_program.work > self._largest.work:
            self._largest = called_program
        if called_program is self._largest and self.steps is not None:
            last = self.steps if called_program.work >= LEAST_WORK else max(self.steps, HELPER_CALLS)
            if called_program.calls == last:
                raise StepsDone
        called_program.calls += 1
        called_program.layouts[executable] += 1
        if called_program is self._largest and self.steps is None and not (self.computes or self._told):
            self._tell_of_steps(executable.name, called_program.calls)

    def _tell_of_steps(self, name: str, calls: int) -> None:
        """Mention `steps`, once, if the run may not end."""
        if calls == 1:
            self._first = time.monotonic()
            return
        self._told = calls == MANY_CALLS or time.monotonic() - self._first > LONG
        if self._told:
            read = f" (the last at {self.last_read})" if self.last_read else ""
            print(
                f"shardwise plan: {name} was called {calls:,} times, and the run goes on. Values read as zeros{read}: a loop until a loss "
                "is small, or over steps that the program counts, may never end. --steps N (steps=N) ends the run after N calls.",
                file=sys.stderr,
            )

    def read(self, shape: Sequence[int], dtype: Any) -> None:
        """Read a value without data: zeros with a note, or an error."""
        source = user_source()
        type_text = f"{dtype.name}[{','.join(map(str, shape))}]"
        if self.read_mode == "raise":
            where = f" at {source_text(source)}" if source else ""
            raise ValueUnknownError(
                f"the program reads a value of type {type_text}{where}, and a planned run computes none. Plan with read='zeros' "
                "(--read zeros), where values read as zeros, or leave the line out of the planned run."
            )
        self.last_read = source_text(source) if source else ""
        self._note(source, f"reads {type_text}: zeros in a planned run")

    def _note(self, source: Source | None, text: str) -> None:
        self._notes.setdefault((source, text))

    # -- what came of it --------------------------------------------------------------------------------------------------------

    @property
    def notes(self) -> tuple[str, ...]:
        """The calls that the run skipped, once per line."""
        return tuple(f"{source_text(source)}: {text}" if source else text for source, text in self._notes)

    def plans(self) -> tuple[Plan, ...]:
        """A plan for each program that was called, the one with the most work in the run first; if none was, for those compiled ahead
        of time.
        """
        target = for_chip(self.machine.chip)
        return tuple(
            make_plan(device_program_of(c.executable, target), self.machine, calls=c.calls, notes=self.notes)
            for c in self._by_work()
        )

    def largest(self) -> DataFree | None:
        """The program with the most work in the run; None if none was compiled."""
        return next((c.executable for c in self._by_work()), None)

    def _by_work(self) -> list[CalledFunction]:
        compiled_programs = [c for alike in self.programs.values() for c in alike]
        called_programs = [c for c in compiled_programs if c.calls]
        return sorted(called_programs or compiled_programs, key=lambda c: (-c.work * max(c.calls, 1), -c.calls))


def _is_like(work: float, other: float) -> bool:
    """Whether two programs of one name and types are one: a first step often differs in weak types and in a few equations."""
    return abs(work - other) <= 0.1 * max(work, other)


@contextmanager
def on(machine: str | Machine, *, read: str = "zeros", steps: int | None = None) -> Generator[Run]:
    """Run programs without data on the devices of a machine that one does not have.

    Inside, ``jax.devices()`` are the machine's; arrays have types and layouts, and take no memory. Arrays made outside keep their data,
    those made inside are of no use outside.

    Args:
        machine: its name, ``v5p-256``, or a `Machine`.
        read: the effect of reading one (``float(loss)``, ``np.asarray(x)``, ``if x:``): it is zero, or it raises, or, with 'compute', it is
            right, since programs also run on this machine, which takes the time and memory that they take here.
        steps: the number of calls of the largest program after which the run ends, by `StepsDone`.

    Raises:
        ValueError: there is no such machine, or another argument is out of range.

    >>> with jax.plan.on("v5p-8") as run:
    ...     print(len(jax.devices()), jax.jit(lambda x: x @ x)(jnp.ones((64, 64))).shape)
    4 (64, 64)
    """
    machine_found = find(machine) if isinstance(machine, str) else machine
    run = Run(machine_found, read, steps)
    current = backend() if backend_initialized() else None
    outer_run = recorder()
    is_shared = isinstance(outer_run, Run) and outer_run.machine == machine_found and current is not None
    # A run around this one has the same devices.
    client = current if is_shared and current is not None else client_of(machine_found)
    before, outer = install_client(client), install_recorder(run)
    try:
        yield run
    finally:
        install_recorder(outer)
        install_client(before)
