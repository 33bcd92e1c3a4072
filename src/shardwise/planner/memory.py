"""Memory: the buffers of a device while it runs its groups, and their peak in bytes.

Arguments and results are allocated all the time; results in the memory of donated arguments take none of their own. A temporary lives
from the group that writes it to the last that reads it. A kernel writes over an operand of its result's size that dies with it; so
does an update in place. The carry of a loop stays in place; stacked results are written, and stacked operands read, entry by entry in
place, except operands that go to another device.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Atom, Branches, Loop, Program, ShapedArray, Var, is_update, region_of
from shardwise.planner.buffers import (
    HostMemory,
    Memory,
    argument_buffers,
    in_use,
    kind_of,
    largest,
    value_buffers,
    value_text,
)
from shardwise.planner.host import waiting_bytes
from shardwise.planner.near import far_from_chip
from shardwise.planner.padding import stored_bytes
from shardwise.planner.pooled import pooled_memory
from shardwise.planner.result import Buffer
from shardwise.planner.roles import memory_kind_of
from shardwise.planner.rooms import Room, without_room
from shardwise.planner.span import Span
from shardwise.planner.target import Target
from shardwise.planner.values import Values, fetched_rows, rows_of, values_of
from shardwise.planner.work import DeviceProgram, Group


@dataclass(slots=True)
class Frame:
    """A program and the values in it that need no temporary of their own.

    Attributes:
        values: of the program.
        fixed: values that lie in memory given from outside: arguments, constants and carries of a loop.
        homes: results to the input whose memory they take, None where they have memory of their own from the start.
        entries: results of a loop's body that are written into stacked arrays.
        spans: the temporaries of orders of its groups, by identity of these.
    """

    values: Values
    fixed: set[Var]
    homes: dict[Var, Var | None] = field(default_factory=dict[Var, Var | None])
    entries: set[Var] = field(default_factory=set[Var])
    spans: dict[int, tuple[Sequence[Group], list[Span]]] = field(
        default_factory=dict[int, tuple[Sequence[Group], list[Span]]]
    )


def memory_of(program: DeviceProgram, groups: Sequence[Group], target: Target, frame: Frame | None = None) -> Memory:
    """The memory per device of `program`, whose frame is `frame`, run as `groups`."""
    if target.pooled and program.executed is not None:
        return pooled_memory(program, groups)
    frame = frame or program_frame(program, target)
    inputs, outputs = program.program.inputs, frame.values.outputs
    homes = donated_homes(program, outputs)
    spans = _spans(frame, groups, target)
    usage = in_use(spans, len(groups))
    away, outside = program.host_inputs, program.host_outputs
    host = HostMemory(
        sum(inputs[i].aval.nbytes for i in away),
        sum(outputs[i].aval.nbytes for i in outside),
        sum(home.aval.nbytes for i in outside if (home := homes[i]) is not None),
        waiting_bytes(frame.values, groups, target, {*inputs, *[outputs[i] for i in outside]}),
    )
    results = [(a, h) for i, (a, h) in enumerate(zip(outputs, homes, strict=True)) if i not in outside]
    aliased_bytes = sum(home.aval.nbytes for _, home in results if home is not None)
    arguments = sum(v.aval.nbytes for v in inputs) - host.arguments
    own = sum(stored_bytes(a.aval, target, given=True) for a, home in results if home is None)
    addresses = 8 * len(outputs) if target.pointers and len(outputs) > 1 else 0
    own += addresses
    buffers = _buffers_at(spans, largest(usage), groups, target, frame) + _argument_buffers(
        program, outputs, homes, target
    )
    if addresses:
        buffers += (Buffer("addresses of results", "result", addresses, ""),)
    temporaries = max(usage, default=0)
    return Memory(
        arguments,
        own + aliased_bytes,
        aliased_bytes,
        temporaries,
        tuple(sorted(buffers, key=lambda b: -b.nbytes * b.count)),
        tuple(arguments + own + n for n in usage),
        arguments + own + temporaries,
        host,
    )


def temporaries_of(frame: Frame, groups: Sequence[Group], target: Target) -> int:
    """The peak bytes of temporaries."""
    return max(in_use(_spans(frame, groups, target), len(groups)), default=0)


def program_frame(program: DeviceProgram, target: Target, values: Values | None = None) -> Frame:
    """The frame of a whole program: its results lie in memory of their own, or in that of donated arguments.

    `values` are those of the program as the target rewrites it.
    """
    values = values or values_of(program.program, target, hosted=program.hosted)
    frame = Frame(values, set(program.program.inputs))
    for i, (out, home) in enumerate(zip(values.outputs, donated_homes(program, values.outputs), strict=True)):
        if isinstance(out, Var) and out not in frame.fixed and i not in program.host_outputs:
            frame.homes.setdefault(out, home)
    return frame


def loop_frame(loop: Loop, target: Target, fetched: tuple[Var, ...] = ()) -> Frame:
    """The frame of a loop's body: the next carry takes the carry's memory, entries of stacked results that of the stack."""
    values = values_of(loop.body, target, rows_of(loop), fetched)
    frame = Frame(values, {v for v in loop.body.inputs if v not in values.rows})
    carried_vars = loop.body.inputs[loop.num_consts : loop.num_consts + loop.num_carry]
    for out, home in zip(values.outputs, carried_vars, strict=False):
        if isinstance(out, Var) and out is not home and out not in frame.fixed:
            frame.homes[out] = home
    frame.entries = {a for a in values.outputs[loop.num_carry :] if isinstance(a, Var)}
    return frame


def carry_copy_bytes(frame: Frame, loop: Loop, groups: Sequence[Group]) -> int:
    """The bytes of the next carries that a trip computes outside the memory of the carries."""
    makers = {v: g for g, group in enumerate(groups) for v in group.writes}
    _, last = _readers(groups)
    carried_vars = loop.body.inputs[loop.num_consts : loop.num_consts + loop.num_carry]
    total = 0
    for out, home in zip(frame.values.outputs, carried_vars, strict=False):
        if not isinstance(out, Var) or out is home:
            continue
        g = makers.get(out)
        if g is None or frame.homes.get(out) is not home or not _needs_no_buffer(out, g, groups[g], frame, last):
            total += out.aval.nbytes
    return total


def frames_of(group: Group, target: Target, host: AbstractSet[Atom]) -> tuple[Frame, ...]:
    """The frames of the body of a loop, or of those of branches; `host` are values in the host's memory."""
    region = region_of(group.equations[-1])
    if isinstance(region, Loop):
        return (loop_frame(region, target, fetched_rows(group.equations[-1], host)),)
    assert isinstance(region, Branches)
    return tuple(branch_frame(p, target) for p in region.programs)


def branch_frame(program: Program, target: Target) -> Frame:
    """The frame of a branch: its results take the memory of the conditional's results."""
    frame = Frame(values_of(program, target), set(program.inputs))
    frame.homes = {out: None for out in frame.values.outputs if isinstance(out, Var) and out not in frame.fixed}
    return frame


def donated_homes(program: DeviceProgram, outputs: Sequence[Atom]) -> tuple[Var | None, ...]:
    """For each result the donated argument whose memory it takes: the first free one of its type, layout and memory."""
    free: dict[object, list[Var]] = {}
    for i in reversed(program.donated):
        var = program.program.inputs[i]
        free.setdefault((var.aval.shape, var.aval.dtype, program.in_dims[i], i in program.host_inputs), []).append(var)
    homes: list[Var | None] = []
    for i, (out, dims) in enumerate(zip(outputs, program.out_dims, strict=True)):
        waiting_homes = free.get((out.aval.shape, out.aval.dtype, dims, i in program.host_outputs))
        homes.append(waiting_homes.pop() if waiting_homes else None)
    return tuple(homes)


def _spans(frame: Frame, groups: Sequence[Group], target: Target) -> list[Span]:
    """The temporaries of one program, cached per order."""
    known_spans = frame.spans.get(id(groups))
    if known_spans is None:
        known_spans = frame.spans[id(groups)] = groups, _found_spans(frame, groups, target)
    return known_spans[1]


def _found_spans(frame: Frame, groups: Sequence[Group], target: Target) -> list[Span]:
    first, last = _readers(groups)
    starts = _asynchronous(groups, first, last)
    spans: list[Span] = []
    open_spans: dict[Var, Span] = {}
    for var in frame.values.program.inputs if frame.values.rows else ():
        if var in frame.values.rows and var in frame.values.stored and var in last:
            spans.append(Span(first[var], last[var], stored_bytes(var.aval, target), var))
    homes, entries, host = frame.homes, frame.entries, frame.values.host
    bytes_by_type: dict[ShapedArray, int] = {}
    rooms: list[Room] = []
    for g, group in enumerate(groups):
        taken_homes: set[Var] = set()
        before = len(spans)
        for var in group.writes:
            is_kept = var in homes or var in entries
            if (is_kept or var in host) and _needs_no_buffer(var, g, group, frame, last):
                if is_kept and var not in host and homes.get(var, var) is None:
                    source = _overwritten_operand(group, var, g, last, open_spans, taken_homes)
                    room = Room(stored_bytes(var.aval, target, given=True), starts.get(g, g) - 1)
                    if source is not None:
                        taken_homes.add(source)
                        room.heir = open_spans.pop(source)
                    rooms.append(room)
                continue
            kind = kind_of(group, var) if group.kind == "loop" else "temporary"
            nbytes = bytes_by_type.get(var.aval)
            if nbytes is None:
                nbytes = bytes_by_type[var.aval] = stored_bytes(var.aval, target)
            span = Span(starts.get(g, g), last.get(var, g), nbytes, var, kind)
            if is_kept:
                span.last = max(span.last, last.get(homes.get(var) or var, g))
            source = _overwritten_operand(group, var, g, last, open_spans, taken_homes)
            if source is not None:
                taken_homes.add(source)
                before_it = open_spans.pop(source)
                if _is_one(group, var):
                    before_it.last, before_it.var, before_it.kind = span.last, var, kind
                    open_spans[var] = before_it
                    continue
                before_it.last = g - 1
            spans.append(span)
            open_spans[var] = span
        scratch = group.scratch + (_fetched_bytes(group, frame) if host else 0)
        if target.exchange_copies and group.kind == "collective":
            scratch += _copies(group, g, last, open_spans, len(spans) - before)
        if scratch:
            spans.append(Span(g, g, scratch, None))
    end = len(groups) - 1
    for span in spans:
        if span.last > end:
            span.last = end
    if target.near_bytes:
        spans = far_from_chip(spans, groups, target)
    return without_room(spans, rooms) if rooms else spans


def _readers(groups: Sequence[Group]) -> tuple[dict[Var, int], dict[Var, int]]:
    """The first and the last group that reads each value."""
    first: dict[Var, int] = {}
    last: dict[Var, int] = {}
    for g, group in enumerate(groups):
        for var in group.reads:
            if isinstance(var, Var):
                last[var] = g
                if var not in first:
                    first[var] = g
    return first, last


def _asynchronous(groups: Sequence[Group], first: dict[Var, int], last: dict[Var, int]) -> dict[int, int]:
    """For each asynchronous collective the group before whose end it starts, if that is not its own place.

    One that has its operands in time runs beside the product before it. One whose result no product waits for runs beside the next
    product, until whose end `last` keeps its operands.
    """
    busy = [g for g, group in enumerate(groups) if group.kind in ("product", "kernel", "loop")]
    makers = {v: g for g, group in enumerate(groups) for v in group.writes}
    starts: dict[int, int] = {}
    for g, group in enumerate(groups):
        if not group.overlaps:
            continue
        at = bisect_left(busy, g)
        ready = max((makers.get(v, -1) for v in group.reads if isinstance(v, Var)), default=-1)
        if at and ready < busy[at - 1]:
            starts[g] = busy[at - 1]
        elif at < len(busy) and min((first.get(v, len(groups)) for v in group.writes), default=0) > busy[at]:
            for var in group.reads:
                if isinstance(var, Var):
                    last[var] = max(last[var], busy[at])
    return starts


def _fetched_bytes(group: Group, frame: Frame) -> int:
    """The bytes that a group fetches from the host's memory while it runs; a loop does so entry by entry."""
    if not frame.values.host or group.kind == "loop" or any(memory_kind_of(e) is not None for e in group.equations):
        return 0
    return sum(v.aval.nbytes for v in group.reads if v in frame.values.host)


def _copies(group: Group, g: int, last: dict[Var, int], open_spans: dict[Var, Span], results: int) -> int:
    """The bytes of the copies that an exchange of parts of one dim for another makes, before and after it.

    Its operand is copied into the order that is sent, and what arrives into the order of the result: two buffers besides, less the
    operand if it dies here, which is gone by then, and less the result, which comes when the first one is gone.
    """
    eqn = group.equations[-1]
    operand, out = eqn.inputs[0], eqn.outputs[0]
    if operand.aval.size != out.aval.size or operand.aval.shape == out.aval.shape:
        return 0
    dies = sum(1 for v in group.reads if isinstance(v, Var) and v in open_spans and last.get(v) == g)
    return out.aval.nbytes * max(0, 2 - min(dies, 1) - min(results, 1))


def _needs_no_buffer(var: Var, g: int, group: Group, frame: Frame, last: dict[Var, int]) -> bool:
    """Whether a group writes its result into its final memory."""
    if var in frame.values.host:
        return True
    if var in frame.entries and var not in frame.homes:
        return last.get(var, g) <= g and group.kind != "collective"
    if var not in frame.homes:
        return False
    home = frame.homes[var]
    if home is None:
        return True
    last_use = last.get(home, -1)
    return last_use < g or (last_use == g and _writes_in_place(group, home, var))


def _overwritten_operand(
    group: Group, var: Var, g: int, last: dict[Var, int], open_spans: dict[Var, Span], taken: set[Var]
) -> Var | None:
    """The operand that dies at this group and whose buffer `var` takes."""
    nbytes = var.aval.nbytes
    for read in group.reads:
        if (
            read.aval.nbytes == nbytes
            and isinstance(read, Var)
            and last.get(read) == g
            and read not in taken
            and read in open_spans
            and _writes_in_place(group, read, var)
        ):
            return read
    return None


def _writes_in_place(group: Group, operand: Var, result: Var) -> bool:
    """Whether the kernel reads an element of `operand` for the last time when it writes that of `result`."""
    if operand.aval.size != result.aval.size or operand.aval.itemsize != result.aval.itemsize:
        return False
    if group.kind == "loop":
        region = region_of(group.equations[-1])
        return isinstance(region, Loop) and result in group.equations[-1].outputs[: region.num_carry]
    if group.kind in ("collective", "kernel", "other") or operand in group.moved:
        eqn = group.equations[-1]
        return eqn.op.arranges and (operand, result) in zip(eqn.inputs, eqn.outputs, strict=False)
    return True


def _is_one(group: Group, result: Var) -> bool:
    """Whether a result shares the buffer of its operand: a loop's carry does, and so does a value updated in part."""
    eqn = group.equations[-1]
    return group.kind == "loop" or (group.kind == "move" and result in eqn.outputs and is_update(eqn))


def _buffers_at(
    spans: Sequence[Span], at: int, groups: Sequence[Group], target: Target, frame: Frame
) -> tuple[Buffer, ...]:
    """The buffers in use while group `at` runs; those alike are one with a count."""
    alive = [s for s in spans if s.first <= at <= s.last]
    scratch = [_scratch_buffers(groups[at], s.nbytes, target, frame) for s in alive if s.var is None]
    return value_buffers(alive, groups) + tuple(b for buffers in scratch for b in buffers)


def _scratch_buffers(group: Group, nbytes: int, target: Target, outer: Frame) -> tuple[Buffer, ...]:
    """The temporary memory of a group: buffers of a loop's body, or the parts of a ring."""
    eqn = group.equations[-1]
    place = eqn.source.place if eqn.source else None
    if not group.body:
        return (Buffer(f"parts of {eqn.op.name}", "temporary", nbytes, "", source=place),)
    frames = frames_of(group, target, outer.values.host)
    for frame, body in zip(frames, group.branches or (group.body,), strict=True):
        spans = _spans(frame, body, target)
        usage = in_use(spans, len(body))
        if max(usage, default=0) == nbytes:
            return _buffers_at(spans, largest(usage), body, target, frame)
    return (Buffer(f"body of {eqn.op.name}", "temporary", nbytes, "", source=place),)


def _argument_buffers(
    program: DeviceProgram, outputs: Sequence[Atom], homes: Sequence[Var | None], target: Target
) -> tuple[Buffer, ...]:
    """The buffers of arguments, and of results that have their own."""
    results = [
        Buffer(f"result[{i}]", "result", stored_bytes(out.aval, target, given=True), value_text(out), dims)
        for i, (out, dims, home) in enumerate(zip(outputs, program.out_dims, homes, strict=True))
        if home is None and i not in program.host_outputs
    ]
    return (*argument_buffers(program, lambda aval: aval.nbytes), *results)
