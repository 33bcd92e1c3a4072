"""What a program will exchange with other processes, in words and as a number that is equal for equal programs.

Comes in: a Plan over several processes. Goes out: its `run`, which first meets the other processes and compares numbers with
them where the program has collectives between processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardwise.ir import Equation, Program, source_text, subprograms
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan, Run, kernel_of
from shardwise.runtime.processes.comm import Meeting, number_of, the_world

_SHOWN = 3  # collectives that an error shows


def exchange_axes(eqn: Equation) -> tuple[str, ...]:
    """The mesh axes between whose devices the equation moves data."""
    if eqn.op.across is None:
        return ()
    return eqn.params.get("sum_axes", ()) if eqn.op.absorbs_sum else eqn.params["axes"]


def collectives(program: Program, crossing: frozenset[str]) -> Iterator[tuple[str, str]]:
    """For each equation that exchanges between processes, inner programs included: what is done, and the source line."""
    for eqn in program.equations:
        if crossing.intersection(exchange_axes(eqn)):
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
    crossing = {env.axis_names[a] for a in env.processes.crossing()}
    for eqn in program.equations:
        if crossing.intersection(exchange_axes(eqn)):
            yield Exchange(eqn, getattr(kernel_of(eqn, env), "sent", 0), times, endless)
        for _, sub in subprograms(eqn.params):
            length = eqn.params.get("length")
            yield from exchanges(sub, env, times * (length or 1), endless or length is None)


def announced(plan: Any, name: str) -> Run:
    """`plan.run`, after the processes have agreed that all are about to run it."""
    if not isinstance(plan, Plan):
        raise NotImplementedError(
            "stepped execution runs the devices of one process one after the other; with several processes switch "
            "shardwise_stepped off, or run the program as one process with as many virtual devices."
        )
    owners = plan.env.processes
    assert owners is not None
    crossing = frozenset(plan.env.axis_names[a] for a in owners.crossing())
    found = list(collectives(plan.program, crossing))
    if not found:
        return plan.run
    number = number_of("\n".join([name, str(owners.shape), *[text for text, _ in found]]))
    shown = [f"{text} from {source}" if source else text for text, source in found[:_SHOWN]]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    words = f"{name} with {'; '.join(shown)}{more}"
    early = _begins_with_all(plan, owners.ranks, crossing)
    run, exchange = plan.run, Meeting(the_world(), owners.ranks, number, lambda: words, early).exchange
    return lambda *blocks: exchange(run, blocks)


def _begins_with_all(plan: Plan, ranks: tuple[int, ...], crossing: frozenset[str]) -> bool:
    """Whether the first exchange of a plan is one of all its processes, which nothing can pass by."""
    for eqn in plan.program.equations:
        if crossing.intersection(exchange_axes(eqn)):
            return getattr(kernel_of(eqn, plan.env), "ranks", ()) == ranks
        if eqn.op.effects or any(collectives(sub, crossing) for _, sub in subprograms(eqn.params)):
            return False
    return False
