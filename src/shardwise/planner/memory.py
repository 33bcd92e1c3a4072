"""Memory: which buffers a device holds while it runs its groups, and the most bytes at once.

Arguments and results lie there all the time; results in the memory of donated arguments take none of their own. A temporary lives
from the group that writes it to the last that reads it. A kernel writes over an operand of its result's size that dies with it; so
does an update in place. The carry of a loop stays where it is, stacked results are written entry by entry where they will lie, and
entries of stacked operands are read there, but for those that go to another device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardwise.base.dtypes import short_name
from shardwise.ir import Atom, Branches, Loop, Var, region_of
from shardwise.planner.padding import stored_bytes
from shardwise.planner.result import Buffer
from shardwise.planner.target import Target
from shardwise.planner.values import Values, rows_of, values_of
from shardwise.planner.work import DeviceProgram, Group


@dataclass(frozen=True, slots=True)
class Memory:
    """What one device holds.

    Attributes:
        arguments, results: bytes; `aliased` are results in the memory of donated arguments.
        temporaries: the most bytes of temporaries at once.
        buffers: those in use then, the largest first, arguments and results included.
        usage: per group of the program the bytes in use while it runs, arguments and results included.
    """

    arguments: int
    results: int
    aliased: int
    temporaries: int
    buffers: tuple[Buffer, ...]
    usage: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The most bytes in use at once."""
        return self.arguments + self.results - self.aliased + self.temporaries


@dataclass(slots=True)
class Span:
    """A buffer from the first group that needs it to the last.

    Attributes:
        var: the value; of the memory that a loop's body needs while it runs, None, and `inner` holds its buffers.
    """

    first: int
    last: int
    nbytes: int
    var: Var | None
    kind: str = "temporary"
    inner: tuple[Buffer, ...] = ()


@dataclass(slots=True)
class _Placed:
    """Where values go that need no temporary of their own.

    Attributes:
        fixed: values that lie in memory given from outside: arguments, constants and carries of a loop.
        homes: results to the input whose memory they take, None where they have memory of their own from the start.
        entries: results of a loop's body that are written into stacked arrays.
    """

    fixed: set[Var]
    homes: dict[Var, Var | None] = field(default_factory=dict)
    entries: set[Var] = field(default_factory=set)


def memory_of(program: DeviceProgram, groups: Sequence[Group], target: Target) -> Memory:
    """The memory that `program` needs on each device when it runs as `groups`."""
    values = values_of(program.program, target)
    inputs, outputs = program.program.inputs, values.outputs
    homes = donated_homes(program, outputs)
    placed = _Placed(set(inputs))
    aliased = sum(home.aval.nbytes for home in homes if home is not None)
    for out, home in zip(outputs, homes, strict=True):
        if isinstance(out, Var) and out not in placed.fixed:
            placed.homes.setdefault(out, home)
    spans = _spans(values, groups, placed, target)
    usage, at = _usage(spans, len(groups))
    arguments = sum(v.aval.nbytes for v in inputs)
    own = sum(stored_bytes(a.aval, target, given=True) for a, h in zip(outputs, homes, strict=True) if h is None)
    buffers = _buffers_at(spans, at, values)
    buffers += _given(program, outputs, homes, target)
    return Memory(
        arguments,
        own + aliased,
        aliased,
        max(usage, default=0),
        tuple(sorted(buffers, key=lambda b: -b.nbytes * b.count)),
        tuple(arguments + own + n for n in usage),
    )


def donated_homes(program: DeviceProgram, outputs: Sequence[Atom]) -> tuple[Var | None, ...]:
    """Per result the donated argument whose memory it takes: the first one left of that type and layout."""
    free: dict[object, list[Var]] = {}
    for i in reversed(program.donated):
        var = program.program.inputs[i]
        free.setdefault((var.aval.shape, var.aval.dtype, program.in_dims[i]), []).append(var)
    homes: list[Var | None] = []
    for out, dims in zip(outputs, program.out_dims, strict=True):
        waiting = free.get((out.aval.shape, out.aval.dtype, dims))
        homes.append(waiting.pop() if waiting else None)
    return tuple(homes)


def _spans(values: Values, groups: Sequence[Group], placed: _Placed, target: Target) -> list[Span]:
    """The temporaries of one program."""
    last: dict[Var, int] = {}
    first: dict[Var, int] = {}
    for g, group in enumerate(groups):
        for var in group.reads:
            if isinstance(var, Var):
                last[var] = g
                first.setdefault(var, g)
    end = len(groups) - 1
    spans: list[Span] = []
    open_spans: dict[Var, Span] = {}
    for var in values.rows:
        if var in values.stored and var in last:
            spans.append(Span(first[var], last[var], stored_bytes(var.aval, target), var))
    for g, group in enumerate(groups):
        taken: set[Var] = set()
        for var in group.writes:
            if _needs_no_buffer(var, g, group, placed, last):
                continue
            span = Span(g, last.get(var, g), stored_bytes(var.aval, target), var, _kind(group))
            if var in placed.homes or var in placed.entries:
                span.last = max(span.last, last.get(placed.homes.get(var) or var, g))
            source = _overwritten(group, var, g, last, open_spans, taken)
            if source is not None:
                taken.add(source)
                open_spans.pop(source).last = g - 1
            spans.append(span)
            open_spans[var] = span
        spans += _inner_spans(g, group, target)
    for span in spans:
        span.last = min(span.last, end)
    return spans


def _needs_no_buffer(var: Var, g: int, group: Group, placed: _Placed, last: dict[Var, int]) -> bool:
    """Whether a group writes its result where it will stay."""
    if var in placed.entries and var not in placed.homes:
        return last.get(var, g) <= g and group.kind != "collective"
    if var not in placed.homes:
        return False
    home = placed.homes[var]
    if home is None:
        return True
    gone = last.get(home, -1)
    return gone < g or (gone == g and _writes_in_place(group, home, var))


def _overwritten(
    group: Group, var: Var, g: int, last: dict[Var, int], open_spans: dict[Var, Span], taken: set[Var]
) -> Var | None:
    """The operand that dies here and whose buffer `var` takes."""
    for read in group.reads:
        if (
            isinstance(read, Var)
            and last.get(read) == g
            and read not in taken
            and read in open_spans
            and read.aval.nbytes == var.aval.nbytes
            and _writes_in_place(group, read, var)
        ):
            return read
    return None


def _writes_in_place(group: Group, operand: Var, result: Var) -> bool:
    """Whether the kernel reads an element of `operand` for the last time when it writes that of `result`."""
    if operand.aval.size != result.aval.size or operand.aval.itemsize != result.aval.itemsize:
        return False
    if group.kind == "loop":
        return _is_carried(group, operand, result)
    if group.kind in ("collective", "other"):
        return False
    if group.kind == "product":
        return not any(e.op.product and operand in e.inputs for e in group.equations)
    return True


def _is_carried(group: Group, operand: Var, result: Var) -> bool:
    region = region_of(group.equations[-1])
    if not isinstance(region, Loop):
        return False
    eqn = group.equations[-1]
    return result in eqn.outputs[: region.num_carry]


def _inner_spans(g: int, group: Group, target: Target) -> list[Span]:
    """What a group needs while it runs: the temporaries of a loop's body."""
    if not group.body:
        return []
    region = region_of(group.equations[-1])
    if isinstance(region, Branches):
        best = max(
            (_body_memory(values_of(p, target), group.body, _Placed(set(p.inputs)), target) for p in region.programs),
            key=lambda found: found[0],
        )
    else:
        assert isinstance(region, Loop)
        best = loop_memory(region, group.body, target)
    return [Span(g, g, best[0], None, inner=best[1])] if best[0] else []


def loop_memory(loop: Loop, groups: Sequence[Group], target: Target) -> tuple[int, tuple[Buffer, ...]]:
    """The most bytes of temporaries that one trip of a loop needs, and those buffers."""
    values = values_of(loop.body, target, rows_of(loop))
    rows = set(values.rows)
    placed = _Placed({v for v in loop.body.inputs if v not in rows})
    carried = loop.body.inputs[loop.num_consts : loop.num_consts + loop.num_carry]
    for out, home in zip(values.outputs, carried, strict=False):
        if isinstance(out, Var) and out is not home and out not in placed.fixed:
            placed.homes[out] = home
    placed.entries = {a for a in values.outputs[loop.num_carry :] if isinstance(a, Var)}
    return _body_memory(values, groups, placed, target)


def _body_memory(
    values: Values, groups: Sequence[Group], placed: _Placed, target: Target
) -> tuple[int, tuple[Buffer, ...]]:
    spans = _spans(values, groups, placed, target)
    usage, at = _usage(spans, len(groups))
    return max(usage, default=0), _buffers_at(spans, at, values)


def _usage(spans: Iterable[Span], count: int) -> tuple[list[int], int]:
    """Bytes in use while each group runs, and the position of the most."""
    change = [0] * (count + 1)
    for span in spans:
        if span.first <= span.last:
            change[span.first] += span.nbytes
            change[span.last + 1] -= span.nbytes
    usage: list[int] = []
    now = 0
    for n in change[:count]:
        now += n
        usage.append(now)
    return usage, max(range(count), key=usage.__getitem__, default=0)


def _kind(group: Group) -> str:
    return "saved" if group.kind == "loop" else "temporary"


def _buffers_at(spans: Iterable[Span], at: int, values: Values) -> tuple[Buffer, ...]:
    """The buffers in use while group `at` runs; those alike are one with a count."""
    found: dict[object, Buffer] = {}
    for span in spans:
        if not span.first <= at <= span.last:
            continue
        if span.var is None:
            for inner in span.inner:
                found[len(found), inner] = inner
            continue
        eqn = values.program.equations[values.makers[span.var]] if span.var in values.makers else None
        name = eqn.op.name if eqn is not None else "entry of a stacked array"
        source = eqn.source.place if eqn is not None and eqn.source else None
        key = (name, span.kind, span.nbytes, span.var.aval.shape, source)
        old = found.get(key)
        count = 1 if old is None else old.count + 1
        found[key] = Buffer(name, span.kind, span.nbytes, _text(span.var), source=source, count=count)
    return tuple(found.values())


def _given(
    program: DeviceProgram, outputs: Sequence[Atom], homes: Sequence[Var | None], target: Target
) -> tuple[Buffer, ...]:
    """The buffers of arguments, and of results that have their own."""
    inputs = program.program.inputs
    consts = program.program.num_consts
    found = [
        Buffer(name, "constant" if i < consts else "argument", v.aval.nbytes, _text(v), dims, shape)
        for i, (v, name, dims, shape) in enumerate(
            zip(inputs, program.names, program.in_dims, program.in_shapes, strict=True)
        )
    ]
    for i, (out, dims, home) in enumerate(zip(outputs, program.out_dims, homes, strict=True)):
        if home is None:
            nbytes = stored_bytes(out.aval, target, given=True)
            found.append(Buffer(f"result[{i}]", "result", nbytes, _text(out), dims))
    return tuple(found)


def _text(atom: Atom) -> str:
    return f"{short_name(atom.aval.dtype)}[{','.join(map(str, atom.aval.shape))}]"
