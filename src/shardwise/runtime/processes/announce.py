"""A program over several processes as a number that is equal for equal programs, and in words.

Comes in: a Plan over several processes, and the per-device program of which it was made. Goes out: its `run`, which notes
the origin of its next computation and, where the program has collectives between processes, first compares it with the others'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray
from shardwise.ir import Equation, Program, rounds_of, source_text, subprograms
from shardwise.ir.digest import ProgramDigest
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan, kernel_of
from shardwise.runtime.processes.comm import the_world
from shardwise.runtime.processes.divergence import Evidence
from shardwise.runtime.processes.meeting import Meeting
from shardwise.runtime.processes.origin import MASK, SharedProgram, history, number_of
from shardwise.runtime.processes.vouch import checksum, describe_value

_SHOWN = 3  # collectives that an error shows
_LINES = 4096  # equations that processes compare once they know that their programs differ

Run = Callable[..., tuple[Ndarray, ...]]


def collectives(program: Program, crossing: frozenset[str]) -> Iterator[tuple[str, str]]:
    """For each equation that exchanges between processes, inner programs included: what is done, and the source line."""
    for eqn in program.equations:
        if crossing.intersection(eqn.op.exchange_axes(eqn.params)):
            types = ", ".join(a.aval.str_short() for a in eqn.inputs)
            params = ", ".join(f"{k}={v}" for k, v in sorted(eqn.params.items()))
            yield f"{eqn.op.name}[{params}]({types})", source_text(eqn.source) if eqn.source else ""
        for _, sub in subprograms(eqn.params):
            yield from collectives(sub, crossing)


@dataclass(frozen=True)
class Exchange:
    """An equation that moves data between processes: how many bytes this process sends in it."""

    equation: Equation
    bytes: int
    times: int  # how often it runs
    endless: bool  # in a while loop or a branch: `times` is a guess


def exchanges(program: Program, env: Env, times: int = 1, endless: bool = False) -> Iterator[Exchange]:
    """Each exchange between processes of a program whose grid `env` describes, inner programs included."""
    assert env.processes is not None
    crossing = crossing_axes(env)
    for eqn in program.equations:
        if crossing.intersection(eqn.op.exchange_axes(eqn.params)):
            yield Exchange(eqn, getattr(kernel_of(eqn, env), "sent", 0), times, endless)
        rounds = rounds_of(eqn)
        for _, sub in subprograms(eqn.params):
            yield from exchanges(sub, env, times * (rounds or 1), endless or rounds is None)


def crossing_axes(env: Env) -> frozenset[str]:
    """The axes that lie across processes."""
    return frozenset() if env.processes is None else frozenset(env.axis_names[a] for a in env.processes.crossing_axes())


class AnnouncedProgram:
    """A program of several processes, `ranks`, that tells the others what it computes.

    `labels` are the names of its arguments; the first `constants` never change. At the positions `hosts` each process brings a value of
    its own; they must be equal. `layouts` says how the results lie.
    """

    def __init__(
        self,
        plan: Any,
        ranks: tuple[int, ...],
        program: Program,
        name: str,
        labels: Sequence[str],
        constants: int,
        hosts: Sequence[int],
        layouts: str,
    ) -> None:
        if not isinstance(plan, Plan):
            raise NotImplementedError(
                "stepped execution runs the devices of one process one after the other; with several processes switch "
                "shardwise_stepped off, or run the program as one process with as many virtual devices."
            )
        self._program = program
        self._name = name
        self._crossing = crossing_axes(plan.env)
        self._labels = [
            labels[i] if i < len(labels) and labels[i] else f"argument {i}" for i in range(len(program.inputs))
        ]
        self._constants = constants
        self._kept: dict[int, int] = {}
        self._hosts = frozenset(hosts)
        self._values: dict[int, Ndarray] = {}  # what the present call was given
        self._terms: tuple[int, ...] = ()  # of what the origin of its results is made
        self._checks = bool(config.shardwise_check_replicas)
        digest = ProgramDigest(program, self._exchanges)
        found = list(collectives(plan.program, self._crossing))
        order = _order(plan.program, digest, self._exchanges)
        parts = [config.dialect.name, str(plan.env.axis_sizes), digest.whole.hex(), layouts, *order]
        self.number = number_of("\n".join(parts))
        line = next((source_text(e.source) for e in program.equations if e.source), "")
        self.told = SharedProgram(ranks, name, self.number, line)
        self.run: Run = plan.run
        self.meeting: Meeting | None = None  # what does not exchange needs none
        if found:
            texts = [f"{text} from {source}" if source else text for text, source in found[:_SHOWN]]
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            words = f"{name} with {'; '.join(texts)}{more}"
            early = _begins_with_all(plan, ranks, self._crossing)
            self.meeting = Meeting(the_world(), ranks, 0, lambda: words, early, self._evidence)
            self.run = self._run_when_met(self.meeting, plan.run)

    def _exchanges(self, eqn: Equation) -> bool:
        return bool(self._crossing.intersection(eqn.op.exchange_axes(eqn.params)))

    def value_number(self, i: int) -> Callable[[Ndarray], int]:
        """A number that identifies the value of an argument that this process brings itself."""

        def look(value: Ndarray) -> int:
            if self.meeting is not None:
                self._values[i] = value
            if value.nbytes > 8:
                return checksum(value)
            bits = int.from_bytes(value.tobytes(), "little")  # the type is known to be the same
            return hash((bits & 0xFFFFFFFF, bits >> 32)) & MASK

        def look_once(value: Ndarray) -> int:
            found = self._kept.get(i)
            if found is None:
                found = self._kept[i] = look(value)
            return found

        if not self._checks:
            return lambda value: 0
        return look_once if i < self._constants else look

    def _run_when_met(self, meeting: Meeting, run: Callable[..., tuple[Ndarray, ...]]) -> Run:
        """`run` once the processes have agreed. It takes the origin of its results, the numbers of which that is made (the program's and
        one for each argument), and blocks."""
        turn, exchange, values = meeting.world.turn, meeting.exchange, self._values

        def run_met(number: int, terms: tuple[int, ...], *blocks: Ndarray) -> tuple[Ndarray, ...]:
            with turn:  # the number is that of this call
                meeting.number = number
                self._terms = terms
                return exchange(run, blocks)

        def met_with_values(number: int, terms: tuple[int, ...], *blocks: Ndarray) -> tuple[Ndarray, ...]:
            try:
                return run_met(number, terms, *blocks)
            finally:
                values.clear()

        return met_with_values if self._hosts else run_met

    def _evidence(self) -> Evidence:
        """The program, the arguments and the recent past of this process, for an error."""
        digest = ProgramDigest(self._program, self._exchanges)
        lines = []
        for number, eqn in digest.equations[:_LINES]:
            source = source_text(eqn.source)
            lines.append((number, f"{eqn!r} from {source}" if source else repr(eqn)))
        arguments = []
        for i, (label, term) in enumerate(zip(self._labels, self._terms[1:], strict=False)):
            if i in self._hosts:
                label = f"{label}: {describe_value(self._values[i], term)}" if i in self._values else label
            arguments.append((term, label, i in self._hosts))
        return Evidence(self.number, lines, arguments, history.recent())


def _order(program: Program, digest: ProgramDigest, exchanges: Callable[[Equation], bool]) -> Iterator[str]:
    """The exchanges between processes of a scheduled program, in order, as the digest of its unscheduled form knows them."""
    known = {v: own for own, eqn in digest.sequence for v in eqn.outputs}
    for eqn in program.equations:
        inner = any(any(True for _ in _order(sub, digest, exchanges)) for _, sub in subprograms(eqn.params))
        if exchanges(eqn) or inner:
            found = known.get(eqn.outputs[0]) if eqn.outputs else None
            yield found.hex() if found else f"{eqn.op.name} of {[a.aval.str_short() for a in eqn.inputs]}"


def _begins_with_all(plan: Plan, ranks: tuple[int, ...], crossing: frozenset[str]) -> bool:
    """Whether the first exchange of a plan is one of all its processes, which nothing can pass by."""
    for eqn in plan.program.equations:
        if crossing.intersection(eqn.op.exchange_axes(eqn.params)):
            return getattr(kernel_of(eqn, plan.env), "ranks", ()) == ranks
        if eqn.op.effects or any(True for _, sub in subprograms(eqn.params) for _ in collectives(sub, crossing)):
            return False
    return False
