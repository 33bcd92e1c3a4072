"""The memory that a program needs where our own engine runs it: buffers of a pool that keeps them for others of their size.

In: a scheduled program and its groups (see `executed`). Out: `Memory`. Views take nothing; results are allocated when they are made, and
values die after their last use. A kernel writes its results over operands of their size that die with it, where its op does so; what it
needs besides within one call the op says (`Op.workspace`). A buffer that has been freed waits for a value of its size class.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Branches, Loop, Program, ShapedArray, Var, region_of
from shardwise.planner.buffers import Memory, argument_buffers, in_use, kind_of, largest, value_buffers
from shardwise.planner.result import Buffer
from shardwise.planner.span import Span
from shardwise.planner.views import root_of, roots_of
from shardwise.planner.work import DeviceProgram, Group
from shardwise.runtime import costs
from shardwise.runtime.memory import room_of


@dataclass(frozen=True, slots=True)
class _Share:
    """Whose bytes are counted: those of one device, or of all devices of a process, where one copy serves those that agree."""

    sizes: Mapping[str, int]
    together: bool

    def held(self, aval: ShapedArray) -> int:
        """The bytes of a value."""
        return self._block(aval) if self.together else aval.nbytes

    def room(self, aval: ShapedArray) -> int:
        """The size class of the buffer, which all devices of a process share."""
        return _room(self._block(aval))

    def span(self, first: int, last: int, var: Var, kind: str) -> Span:
        """The buffer of a value."""
        return Span(first, last, self.held(var.aval), var, kind, self.room(var.aval))

    def _block(self, aval: ShapedArray) -> int:
        return aval.nbytes * math.prod(self.sizes.get(a, 1) for a in aval.vma)


def _room(nbytes: int) -> int:
    """The size class of a buffer; 0 for all that the pool leaves to NumPy."""
    return room_of(nbytes) if nbytes >= costs.POOLED_FROM else 0


def pooled_memory(program: DeviceProgram, groups: Sequence[Group]) -> Memory:
    """The memory that one run of ``program.executed`` takes: of one device, or of all devices of a process together."""
    executed_program = program.executed
    assert executed_program is not None
    share, count = _Share(program.sizes, program.together), len(groups) + 1
    spans = _spans(executed_program, groups, program.donated, share)
    lasting_bytes = sum(share.held(v.aval) for i, v in enumerate(executed_program.inputs) if i not in program.donated)
    usage = _with_waiting(spans, count)
    peak = lasting_bytes + max(usage)
    roots, given = roots_of(executed_program), set(executed_program.inputs)
    lasts = given.union(root_of(a, roots) for a in executed_program.outputs)
    temporary = [s for s in spans if s.var is None or s.var not in lasts]
    buffers = [*argument_buffers(program, share.held), *_buffers(spans, groups, given, share)]
    waiting_bytes = peak - sum(b.nbytes * b.count for b in buffers)
    if waiting_bytes > 0:
        buffers.append(Buffer("freed, waits for values of its size", "temporary", waiting_bytes, ""))
    return Memory(
        arguments=sum(share.held(v.aval) for v in executed_program.inputs),
        results=sum(share.held(a.aval) for a in executed_program.outputs),
        aliased=sum(share.held(executed_program.inputs[i].aval) for i in program.donated),
        temporaries=max(_with_waiting(temporary, count)),
        buffers=tuple(sorted(buffers, key=lambda b: -b.nbytes * b.count)),
        usage=tuple(lasting_bytes + n for n in usage[:-1]),
        peak=peak,
    )


def _spans(program: Program, groups: Sequence[Group], owned: Collection[int], share: _Share) -> list[Span]:
    """The buffers of one run, those of the inputs `owned` included; results last until behind the last group."""
    roots, end = roots_of(program), len(groups)
    last = {v: g for g, group in enumerate(groups) for v in (*group.writes, *group.reads) if isinstance(v, Var)}
    results = {r for a in program.outputs if isinstance(r := root_of(a, roots), Var)}
    last.update(dict.fromkeys(results, end))
    inputs = [program.inputs[i] for i in owned]
    open_spans = {v: share.span(0, last.get(v, 0), v, "argument") for v in inputs}
    spans = list(open_spans.values())
    for g, group in enumerate(groups):
        taken_homes: set[Var] = set()
        for var in group.writes:
            free = (v for v in group.over.get(var, ()) if last.get(v) == g and v in open_spans and v not in taken_homes)
            source = next(free, None)
            if source is not None:
                taken_homes.add(source)
                open_spans[source].last = g - 1
            span = share.span(g, last.get(var, g), var, "result" if var in results else kind_of(group, var))
            spans.append(span)
            open_spans[var] = span
        spans += [Span(g, g, nbytes, None, room=_room(nbytes)) for nbytes in group.buffers if nbytes]
        body = _largest_body(group, share)
        if body is not None:
            spans += [Span(g, g, nbytes, None, room=room) for room, nbytes in body.needs(share).items() if nbytes]
    return spans


@dataclass(frozen=True, slots=True)
class _Body:
    """A trip of a loop, or a branch.

    Attributes:
        program, groups: of it.
        owned: its inputs that die with it.
        outside: the types of values that the caller counts.
    """

    program: Program
    groups: Sequence[Group]
    owned: Sequence[int]
    outside: Sequence[ShapedArray]

    def needs(self, share: _Share) -> dict[int, int]:
        """By size class the bytes that it needs beside the operands and results of the equation."""
        spans, count = _spans(self.program, self.groups, self.owned, share), len(self.groups) + 1
        needed_bytes = Counter({room: max(in_use(part, count)) for room, part in _by_room(spans).items()})
        for aval in self.outside:
            needed_bytes[share.room(aval)] -= share.held(aval)
        return {room: max(nbytes, 0) for room, nbytes in needed_bytes.items()}


def _largest_body(group: Group, share: _Share) -> _Body | None:
    """The trip of a loop, or the branch that needs most; None for other groups, and for loops that run no kernel."""
    if not group.body:
        return None
    region = region_of(group.equations[-1])
    if isinstance(region, Loop):
        carried_places = range(region.num_consts, region.num_consts + region.num_carry)
        return _Body(region.body, group.body, carried_places, [region.body.inputs[i].aval for i in carried_places])
    assert isinstance(region, Branches)
    outside = [v.aval for v in group.writes]
    bodies = [_Body(p, body, (), outside) for p, body in zip(region.programs, group.branches, strict=True)]
    return max(bodies, key=lambda body: sum(body.needs(share).values()))


def _by_room(spans: Sequence[Span]) -> dict[int, list[Span]]:
    spans_by_room: dict[int, list[Span]] = {}
    for span in spans:
        spans_by_room.setdefault(span.room, []).append(span)
    return spans_by_room


def _with_waiting(spans: Sequence[Span], count: int) -> list[int]:
    """Bytes in use at each place, and of the buffers that wait: of each size class the most that has been in use so far."""
    usage = [0] * count
    for part in _by_room(spans).values():
        most = 0
        for g, now in enumerate(in_use(part, count)):
            most = max(most, now)
            usage[g] += most
    return usage


def _buffers(spans: Sequence[Span], groups: Sequence[Group], given: Collection[Var], share: _Share) -> Iterator[Buffer]:
    """The buffers in use where most are, but for `given` values: those of a loop's body as well."""
    at = largest(in_use(spans, len(groups) + 1))
    yield from value_buffers([s for s in spans if s.first <= at <= s.last and s.var not in given], groups)
    if at == len(groups):
        return
    group = groups[at]
    eqn = group.equations[-1]
    place = eqn.source.place if eqn.source else None
    yield from (Buffer(f"workspace of {eqn.op.name}", "temporary", n, "", source=place) for n in group.buffers if n)
    body = _largest_body(group, share)
    if body is not None:
        spans = _spans(body.program, body.groups, body.owned, share)
        yield from _buffers(spans, body.groups, set(body.program.inputs), share)
