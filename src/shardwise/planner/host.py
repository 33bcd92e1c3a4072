"""The host's memory: what a program keeps there for a device, and the most bytes of it at once.

In: values and groups. Out: bytes. What is offloaded waits there from the group that writes it to the last that reads it; arguments and
results whose sharding says so lie there all the time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shardwise.ir import Atom, Branches, Loop, Program, Var, region_of
from shardwise.planner.buffers import in_use
from shardwise.planner.roles import Role, role_of
from shardwise.planner.span import Span
from shardwise.planner.target import Target
from shardwise.planner.values import Values, fetched_rows, rows_of, values_of
from shardwise.planner.work import Group


def waiting_bytes(values: Values, groups: Sequence[Group], target: Target, given: Collection[Atom]) -> int:
    """The most bytes of offloaded values at once; `given` are values that are counted elsewhere."""
    if not _offloads(values.program, {}):
        return 0
    last = {v: g for g, group in enumerate(groups) for v in group.reads if isinstance(v, Var)}
    spans: list[Span] = []
    for g, group in enumerate(groups):
        own = [v for v in group.writes if v in values.host and v not in given]
        spans += [Span(g, last.get(v, g), v.aval.nbytes, v) for v in own]
        if group.body:
            spans.append(Span(g, g, _within(group, values, target), None))
    return max(in_use(spans, len(groups)), default=0)


def _within(group: Group, outer: Values, target: Target) -> int:
    """The bytes that wait within one trip of a loop, or in a branch."""
    eqn = group.equations[-1]
    region = region_of(eqn)
    if isinstance(region, Loop):
        inner = values_of(region.body, target, rows_of(region), fetched_rows(eqn, outer.host))
        return waiting_bytes(inner, group.body, target, inner.outputs)
    assert isinstance(region, Branches)
    inner_values = [values_of(p, target) for p in region.programs]
    return max(waiting_bytes(v, g, target, v.outputs) for v, g in zip(inner_values, group.branches, strict=True))


def _offloads(program: Program, known: dict[Program, bool]) -> bool:
    """Whether a program, or one that it runs, copies values to the host's memory."""
    if program not in known:
        unlike = {
            (e.op, id(e.params)): e for e in program.equations
        }.values()  # where a value is copied to stands in the params
        known[program] = any(role_of(e) is Role.OFFLOAD for e in unlike) or any(
            _offloads(p, known)
            for e in program.equations
            if e.op.region is not None and (region := region_of(e)) is not None
            for p in region.programs
        )
    return known[program]
