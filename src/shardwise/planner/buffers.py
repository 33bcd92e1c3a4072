"""The memory of a device at its peak: a name, a kind and a line for each buffer.

In: spans of values and the groups that make them. Out: `Buffer`s, and the `Memory` of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shardwise.base.dtypes import short_name
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Atom, Loop, ShapedArray, Var, region_of
from shardwise.planner.copies import op_name
from shardwise.planner.result import Buffer
from shardwise.planner.span import Span
from shardwise.planner.work import DeviceProgram, Group


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes that a program keeps with the host for one device.

    Attributes:
        arguments, results: whose shardings say so; `aliased` are results in the memory of donated arguments.
        temporaries: the most bytes at once of what is offloaded.
    """

    arguments: int = 0
    results: int = 0
    aliased: int = 0
    temporaries: int = 0


NO_HOST_MEMORY = HostMemory()


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one device.

    Attributes:
        arguments, results: bytes; `aliased` are results in the memory of donated arguments.
        temporaries: the most bytes of temporaries at once.
        buffers: those in use then, the largest first, arguments and results included.
        usage: per group of the program the bytes in use while it runs, arguments and results included.
        peak: the most bytes in use at once.
        host: what lies in the host's memory for it.
    """

    arguments: int
    results: int
    aliased: int
    temporaries: int
    buffers: tuple[Buffer, ...]
    usage: tuple[int, ...]
    peak: int
    host: HostMemory = NO_HOST_MEMORY


def value_buffers(spans: Iterable[Span], groups: Sequence[Group]) -> tuple[Buffer, ...]:
    """The buffers of values; those alike are one with a count."""
    values = [(s, s.var) for s in spans if s.var is not None]
    wanted_vars = {var for _, var in values}
    makers = {v: e for group in groups for e in group.equations for v in e.outputs if v in wanted_vars}
    readers = {a: group.equations[-1] for group in reversed(groups) for a in group.reads if a in wanted_vars}
    buffers_by_home: dict[object, Buffer] = {}
    for span, var in values:
        name = op_name(makers[var]) if var in makers else "entry of a stacked array"
        eqn = makers.get(var) or readers.get(var)
        source = eqn.source.place if eqn is not None and eqn.source else None
        key = (name, span.kind, span.nbytes, var.aval.shape, source)
        old = buffers_by_home.get(key)
        count = 1 if old is None else old.count + 1
        buffers_by_home[key] = Buffer(name, span.kind, span.nbytes, value_text(var), source=source, count=count)
    return tuple(buffers_by_home.values())


def argument_buffers(program: DeviceProgram, held: Callable[[ShapedArray], int]) -> tuple[Buffer, ...]:
    """The buffers of a program's arguments; `held` gives the bytes of a type."""
    consts = program.program.num_consts
    given = zip(program.program.inputs, program.names, program.in_dims, program.in_shapes, strict=True)
    return tuple(
        Buffer(name, "constant" if i < consts else "argument", held(v.aval), value_text(v), dims, shape)
        for i, (v, name, dims, shape) in enumerate(given)
        if i not in program.host_inputs
    )


def kind_of(group: Group, var: Var) -> str:
    """The use of a buffer: the last carry of a loop, entries that it stacks, or another."""
    region = region_of(group.equations[-1]) if group.kind == "loop" else None
    if not isinstance(region, Loop):
        return "temporary"
    return "carry" if var in group.equations[-1].outputs[: region.num_carry] else "saved"


def in_use(spans: Iterable[Span], count: int) -> list[int]:
    """Bytes in use at each of `count` places."""
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
    return usage


def largest(usage: Sequence[int]) -> int:
    """The first place of the most bytes; 0 if there is none."""
    return max(range(len(usage)), key=usage.__getitem__, default=0)


def value_text(atom: Atom) -> str:
    """A value's type, ``f32[8,512]``."""
    return f"{short_name(atom.aval.dtype)}[{','.join(map(str, atom.aval.shape))}]"
