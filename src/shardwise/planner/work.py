"""The work of one device, without times: its program as a target's compiler would group it.

`Group`s are made by the passes of a target from a per-device program; memory and clock read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.records import record
from shardwise.base.shapes import DimAxes
from shardwise.ir import Atom, Equation, Program, Var


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """A program as one device of the machine runs it: local types, every collective an equation.

    Attributes:
        program: nothing is folded that only one process could fold.
        sizes: of the mesh axes, by name.
        names: the arguments' paths, captured values first.
        in_dims, out_dims: the layouts of arguments and results.
        in_shapes: the arguments' global shapes.
        donated: positions of the arguments whose memory results may take.
        executed: the program as our own engine runs it, with what it computes as one in one equation; None where it does not.
        host_inputs, host_outputs: positions of the arguments and results that lie in the host's memory.
        together: whether memory and time are those of all devices in one process, where one copy serves those that agree.
    """

    program: Program
    sizes: Mapping[str, int]
    names: tuple[str, ...]
    in_dims: tuple[DimAxes, ...]
    out_dims: tuple[DimAxes, ...]
    in_shapes: tuple[tuple[int, ...], ...]
    donated: tuple[int, ...] = ()
    host_inputs: frozenset[int] = frozenset()
    host_outputs: frozenset[int] = frozenset()
    executed: Program | None = None
    together: bool = False

    @property
    def hosted(self) -> tuple[Var, ...]:
        """The arguments in the host's memory."""
        return tuple([self.program.inputs[i] for i in sorted(self.host_inputs)])


class Lookups(NamedTuple):
    """Places of a value that a gather or scatter goes to.

    Attributes:
        windows: of several elements each.
        elements: of one.
        span: bytes of the value, the largest of several.
        updates: whether the places are written.
        combined: elements that are combined with what is there.
        repeats: how many of them meet at one place, if they are spread evenly.
        width: bytes of a place.
        pieces: in how many pieces a window lies.
    """

    windows: int
    elements: int
    span: int = 0
    updates: bool = False
    combined: int = 0
    repeats: float = 0.0
    width: float = 0.0
    pieces: float = 1.0

    @property
    def places(self) -> int:
        """All places."""
        return self.windows + self.elements


NO_LOOKUPS = Lookups(0, 0)


@record
class Pass:
    """One pass of a kernel over its rows: users of a reduction's or a product's result run in a later pass.

    Attributes:
        equations: that it computes.
        touched: per value the bytes that it reads or writes in memory.
        cached: bytes of values of other passes, which the cache holds.
        lookups: the places of values that it looks up or updates.
    """

    equations: tuple[Equation, ...]
    touched: Mapping[Var, int]
    cached: int
    lookups: Lookups = NO_LOOKUPS


@record
class Group:
    """Equations that run as one kernel, or one collective, or one loop.

    Attributes:
        kind: as `Task.kind`.
        equations: in order.
        reads: the values that it takes from memory.
        writes: the values that it leaves in memory.
        body: of a loop, the groups of one trip; of a conditional those of the heaviest branch.
        branches: of a conditional, the groups of each branch.
        trips: how often the body runs, None if that is not known.
        overlaps: whether a collective may run beside computations (asynchronous).
        rings: in how many parts a product and the collective beside it run (a collective matmul); 1: as a whole.
        moved: those of `reads` whose elements it reads at other places than it writes, as a product does: it cannot write its result over
            them.
        filled: bytes of stacks that a loop fills before it begins.
        carried: bytes that a loop copies in each trip to where its carries lie.
        scratch: bytes that it needs while it runs, besides what it reads and writes: a loop for one trip, a ring for its parts.
        fetched: those of `reads` that it takes from the host's memory.
        passes: in the order of a kernel of our own; () where equations, reads and writes say what it does.
        over: per result of such a kernel the operands whose memory it takes where they die with it.
        buffers: bytes of each buffer that such a kernel needs while it runs.
        copies: for how many devices one process runs it, as their values differ.
    """

    kind: str
    equations: tuple[Equation, ...]
    reads: tuple[Atom, ...]
    writes: tuple[Var, ...]
    body: tuple[Group, ...] = ()
    branches: tuple[tuple[Group, ...], ...] = field(default=(), kw_only=True)
    trips: int | None = 1
    overlaps: bool = False
    rings: int = 1
    moved: frozenset[Var] = frozenset()
    filled: int = 0
    carried: int = 0
    scratch: int = 0
    fetched: frozenset[Var] = frozenset()
    passes: tuple[Pass, ...] = ()
    over: Mapping[Var, tuple[Var, ...]] = field(default_factory=dict[Var, tuple[Var, ...]])
    buffers: tuple[int, ...] = ()
    copies: int = 1


def moved_bytes(groups: Iterable[Group]) -> int:
    """The bytes that groups read and write, those of a loop in all its trips; one trip where their number is not known."""
    total = 0
    for group in groups:
        if group.body:
            total += (1 if group.trips is None else group.trips) * moved_bytes(group.body)
        elif group.passes:
            total += sum(n for part in group.passes for n in part.touched.values())
        else:
            total += sum(a.aval.nbytes for a in (*group.reads, *group.writes))
    return total


def heaviest(branches: Iterable[tuple[Group, ...]]) -> tuple[Group, ...]:
    """The branch that moves most bytes."""
    return max(branches, key=moved_bytes, default=())
